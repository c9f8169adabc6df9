// W_c by itself: the scores [e, r] of a head become its p channels, and back.
#pragma once

#include "call.h"

namespace primal {

class Concat {
 public:
  explicit Concat(const Call& call)
      : c(call), p(c.head_dim), s(c.rank), maps(2 * p * s), turned(2 * p * s), bias(p) {
    for (int side = 0; side < 2; side++) {
      const float* from = c.concat_w + side * s;
      pack_rows(Matrix{from, 2 * s, 1}, p, s, maps + side * p * s);
      pack_rows(Matrix{from, 1, 2 * s}, s, p, turned + side * p * s);
    }
    for (int64_t k = 0; k < p; k++) bias[k] = c.concat_b ? c.concat_b[k] : 0.0f;
  }

  // to (h p) = W_c [e, r] + b_c of every head.
  void forward(Block score, Block to, int64_t panels) const {
    for (int64_t head = 0; head < c.heads; head++) {
      Block own = to.rows_from(head * p);
      project<Start::bias>(maps, p, s, side_of(score, 0, head), own, panels, bias);
      project<Start::sum>(maps + p * s, p, s, side_of(score, 1, head), own, panels);
    }
  }

  // The sums of the way back: the gradients of both halves of W_c (2, p, s) and of b_c (p).
  int64_t size() const { return p * (2 * s + 1); }

  // From the gradient g (h p) to that of the scores; adds to the sums.
  void backward(Block score, Block g, Block to, int64_t panels, float* sums) const {
    for (int64_t head = 0; head < c.heads; head++) {
      Block own = g.rows_from(head * p);
      for (int side = 0; side < 2; side++) {
        add_inner(own, p, side_of(score, side, head), s, panels, sums + side * p * s);
        project<Start::zero>(turned + side * p * s, s, p, own, side_of(to, side, head), panels);
      }
      add_row_sums(own, p, panels, sums + 2 * p * s);
    }
  }

  void write_gradients(const float* sums) const {
    for (int64_t k = 0; k < p; k++) {
      for (int side = 0; side < 2; side++)
        std::copy_n(sums + (side * p + k) * s, s, c.d_concat_w + (2 * k + side) * s);
      if (c.d_concat_b) c.d_concat_b[k] = sums[2 * p * s + k];
    }
  }

 private:
  const Call& c;
  int64_t p, s;
  Buffer maps, turned, bias;  // each half of W_c and its transpose, packed by rows

  Block side_of(Block score, int64_t side, int64_t head) const {
    return score.rows_from((side * c.heads + head) * s);
  }
};

}  // namespace primal
