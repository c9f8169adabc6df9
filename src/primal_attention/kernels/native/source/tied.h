// Tied weights: the KKT conditions (14) as parameterisation. For side z with features phi_z and
// dual variables h_z = V_z x, and o(z) the other side of its head,
//
//     S_z = sum_j h_z(x_j) phi_z(x_j)^T      s_z(x) = P_z phi_z(x),   P_z = c S_o(z)
//
// so that `W_e|X = c S_k^T` and `W_r|X = c S_q^T`. Positive features divide by the same sum with ones
// in place of h_z: S_z then has a further row, and c cancels. Two sweeps over the tiles, one for
// the sums and one for the scores; the way back has two as well.
#pragma once

#include "pass.h"

namespace primal {

template <class Feature>
struct Tied : Pass {
  static constexpr bool positive = Feature::positive;
  int64_t rows, size;  // of S_z, and all its numbers

  // parts of `saved`
  struct Saved {
    float *features, *inverse, *sums, *energy;
    Saved(const Tied& t, float* at) {
      features = at, at += t.positions.padded * (t.inner + t.scores);
      inverse = at, at += t.positions.padded * t.sides;
      sums = at, at += round_up(t.c.batch * t.sides * t.size, 16);
      energy = at, at += t.c.batch * t.scores;
    }
  };

  explicit Tied(const Call& call)
      : Pass(call), rows(c.rank + positive), size(rows * c.head_dim) {}

  int64_t saved_size() const {
    return positions.padded * (inner + scores + sides) + round_up(c.batch * sides * size, 16) +
           c.batch * scores;
  }

  int64_t other(int64_t z) const { return (z + c.heads) % sides; }
  Block features_of(const Saved& saved, const Tile& tile) const {
    return {saved.features + tile.at * (inner + scores), (inner + scores) * PANEL};
  }
  Block inverse_of(const Saved& saved, const Tile& tile) const {
    return {saved.inverse + tile.at * sides, sides * PANEL};
  }

  // c of a sample for the cosine; for positive features, what brings the sums to size 1.
  float scale_of(int64_t sample, const float* sums) const {
    if (!positive) return 1.0f / static_cast<float>(std::max<int64_t>(1, positions.valid[sample]));
    float most = 0.0f;
    for (int64_t k = 0; k < c.head_dim; k++) {
      float value = sums[c.rank * c.head_dim + k];
      if (value > most || value != value) most = value;
    }
    return most <= SMALLEST_SUM ? 0.0f : 1.0f / most;
  }

  // P_z of a sample, packed for `project`.
  void pack_weights(const float* sums, int64_t sample, float* out) const {
    Buffer scaled(size);
    for (int64_t z = 0; z < sides; z++) {
      const float* from = sums + (sample * sides + other(z)) * size;
      float scale = scale_of(sample, from);
      for (int64_t k = 0; k < size; k++) scaled[k] = scale * from[k];
      pack_rows(scaled, c.head_dim, 1, rows, c.head_dim, out + (sample * sides + z) * size);
    }
  }

  void forward() {
    cut(size * sides);
    Buffer own(c.saved ? 0 : saved_size());
    Saved saved(*this, c.saved ? c.saved : own);
    Buffer w_in(inner * c.width), w_dual(scores * c.width), weights(c.batch * sides * size);
    pack_rows(c.w_in, c.width, 1, inner, c.width, w_in);
    pack_rows(c.w_dual, c.width, 1, scores, c.width, w_dual);
    Buffer part_sums = zeros(positions.slots * sides * size);
    Buffer part_energy = zeros(positions.slots * scores);
    std::vector<Worker> workers = this->workers(rows, 0);

    for_tiles([&](const Tile& tile, int64_t chunk, int64_t worker) {
      float* sums = part_sums + positions.chunks[chunk].slot_of(tile.sample) * sides * size;
      sum_tile(saved, tile, w_in, w_dual, workers[worker], sums);
    });
    for (int64_t b = 0; b < c.batch; b++) {
      total(part_sums, b, sides * size, saved.sums + b * sides * size);
      pack_weights(saved.sums, b, weights);
    }

    OutputMap map(c);
    Buffer w_out(scores * columns);
    pack_columns([&](int64_t k) { return map.weight + k * columns; }, scores, columns, w_out);
    for_tiles([&](const Tile& tile, int64_t chunk, int64_t worker) {
      Worker& w = workers[worker];
      Block score = w.scores.block(scores);
      score_tile(saved, tile, weights, w, score,
                 part_energy + positions.chunks[chunk].slot_of(tile.sample) * scores);
      emit(tile, score, w_out, map.bias, w);
    });
    clear_ignored(c.out, c.type, c.width, c.ignore, c.batch * c.length);
    for (int64_t b = 0; b < c.batch; b++) {
      total(part_energy, b, scores, saved.energy + b * scores);
      if (c.terms) energy_terms(b, saved.energy + b * scores), trace(saved.sums, b);
    }
  }

