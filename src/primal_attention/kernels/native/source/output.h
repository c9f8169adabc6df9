// The linear map from scores to the output, and back: W_c, then the output projection W_o. With many
// rows both become one matrix, with few they are applied one after the other.
//
// Matrices of the output are blocks: the outputs o < d are the positions, filled up with zeros to
// panels.
#pragma once

#include <optional>

#include "concat.h"

namespace primal {

// Whether one matrix for both pays. For a head it takes `2s p d` products, and then `2s d` for each
// row instead of `2s p + p d`. The way back has three and two times as many: about the same answer.
inline bool folds(const Call& c) {
  int64_t rows = c.batch * c.length, p = c.head_dim, scores = 2 * c.rank;
  return scores * p * c.width + rows * scores * c.width < rows * p * (scores + c.width);
}

class OutputMap {
 public:
  const bool folded;
  const int64_t inputs;  // channels that the matrix takes: 2 h s scores, or h p that W_c makes
  Buffer bias;           // (columns), columns = d filled up to a multiple of PANEL
  std::optional<Concat> concat;  // W_c, unless it is folded

  OutputMap(const Call& call, int64_t all_threads)
      : folded(folds(call)), inputs(call.heads * (folded ? 2 * call.rank : call.head_dim)),
        bias(round_up(call.width, PANEL)), c(call), p(c.head_dim), s(c.rank), inner(c.heads * p),
        scores(2 * c.heads * s), panels(round_up(c.width, PANEL) / PANEL),
        threads(p * scores * c.width < PARALLEL ? 1 : all_threads),
        turned(folded ? inner * panels * PANEL : 0), made(folded ? scores * panels * PANEL : 0) {
    std::fill_n(static_cast<float*>(bias), panels * PANEL, 0.0f);
    if (c.out_b) std::copy_n(c.out_b, c.width, static_cast<float*>(bias));
    if (folded)
      fold();
    else
      concat.emplace(c);
  }

  // What the matrix takes, from the scores; `own` is memory for it.
  Block inputs_of(Block score, int64_t panels, const Buffer& own) const {
    if (folded) return score;
    concat->forward(score, own.block(inputs), panels);
    return own.block(inputs);
  }

  // The matrix (inputs, d), packed by rows for `project`, and its transpose.
  Buffer packed_rows() const {
    Buffer packed(inputs * c.width);
    auto folded_at = [&](int64_t k, int64_t o) { return *weight().at(k, o); };
    auto column = [&](int64_t o) { return c.out_w + o * inner; };
    if (folded)
      pack_rows(folded_at, inputs, c.width, packed, threads);
    else
      pack_columns_as_rows(column, inputs, c.width, packed, threads);
    return packed;
  }
  Buffer packed_columns() const {
    Buffer packed(inputs * c.width);
    auto folded_at = [&](int64_t o, int64_t k) { return *weight().at(k, o); };
    if (folded)
      pack_rows(folded_at, c.width, inputs, packed, threads);
    else
      pack_rows(Matrix{c.out_w, inner, 1}, c.width, inputs, packed, threads);
    return packed;
  }

  // The sums of the way back: the gradients of the matrix (inputs, columns), of the bias (columns),
  // and those of W_c.
  int64_t matrix_size() const { return inputs * panels * PANEL; }
  int64_t size() const { return matrix_size() + panels * PANEL + (folded ? 0 : concat->size()); }

  // From the sums to the gradients of the parameters.
  void backward(const float* sums) const {
    const float* d_bias = sums + matrix_size();
    if (c.d_out_b) std::copy_n(d_bias, c.width, c.d_out_b);
    if (folded) return unfold(sums, d_bias);
    transpose(sums, panels * PANEL, inner, c.width, c.d_out_w, inner);
    concat->write_gradients(d_bias + panels * PANEL);
  }

 private:
  const Call& c;
  int64_t p, s, inner, scores, panels, threads;
  Buffer turned;  // the output projection, p rows for each head
  Buffer made;    // the one matrix for both

  // (2 h s) rows.
  Block weight() const { return made.block(scores); }

  void fold() {
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
    for (int64_t head = 0; c.concat_b && head < c.heads; head++)
      project<Start::sum>(c.concat_b, 1, p, head_of(turned, head), bias.block(1), panels);
  }

  // From the gradients of `made`, (2 h s, columns) row by row, and bias to those of the parameters.
  void unfold(const float* d_weight, const float* d_bias) const {
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
  }

  int64_t outputs(int64_t panel) const { return std::min<int64_t>(PANEL, c.width - panel * PANEL); }
  Block head_of(float* data, int64_t head) const {
    return {data + head * p * panels * PANEL, p * PANEL};
  }
};

}  // namespace primal
