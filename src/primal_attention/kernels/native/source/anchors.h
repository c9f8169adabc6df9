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
      : c(call), positions(where), n(call.anchors), both(2 * call.rank),
        threads_(std::min(threads, call.heads)), columns(round_up(c.head_dim, PANEL)),
        step(round_up(both, WIDTH)), padded(round_up(n, PANEL)) {}

  // weights (B, 2h, s, p), transposed.
  void forward(float* weights) const {
    parallel(c.heads, threads_, [&](int64_t head, int64_t) {
      Buffer summed(padded * step), block(padded * step), packed(padded * columns);
      Buffer made(both * columns);
      for (int64_t b = 0; b < c.batch; b++) {
        Runs runs = gather(b, head, summed, block.block(step));
        pack_columns([&](int64_t i) { return row(c.x, b, runs.at[i], head); }, runs.count(),
                     c.head_dim, packed);
        std::fill_n(static_cast<float*>(made), both * columns, 0.0f);
        add_outer(block.block(step), both, packed, runs.count(), columns, made);
        for (int64_t k = 0; k < both; k++)
          std::copy_n(made + k * columns, c.head_dim, side(weights, b, head, k));
      }
    });
  }

  // Adds to d_w_e and d_w_r (h, n, s), and to the rows of d_x.
  void backward(float* d_weights) const {
    parallel(c.heads, threads_, [&](int64_t head, int64_t) {
      int64_t p = c.head_dim;
      Buffer summed(padded * step), block(padded * step), d_block(padded * step);
      Buffer rows(padded * columns), turned(padded * columns), d_rows(padded * columns);
      Buffer matrix(both * columns), by_rows(both * p);
      for (int64_t b = 0; b < c.batch; b++) {
        Runs runs = gather(b, head, summed, block.block(step));
        int64_t panels = (runs.count() + PANEL - 1) / PANEL;
        for (int64_t k = 0; k < both; k++)
          std::copy_n(side(d_weights, b, head, k), p, matrix + k * columns);
        pack_rows(Matrix{matrix, columns, 1}, both, p, by_rows);
        std::fill_n(static_cast<float*>(rows), panels * PANEL * columns, 0.0f);
        for (int64_t i = 0; i < runs.count(); i++)
          std::copy_n(row(c.x, b, runs.at[i], head), p, rows + i * columns);
        for (int64_t i = 0; i < panels; i++)
          turn(rows + i * PANEL * columns, columns, PANEL, columns,
               turned.block(columns).panel(i), PANEL);
        project<Start::zero>(by_rows, both, p, turned.block(columns), d_block.block(step), panels);
        rows_of(d_block.block(step), both, panels, summed, step);
        spread(runs, summed, head);
        if (!c.d_x) continue;
        pack_rows(Matrix{matrix, 1, columns}, p, both, by_rows);
        project<Start::zero>(by_rows, p, both, block.block(step), turned.block(columns), panels);
        rows_of(turned.block(columns), p, panels, d_rows, columns);
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
  int64_t n, both;  // anchors; directions of both sides
  int64_t threads_, columns, step, padded;

  const float* row(const void* tensor, int64_t sample, int64_t number, int64_t head) const {
    int64_t at = positions.place(sample, number) * c.width + head * c.head_dim;
    return static_cast<const float*>(tensor) + at;
  }
  float* side(float* weights, int64_t sample, int64_t head, int64_t k) const {
    int64_t z = k / c.rank * c.heads + head;
    return weights + ((sample * 2 * c.heads + z) * c.rank + k % c.rank) * c.head_dim;
  }

  // The runs of a sample, none where it has no valid position, and their summed weights as rows
  // (runs, step) and as a block of `step` channels.
  Runs gather(int64_t sample, int64_t head, float* rows, Block to) const {
    Runs runs;
    int64_t length = positions.valid[sample];
    runs.at.reserve(n), runs.first.reserve(n + 1);
    for (int64_t i = 0; length && i < n; i++) {
      int64_t at = anchor_position(i, length, n);
      if (runs.at.empty() || runs.at.back() != at) runs.at.push_back(at), runs.first.push_back(i);
    }
    runs.first.push_back(n);
    const float *w_e = c.w_e + head * n * c.rank, *w_r = c.w_r + head * n * c.rank;
    std::fill_n(rows, round_up(runs.count(), PANEL) * step, 0.0f);
    for (int64_t i = 0; i < runs.count(); i++)
      for (int64_t a = runs.first[i]; a < runs.first[i + 1]; a++)
        for (int64_t k = 0; k < c.rank; k++) {
          rows[i * step + k] += w_e[a * c.rank + k];
          rows[i * step + c.rank + k] += w_r[a * c.rank + k];
        }
    for (int64_t i = 0; i < runs.count(); i += PANEL)
      turn(rows + i * step, step, PANEL, step, to.panel(i / PANEL), PANEL);
    return runs;
  }

  // Every anchor of a run gets the gradient of its sum, rows (runs, step).
  void spread(const Runs& runs, const float* rows, int64_t head) const {
    float *d_w_e = c.d_w_e + head * n * c.rank, *d_w_r = c.d_w_r + head * n * c.rank;
    for (int64_t i = 0; i < runs.count(); i++)
      for (int64_t a = runs.first[i]; a < runs.first[i + 1]; a++)
        for (int64_t k = 0; k < c.rank; k++) {
          d_w_e[a * c.rank + k] += rows[i * step + k];
          d_w_r[a * c.rank + k] += rows[i * step + c.rank + k];
        }
  }
};

}  // namespace primal