  // Features and dual variables of a tile, and what they add to the sums.
  void sum_tile(const Saved& saved, const Tile& tile, const float* w_in, const float* w_dual,
                Worker& w, float* sums) {
    int64_t panels = tile.panels(), p = c.head_dim, s = c.rank;
    Block phi = features_of(saved, tile), dual = phi.rows_from(inner);
    Block inverse = inverse_of(saved, tile);
    queries_and_keys(tile, w_in, w, phi);
    project<Start::zero>(w_dual, scores, c.width, w.turned.block(columns), dual, panels);
    for (int64_t z = 0; z < sides; z++, sums += size) {
      Block q = phi.rows_from(z * p), h = dual.rows_from(z * s), inv = inverse.rows_from(z);
      Feature::forward(q, p, tile.count, inv);
      if (positive)
        add_row_sums(q, p, panels, sums + s * p);
      else
        normalise(h, inv, h, s, panels, nullptr);
      add_inner(h, s, q, p, panels, sums);
    }
  }

  // Scores of a tile; writes 1 / D of positive features. energy: (2h, s), or nullptr.
  void score_tile(const Saved& saved, const Tile& tile, const float* weights, Worker& w, Block to,
                  float* energy) {
    int64_t panels = tile.panels();
    Block found = w.found.block(rows);
    for (int64_t z = 0; z < sides; z++) {
      Block q = features_of(saved, tile).rows_from(z * c.head_dim);
      Block inverse = inverse_of(saved, tile).rows_from(z);
      const float* packed = weights + (tile.sample * sides + z) * size;
      project<Start::zero>(packed, rows, c.head_dim, q, found, panels);
      if (positive && energy) invert(found.rows_from(c.rank), inverse, panels);
      normalise(found, inverse, to.rows_from(z * c.rank), c.rank, panels,
                energy ? energy + z * c.rank : nullptr);
    }
  }

  static void add_row_sums(Block from, int64_t width, int64_t panels, float* to) {
    for (int64_t k = 0; k < width; k++) {
      vec sum{};
      for (int64_t i = 0; i < panels; i++)
        sum += load(from.panel(i) + k * PANEL) + load(from.panel(i) + k * PANEL + WIDTH);
      to[k] += sum_of_lanes(sum);
    }
  }

  // 1 / D, zero where D is next to nothing; NaN stays.
  static void invert(Block from, Block to, int64_t panels) {
    for (int64_t i = 0; i < panels; i++)
      for (int half = 0; half < PANEL; half += WIDTH) {
        vec value = load(from.panel(i) + half), least = all(1e-30f);
        store(to.panel(i) + half, value < least ? vec{} : 1.0f / value);
      }
  }

  // Tr(W_e^T W_r) of every head.
  void trace(const float* sums, int64_t sample) const {
    float scale = 1.0f / static_cast<float>(std::max<int64_t>(1, positions.valid[sample]));
    for (int64_t i = 0; i < c.heads; i++) {
      const float *a = sums + (sample * sides + i) * size, *b = a + c.heads * size;
      float sum = 0.0f;
      for (int64_t k = 0; k < c.rank * c.head_dim; k++) sum += (scale * a[k]) * (scale * b[k]);
      c.terms[(2 * c.batch + sample) * c.heads + i] = sum;
    }
  }

