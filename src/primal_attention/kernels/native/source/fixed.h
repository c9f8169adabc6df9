// Fixed weights, data-dependent or free, with the cosine as the feature map: one sweep each way.
#pragma once

#include "anchors.h"
#include "pass.h"

namespace primal {

struct Fixed : Pass {
  bool shared;         // free weights are those of all samples
  int64_t size, sets;  // numbers in the weights of a side; 1, or B

  struct Saved {
    float *qk, *inverse, *scores, *energy, *weights;
    Saved(const Fixed& f, float* at) {
      qk = at, at += f.positions.padded * f.inner;
      inverse = at, at += f.positions.padded * f.sides;
      scores = at, at += f.positions.padded * f.scores;
      energy = at, at += f.c.batch * f.scores;
      weights = at;
    }
  };

  explicit Fixed(const Call& call)
      : Pass(call), shared(!c.anchors), size(c.rank * c.head_dim),
        sets(shared ? 1 : c.batch) {}

  int64_t saved_size() const {
    return positions.padded * (inner + sides + scores) + c.batch * scores + sets * sides * size;
  }

  // The weights (sets, 2h, s, p), transposed; `own` is memory for them.
  const float* weights_of(float* own) const {
    if (c.weights) return c.weights;
    if (c.anchors) {
      Anchors(c, positions, threads).forward(own);
      return own;
    }
    for (int64_t z = 0; z < sides; z++) {
      const float* from = (z < c.heads ? c.w_e : c.w_r) + z % c.heads * size;
      for (int64_t a = 0; a < c.rank; a++)
        for (int64_t k = 0; k < c.head_dim; k++)
          own[z * size + a * c.head_dim + k] = from[k * c.rank + a];
    }
    return own;
  }

  int64_t set_of(const Tile& tile) const { return shared ? 0 : tile.sample; }

  void forward() {
    cut(scores);
    Saved saved(*this, c.saved);
    Buffer own_weights(sets * sides * size), weights(sets * sides * size);
    const float* given = weights_of(c.saved ? saved.weights : own_weights);
    Buffer w_in(inner * c.width);
    pack_rows(Matrix{c.w_in, c.width, 1}, inner, c.width, w_in, threads);
    for (int64_t i = 0; i < sets * sides; i++)
      pack_rows(Matrix{given + i * size, c.head_dim, 1}, c.rank, c.head_dim, weights + i * size);
    OutputMap map(c, threads);
    Buffer w_out = map.packed_columns();
    Buffer part_energy = zeros(positions.slots * scores), energy(c.batch * scores);
    // without a way back, a thread has memory for one tile
    std::vector<Worker> workers = this->workers(0, c.saved ? 0 : inner + sides + scores);
    for_tiles([&](const Tile& tile, int64_t chunk, int64_t worker) {
      Worker& w = workers[worker];
      Block qk = w.gradients.block(inner), inverse, score = w.scores.block(scores);
      inverse = {w.gradients + positions.longest * PANEL * inner, sides * PANEL};
      if (c.saved) qk = qk_of(saved, tile), inverse = inverse_of(saved, tile);
      if (c.saved) score = scores_of(saved, tile);
      queries_and_keys(turned_rows(tile, w), tile.panels(), w_in, qk);
      float* sums = part_energy + positions.chunks[chunk].slot_of(tile.sample) * scores;
      for (int64_t z = 0; z < sides; z++) {
        Block q = qk.rows_from(z * c.head_dim), inv = inverse.rows_from(z);
        Block own = score.rows_from(z * c.rank);
        Cosine::forward(q, c.head_dim, tile.count, inv);
        project<Start::zero>(weights + (set_of(tile) * sides + z) * size, c.rank, c.head_dim, q,
                             own, tile.panels());
        normalise(own, inv, own, c.rank, tile.panels(), sums + z * c.rank);
      }
      emit(tile, score, map, w_out, w);
    });
    clear_ignored(c.out, c.type, c.width, c.ignore, c.batch * c.length);
    for (int64_t b = 0; b < c.batch; b++) {
      float* to = c.saved ? saved.energy + b * scores : energy + b * scores;
      total(part_energy, b, scores, to);
      if (c.terms) energy_terms(b, to), trace(b);
    }
  }

  // Tr(W_e^T W_r) of every head, that of the parameters.
  void trace(int64_t sample) const {
    int64_t count = (c.anchors ? c.anchors : c.head_dim) * c.rank;
    for (int64_t i = 0; i < c.heads; i++) {
      float sum = 0.0f;
      for (int64_t k = 0; k < count; k++) sum += c.w_e[i * count + k] * c.w_r[i * count + k];
      c.terms[(2 * c.batch + sample) * c.heads + i] = sum;
    }
  }

  Block qk_of(const Saved& saved, const Tile& tile) const {
    return {saved.qk + tile.at * inner, inner * PANEL};
  }
  Block inverse_of(const Saved& saved, const Tile& tile) const {
    return {saved.inverse + tile.at * sides, sides * PANEL};
  }
  Block scores_of(const Saved& saved, const Tile& tile) const {
    return {saved.scores + tile.at * scores, scores * PANEL};
  }

