// Data-dependent weights `W_e|X = F_X^T W_e`: F_X holds n evenly spaced valid rows of a sample. Where
// anchors outnumber positions, neighbours share a row, and their weights are summed first.
#pragma once

#include "call.h"
#include "parallel.h"

namespace primal {

// `round(i (length - 1) / (n - 1))`, ties to even, in integers.
inline int64_t anchor_position(int64_t i, int64_t length, int64_t n) {
  int64_t steps = std::max<int64_t>(1, n - 1), along = i * std::max<int64_t>(0, length - 1);
  int64_t whole = along / steps, twice = 2 * (along % steps);
  return whole + (twice > steps || (twice == steps && whole % 2 == 1));
}

class Anchors {
 public:
  Anchors(const Call& call, const Positions& where, int64_t threads)
      : c(call), positions(where), n(call.anchors), threads_(std::min(threads, call.heads)),
        columns(round_up(c.head_dim, PANEL)), padded(round_up(n, PANEL)) {}

  // weights (B, 2h, s, p), transposed.
  void forward(float* weights) const {
    parallel(c.heads, threads_, [&](int64_t head, int64_t) {
      Buffer block(padded * 2 * c.rank), packed(padded * columns), made(2 * c.rank * columns);
      for (int64_t b = 0; b < c.batch; b++) {
        Runs runs = gather(b, head, block.block(2 * c.rank));
        pack_columns([&](int64_t i) { return row(c.x, b, runs.at[i], head); }, runs.count(),
                     c.head_dim, packed);
        std::fill_n(static_cast<float*>(made), 2 * c.rank * columns, 0.0f);
        add_outer(block.block(2 * c.rank), 2 * c.rank, packed, runs.count(), columns, made);
        for (int64_t k = 0; k < 2 * c.rank; k++)
          std::copy_n(made + k * columns, c.head_dim, side(weights, b, head, k));
      }
    });
  }

  // Adds to d_w_e and d_w_r (h, n, s), and to the rows of d_x.
  void backward(float* d_weights) const {
    parallel(c.heads, threads_, [&](int64_t head, int64_t) {
      int64_t s = 2 * c.rank, p = c.head_dim;
      Buffer block(padded * s), d_block(padded * s), turned(padded * round_up(p, WIDTH));
      Buffer matrix(s * columns), packed(s * columns), rows(s * p), d_rows(padded * columns);
      for (int64_t b = 0; b < c.batch; b++) {
        Runs runs = gather(b, head, block.block(s));
        int64_t panels = (runs.count() + PANEL - 1) / PANEL;
        for (int64_t k = 0; k < s; k++)
          std::copy_n(side(d_weights, b, head, k), p, matrix + k * columns);
        pack_rows(matrix, columns, 1, s, p, rows);
        Block x = turned.block(round_up(p, WIDTH));
        for (int64_t i = 0; i < panels * PANEL; i++)
          for (int64_t k = 0; k < p; k++)
            *x.at(k, i) = i < runs.count() ? row(c.x, b, runs.at[i], head)[k] : 0.0f;
        project<Start::zero>(rows, s, p, x, d_block.block(s), panels);
        spread(runs, d_block.block(s), head);
        if (!c.d_x) continue;
        pack_columns([&](int64_t k) { return matrix + k * columns; }, s, p, packed);
        rows_of(block.block(s), runs.count(), packed, s, columns, d_rows);
        for (int64_t i = 0; i < runs.count(); i++) {
          float* to = const_cast<float*>(row(c.d_x, b, runs.at[i], head));
          for (int64_t k = 0; k < p; k++) to[k] += d_rows[i * columns + k];
        }
      }
    });
  }

 private:
  // Anchors first[i] to first[i + 1] are at valid position at[i].
  struct Runs {
    std::vector<int64_t> at, first;
    int64_t count() const { return static_cast<int64_t>(at.size()); }
  };

  const Call& c;
  const Positions& positions;
  int64_t n, threads_, columns, padded;

  const float* row(const void* tensor, int64_t sample, int64_t number, int64_t head) const {
    int64_t at = positions.place(sample, number) * c.width + head * c.head_dim;
    return static_cast<const float*>(tensor) + at;
  }
  float* side(float* weights, int64_t sample, int64_t head, int64_t k) const {
    int64_t z = k / c.rank * c.heads + head;
    return weights + ((sample * 2 * c.heads + z) * c.rank + k % c.rank) * c.head_dim;
  }
  const float* weight(int64_t k, int64_t head) const {
    return (k < c.rank ? c.w_e : c.w_r) + head * n * c.rank + k % c.rank;
  }

  // The runs of a sample, none where it has no valid position, and their summed weights as a block.
  Runs gather(int64_t sample, int64_t head, Block to) const {
    Runs runs;
    int64_t length = positions.valid[sample];
    for (int64_t i = 0; length && i < n; i++) {
      int64_t at = anchor_position(i, length, n);
      if (runs.at.empty() || runs.at.back() != at) runs.at.push_back(at), runs.first.push_back(i);
    }
    runs.first.push_back(n);
    for (int64_t k = 0; k < 2 * c.rank; k++) {
      const float* from = weight(k, head);
      for (int64_t i = 0; i < runs.count(); i++) {
        float sum = 0.0f;
        for (int64_t a = runs.first[i]; a < runs.first[i + 1]; a++) sum += from[a * c.rank];
        *to.at(k, i) = sum;
      }
    }
    return runs;
  }

  // Every anchor of a run gets the gradient of its sum.
  void spread(const Runs& runs, Block from, int64_t head) const {
    for (int64_t k = 0; k < 2 * c.rank; k++) {
      float* to = (k < c.rank ? c.d_w_e : c.d_w_r) + head * n * c.rank + k % c.rank;
      for (int64_t i = 0; i < runs.count(); i++)
        for (int64_t a = runs.first[i]; a < runs.first[i + 1]; a++) to[a * c.rank] += *from.at(k, i);
    }
  }
};

}  // namespace primal