  // -- the way back ------------------------------------------------------------------------------

  void backward() {
    // the sums of a chunk: d_w_in and d_w_dual, d_w_out, d_b_out, d_b_in
    int64_t n_in = (inner + scores) * columns, n_out = scores * columns;
    int64_t n_all = round_up(n_in + n_out + columns + inner, 16);
    cut(n_all);
    Saved saved(*this, c.saved);
    OutputMap map(c);
    Buffer weights(c.batch * sides * size), turned_weights(c.batch * sides * size);
    for (int64_t b = 0; b < c.batch; b++) pack_weights(saved.sums, b, weights);
    Buffer w_out(scores * c.width);
    pack_rows(map.weight, columns, 1, scores, c.width, w_out);
    Buffer sums = zeros(positions.chunks.size() * n_all);
    int64_t du_rows = sides * rows;
    Buffer du_all(positions.padded * du_rows), dots_all(positive ? 0 : positions.padded * sides);
    Buffer parts = zeros(positions.slots * sides * size);
    std::vector<Worker> workers = this->workers(rows, inner + scores);
    auto du_of = [&](const Tile& tile) {
      return Block{du_all + tile.at * du_rows, du_rows * PANEL};
    };
    auto dots_of = [&](const Tile& tile) {
      return Block{positive ? nullptr : dots_all + tile.at * sides, sides * PANEL};
    };

    // Back through the scores: the gradient of P is complete only after all tiles.
    for_tiles([&](const Tile& tile, int64_t chunk, int64_t worker) {
      Worker& w = workers[worker];
      float* own = sums + chunk * n_all;
      int64_t panels = tile.panels();
      Block score = w.scores.block(scores);
      score_tile(saved, tile, weights, w, score, nullptr);
      Block ds = emit_backward(tile, score, w_out, own + n_in, own + n_in + n_out, w);
      energy_factors(tile.sample, w.factors);
      float* part = parts + positions.chunks[chunk].slot_of(tile.sample) * sides * size;
      for (int64_t z = 0; z < sides; z++) {
        Block du = du_of(tile).rows_from(z * rows);
        scores_backward(ds.rows_from(z * c.rank), score.rows_from(z * c.rank),
                        inverse_of(saved, tile).rows_from(z), w.factors + z * c.rank, c.rank,
                        panels, positive, du, dots_of(tile).rows_from(z));
        Block q = features_of(saved, tile).rows_from(z * c.head_dim);
        add_inner(du, rows, q, c.head_dim, panels, part + z * size);
      }
    });

    // dS, packed in both ways
    Buffer d_sums(c.batch * sides * size), turned_sums(c.batch * sides * size), d_ones(
        c.batch * sides * c.head_dim);
    for (int64_t b = 0; b < c.batch; b++) sums_backward(saved, parts, b, d_sums, turned_sums, d_ones,
                                                         turned_weights);

    // Back through the sums: `h phi^T` gives dphi = dS^T h and dh = dS phi.
    Buffer w_in((inner + scores) * columns);
    pack_columns(
        [&](int64_t k) { return k < inner ? c.w_in + k * c.width : c.w_dual + (k - inner) * c.width; },
        inner + scores, c.width, w_in);
    for_tiles([&](const Tile& tile, int64_t chunk, int64_t worker) {
      Worker& w = workers[worker];
      float* own = sums + chunk * n_all;
      int64_t panels = tile.panels(), p = c.head_dim, s = c.rank;
      Block gradient = w.gradients.block(inner + scores);
      for (int64_t z = 0; z < sides; z++) {
        Block q = features_of(saved, tile).rows_from(z * p);
        Block h = features_of(saved, tile).rows_from(inner + z * s);
        Block inverse = inverse_of(saved, tile).rows_from(z), dot = dots_of(tile).rows_from(z);
        Block dq = gradient.rows_from(z * p), dh = gradient.rows_from(inner + z * s);
        int64_t side = tile.sample * sides + z;
        project<Start::zero>(d_sums + side * size, s, p, q, dh, panels);
        if (positive) {
          project<Start::bias>(turned_sums + side * size, p, s, h, dq, panels, d_ones + side * p);
        } else {
          dual_backward(dh, h, inverse, s, panels, dot, w.dots.block(1));
          project<Start::zero>(turned_sums + side * size, p, s, h, dq, panels);
        }
        project<Start::sum>(turned_weights + side * size, p, rows,
                            du_of(tile).rows_from(z * rows), dq, panels);
        Feature::backward(dq, q, p, panels, inverse, w.dots.block(1),
                          own + n_in + n_out + columns + z * p);
      }
      maps_backward(tile, gradient, inner + scores, w_in, own, w);
    });
    if (c.d_x) clear_ignored(c.d_x, c.type, c.width, c.ignore, c.batch * c.length);

    total_of_chunks(sums, n_all);
    for (int64_t k = 0; k < inner; k++)
      std::copy_n(sums + k * columns, c.width, c.d_w_in + k * c.width);
    for (int64_t k = 0; k < scores; k++)
      std::copy_n(sums + (inner + k) * columns, c.width, c.d_w_dual + k * c.width);
    if (c.d_b_in) std::copy_n(sums + n_in + n_out + columns, inner, c.d_b_in);
    map.backward(c, sums + n_in, sums + n_in + n_out);
    std::fill_n(c.d_root, c.heads * c.rank, 0.0f);
    for (int64_t b = 0; b < c.batch; b++) energy_roots(b, saved.energy + b * scores);
  }