  void backward() {
    OutputMap map(c, threads);
    // the sums of a chunk: d_w_in, those of the output map, d_b_in, and those of shared weights
    int64_t n_in = inner * columns, n_out = map.size(), rest = n_in + map.matrix_size();
    int64_t n_all = round_up(n_in + n_out + inner + (shared ? sides * size : 0), 16);
    cut(n_all);
    Saved saved(*this, c.saved);
    const float* given = c.weights ? c.weights : saved.weights;
    Buffer weights(sets * sides * size), w_out = map.packed_rows(), w_in(inner * c.width);
    for (int64_t i = 0; i < sets * sides; i++)
      pack_rows(Matrix{given + i * size, 1, c.head_dim}, c.head_dim, c.rank, weights + i * size);
    auto column = [&](int64_t k) { return c.w_in + k * c.width; };
    pack_columns_as_rows(column, c.width, inner, w_in, threads);
    Buffer sums = sums_of_chunks(n_all);
    Buffer parts = zeros(shared ? 0 : positions.slots * sides * size);
    std::vector<Worker> workers = this->workers(0, inner);

    for_tiles([&](const Tile& tile, int64_t chunk, int64_t worker) {
      Worker& w = workers[worker];
      int64_t panels = tile.panels(), p = c.head_dim, s = c.rank;
      float* own = begin_sums(sums, n_all, rest, chunk, tile);
      float* d_b_in = own + n_in + n_out;
      bool fresh = begins(tile, chunk);
      float* d_weights = d_b_in + inner;
      if (!shared)
        d_weights = parts + positions.chunks[chunk].slot_of(tile.sample) * sides * size;
      Block score = scores_of(saved, tile), gradient = w.gradients.block(inner);
      Block ds = emit_backward(tile, score, map, w_out, own + n_in, fresh, w);
      energy_factors(tile.sample, w.factors);
      for (int64_t z = 0; z < sides; z++) {
        Block q = qk_of(saved, tile).rows_from(z * p), dq = gradient.rows_from(z * p);
        Block inverse = inverse_of(saved, tile).rows_from(z), du = ds.rows_from(z * s);
        scores_backward(du, score.rows_from(z * s), inverse, w.factors + z * s, s, panels, false,
                        du, w.dots.block(1));
        add_inner(du, s, q, p, panels, d_weights + z * size);
        project<Start::zero>(weights + (set_of(tile) * sides + z) * size, p, s, du, dq, panels);
        Cosine::backward(dq, q, p, panels, inverse, w.dots.block(1), d_b_in + z * p);
      }
      maps_backward(tile, gradient, inner, w_in, own, fresh, w, [] {});
    });
    if (c.d_x) clear_ignored(c.d_x, c.type, c.width, c.ignore, c.batch * c.length);

    total_of_chunks(sums, n_all, inner, columns, c.width, c.d_w_in);
    total_of_chunks(sums + n_in, n_all, map.inputs, columns, columns, sums + n_in);
    total_of_chunks(sums + rest, n_all, 1, 0, n_all - rest, sums + rest);
    if (c.d_b_in) std::copy_n(sums + n_in + n_out, inner, c.d_b_in);
    weights_backward(sums + n_in + n_out + inner, parts);
    map.backward(sums + n_in);
    std::fill_n(c.d_root, c.heads * c.rank, 0.0f);
    for (int64_t b = 0; b < c.batch; b++) energy_roots(b, saved.energy + b * scores);
  }

  // From the gradient of the weights, `total` of all samples or `parts` of each, to w_e and w_r.
  void weights_backward(const float* all, const float* parts) const {
    int64_t count = (c.anchors ? c.anchors : c.head_dim) * c.rank;
    for (int64_t i = 0; i < c.heads; i++) {
      float g = 0.0f;  // that of the trace
      for (int64_t b = 0; c.g_terms && b < c.batch; b++)
        g += c.g_terms[(2 * c.batch + b) * c.heads + i];
      for (int64_t k = i * count; k < (i + 1) * count; k++)
        c.d_w_e[k] = g * c.w_r[k], c.d_w_r[k] = g * c.w_e[k];
    }
    if (shared) {
      for (int64_t z = 0; z < sides; z++) {
        float* to = (z < c.heads ? c.d_w_e : c.d_w_r) + z % c.heads * size;
        for (int64_t a = 0; a < c.rank; a++)
          for (int64_t k = 0; k < c.head_dim; k++)
            to[k * c.rank + a] += all[z * size + a * c.head_dim + k];
      }
      return;
    }
    Buffer own(c.weights ? 0 : sets * sides * size);
    float* made = c.weights ? c.d_weights : own;
    for (int64_t b = 0; b < c.batch; b++) total(parts, b, sides * size, made + b * sides * size);
    if (!c.weights) Anchors(c, positions, threads).backward(made);
  }
};

}  // namespace primal
