// The linear map from scores to the output: W_c and the output projection in one, and back.
//
// Its matrices are blocks: the outputs o < d are the positions, filled up with zeros to panels.
#pragma once

#include "call.h"

namespace primal {

class OutputMap {
 public:
  Buffer bias;  // (columns), columns = d filled up to a multiple of PANEL

  OutputMap(const Call& call, int64_t all_threads)
      : bias(round_up(call.width, PANEL)), c(call), p(c.head_dim), s(c.rank), inner(c.heads * p),
        scores(2 * c.heads * s), panels(round_up(c.width, PANEL) / PANEL),
        threads(p * scores * c.width < PARALLEL ? 1 : all_threads),
        turned(inner * panels * PANEL), made(scores * panels * PANEL) {
    parallel(c.heads, threads, [&](int64_t head, int64_t) {
      Buffer maps(2 * s * p);
      Block from = head_of(turned, head);
      for (int64_t i = 0; i < panels; i++) {
        if (outputs(i) < PANEL) std::fill_n(from.panel(i), p * PANEL, 0.0f);
        transpose(c.out_w + i * PANEL * inner + head * p, inner, outputs(i), p, from.panel(i),
                  PANEL);
      }
      for (int side = 0; side < 2; side++) {
        pack_rows(Matrix{c.concat_w + side * s, 1, 2 * s}, s, p, maps);
        project<Start::zero>(maps, s, p, from, weight().rows_from((side * c.heads + head) * s),
                             panels);
      }
    });
    std::fill_n(static_cast<float*>(bias), panels * PANEL, 0.0f);
    if (c.out_b) std::copy_n(c.out_b, c.width, static_cast<float*>(bias));
    for (int64_t head = 0; c.concat_b && head < c.heads; head++)
      project<Start::sum>(c.concat_b, 1, p, head_of(turned, head), bias.block(1), panels);
  }

  // (2 h s) rows.
  Block weight() const { return made.block(scores); }

  // The same, packed by rows for `project`, and its transpose.
  Buffer packed_rows() const {
    Buffer packed(scores * c.width);
    auto at = [&](int64_t k, int64_t o) { return *weight().at(k, o); };
    pack_rows(at, scores, c.width, packed, threads);
    return packed;
  }
  Buffer packed_columns() const {
    Buffer packed(scores * c.width);
    auto at = [&](int64_t o, int64_t k) { return *weight().at(k, o); };
    pack_rows(at, c.width, scores, packed, threads);
    return packed;
  }

  // From the gradients of weight, (2 h s, columns) row by row, and bias to those of the parameters.
  void backward(const float* d_weight, const float* d_bias) const {
    int64_t rows = 2 * s + 1, columns = panels * PANEL;  // the last row is that of the bias
    Buffer parts(c.heads * p * rows);
    parallel(c.heads, threads, [&](int64_t head, int64_t) {
      Buffer maps(p * rows), given(rows * columns), d_turned(p * columns);
      float* part = parts + head * p * rows;
      auto row = [&](int64_t k) {
        return k == 2 * s ? d_bias : d_weight + ((k / s * c.heads + head) * s + k % s) * columns;
      };
      pack_columns(row, rows, columns, given);
      auto concat = [&](int64_t k, int64_t a) {
        return a < 2 * s ? c.concat_w[k * 2 * s + a] : c.concat_b ? c.concat_b[k] : 0.0f;
      };
      pack_rows(concat, p, rows, maps);
      project<Start::zero>(maps, p, rows, given.block(rows), d_turned.block(p), panels);
      for (int64_t i = 0; i < panels; i++)
        transpose(d_turned.block(p).panel(i), PANEL, p, outputs(i),
                  c.d_out_w + i * PANEL * inner + head * p, inner);
      std::fill_n(part, p * rows, 0.0f);
      add_inner(head_of(turned, head), p, given.block(rows), rows, panels, part);
    });
    for (int64_t head = 1; head < c.heads; head++)
      for (int64_t k = 0; k < p * rows; k++) parts[k] += parts[head * p * rows + k];
    for (int64_t k = 0; k < p; k++) {
      std::copy_n(parts + k * rows, 2 * s, c.d_concat_w + k * 2 * s);
      if (c.d_concat_b) c.d_concat_b[k] = parts[k * rows + 2 * s];
    }
    if (c.d_out_b) std::copy_n(d_bias, c.width, c.d_out_b);
  }

 private:
  const Call& c;
  int64_t p, s, inner, scores, panels, threads;
  Buffer turned;  // the output projection, p rows for each head
  Buffer made;

  int64_t outputs(int64_t panel) const { return std::min<int64_t>(PANEL, c.width - panel * PANEL); }
  Block head_of(float* data, int64_t head) const {
    return {data + head * p * panels * PANEL, p * PANEL};
  }
};

}  // namespace primal