  // The gradient of S_z of a sample: that of P_o(z), and that of the trace.
  void sums_backward(const Saved& saved, const float* parts, int64_t sample, float* packed,
                     float* turned, float* ones, float* turned_weights) const {
    int64_t p = c.head_dim;
    Buffer own(sides * size), scaled(size);
    total(parts, sample, sides * size, own);
    float mean = 1.0f / static_cast<float>(std::max<int64_t>(1, positions.valid[sample]));
    for (int64_t z = 0; z < sides; z++) {
      const float* mine = saved.sums + (sample * sides + z) * size;
      const float* theirs = saved.sums + (sample * sides + other(z)) * size;
      int64_t side = sample * sides + z;
      float scale = scale_of(sample, theirs);  // P_z = scale S_o(z)
      for (int64_t k = 0; k < size; k++) scaled[k] = scale * theirs[k];
      pack_rows(scaled, 1, p, p, rows, turned_weights + side * size);
      scale = scale_of(sample, mine);  // P_o(z) = scale S_z
      float g = c.g_terms ? c.g_terms[(2 * c.batch + sample) * c.heads + z % c.heads] : 0.0f;
      for (int64_t k = 0; k < size; k++) scaled[k] = scale * own[other(z) * size + k];
      for (int64_t k = 0; k < c.rank * p; k++) scaled[k] += g * mean * (mean * theirs[k]);
      pack_rows(scaled, p, 1, c.rank, p, packed + side * size);
      pack_rows(scaled, 1, p, p, c.rank, turned + side * size);
      if (positive) std::copy_n(scaled + c.rank * p, p, ones + side * p);
    }
  }

  // Back through `h / |q|`, with the gradient in place: dh, and `total = dot + <dh |q|, h / |q|>`.
  static void dual_backward(Block g, Block h, Block inverse, int64_t rank, int64_t panels,
                            Block dot, Block total) {
    for (int64_t i = 0; i < panels; i++)
      for (int half = 0; half < PANEL; half += WIDTH) {
        vec sum = load(dot.panel(i) + half), scale = load(inverse.panel(i) + half);
        for (int64_t a = 0; a < rank; a++) {
          float* at = g.panel(i) + a * PANEL + half;
          vec value = load(at);
          sum += value * load(h.panel(i) + a * PANEL + half);
          store(at, value * scale);
        }
        store(total.panel(i) + half, sum);
      }
  }
};

}  // namespace primal
