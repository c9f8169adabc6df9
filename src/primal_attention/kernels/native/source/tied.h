// Tied weights: the KKT conditions (14) as parameterisation. For side z with features phi_z and
// dual variables h_z = V_z x, and o(z) the other side of its head,
//
//     S_z = sum_j h_z(x_j) phi_z(x_j)^T      s_z(x) = P_z phi_z(x),   P_z = c S_o(z)
//
// so that `W_e|X = c S_k^T` and `W_r|X = c S_q^T`. Positive features divide by the same sum with
// ones in place of h_z: S_z then has a further row, and c cancels. They are made of the unit rows
// `x f`, f = 1 / rms(x), while h_z is linear in x. Two sweeps over the tiles, one
// for the sums and one for the scores; the way back has two as well.
//
// In a causal layer the sums run over j <= i. P_z of a tile then holds what came before it, and
// `within.h` adds the positions of the tile itself.
#pragma once

#include "within.h"

namespace primal {

template <class Feature>
struct Tied : Pass {
  static constexpr bool positive = Feature::positive;
  int64_t rows, size;  // of S_z, and all its numbers
  int64_t states;      // sets of P: one for each sample, or for each tile of a causal layer
  int64_t channels;    // of the features that are kept, with or without dual variables
  Within<Feature> within;

  // parts of `saved`
  struct Saved {
    float *features, *inverse, *factor, *scores, *sums, *weights, *energy;
    Saved(const Tied& t, float* at) {
      features = at, at += t.positions.padded * t.channels;
      inverse = at, at += t.positions.padded * t.sides;
      factor = at, at += positive ? t.positions.padded : 0;  // f
      scores = at, at += t.c.causal ? t.positions.padded * t.scores : 0;
      sums = at, at += t.c.batch * t.sides * t.size;     // S_z at the end
      weights = at, at += t.states * t.sides * t.size;   // P_z
      energy = at;
    }
  };

  explicit Tied(const Call& call)
      : Pass(call), rows(c.rank + positive), size(rows * c.head_dim),
        states(c.causal ? positions.tiles.size() : c.batch), channels(inner + scores),
        within(*this, rows) {}

  int64_t saved_size() const {
    int64_t all_channels = channels + sides + positive + (c.causal ? scores : 0);
    // whole vectors are read at the end of the weights
    return positions.padded * all_channels + (c.batch + states) * sides * size + c.batch * scores +
           WIDTH;
  }

  int64_t other(int64_t z) const { return (z + c.heads) % sides; }
  Block features_of(const Saved& saved, const Tile& tile) const {
    return {saved.features + tile.at * channels, channels * PANEL};
  }
  Block inverse_of(const Saved& saved, const Tile& tile) const {
    return {saved.inverse + tile.at * sides, sides * PANEL};
  }
  Block factor_of_rows(const Saved& saved, const Tile& tile) const {
    return {saved.factor + tile.at, PANEL};
  }
  int64_t state_of(const Tile& tile) const { return c.causal ? number_of(tile) : tile.sample; }
  float* weights_of(const Saved& saved, const Tile& tile) const {
    return saved.weights + state_of(tile) * sides * size;
  }

  // c of a sample.
  float mean_of(int64_t sample) const {
    int64_t count = positions.valid[sample] + (c.seen ? c.seen[sample] : 0);
    return 1.0f / static_cast<float>(std::max<int64_t>(1, count));
  }

  // The factor of S_z in P_o(z): c for the cosine, what brings positive features to size 1, and 1
  // in causal layers, where c belongs to the position.
  float scale_of(int64_t sample, const float* sums) const {
    if (c.causal) return 1.0f;
    if (!positive) return mean_of(sample);
    float most = 0.0f;
    for (int64_t k = 0; k < c.head_dim; k++) {
      float value = sums[c.rank * c.head_dim + k];
      if (value > most || value != value) most = value;
    }
    return most <= SMALLEST_SUM ? 0.0f : 1.0f / most;
  }

  // -- forward -----------------------------------------------------------------------------------

  void forward() {
    cut(size * sides);
    if (!c.saved && !c.causal) channels = inner;  // the sums need dual variables, the scores not
    Buffer own(c.saved ? 0 : saved_size());
    Saved saved(*this, c.saved ? c.saved : own);
    Buffer w_in(inner * c.width), w_dual(scores * c.width);
    pack_rows(Matrix{c.w_in, c.width, 1}, inner, c.width, w_in, threads);
    pack_rows(Matrix{c.w_dual, c.width, 1}, scores, c.width, w_dual, threads);
    Buffer parts = zeros(c.causal ? 0 : positions.slots * sides * size);
    Buffer part_energy = zeros(positions.slots * scores);
    std::vector<Worker> workers = this->workers(rows, 0, c.causal ? within.size() : 0);

    for_tiles([&](const Tile& tile, int64_t chunk, int64_t worker) {
      float* sums = parts + positions.chunks[chunk].slot_of(tile.sample) * sides * size;
      if (c.causal) {
        sums = weights_of(saved, tile);
        std::fill_n(sums, sides * size, 0.0f);
      }
      sum_tile(saved, tile, w_in, w_dual, workers[worker], sums);
    });
    if (c.causal)
      sums_before(saved);
    else
      sums_of_samples(saved, parts);

    OutputMap map(c, threads);
    Buffer w_out = map.packed_columns();
    for_tiles([&](const Tile& tile, int64_t chunk, int64_t worker) {
      Worker& w = workers[worker];
      Block score = scores_of(saved, tile, w);
      score_tile(saved, tile, w, score,
                 part_energy + positions.chunks[chunk].slot_of(tile.sample) * scores);
      emit(tile, score, map, w_out, w);
    });
    clear_ignored(c.out, c.type, c.width, c.ignore, c.batch * c.length);
    for (int64_t b = 0; b < c.batch; b++) {
      total(part_energy, b, scores, saved.energy + b * scores);
      if (c.terms) energy_terms(b, saved.energy + b * scores), trace(saved.sums, b);
    }
  }

  // Scores are kept in causal layers, where they cost more, and made again in others.
  Block scores_of(const Saved& saved, const Tile& tile, const Worker& w) const {
    if (!c.causal) return w.scores.block(scores);
    return {saved.scores + tile.at * scores, scores * PANEL};
  }

  // Features and dual variables of a tile, and what they add to the sums.
  void sum_tile(const Saved& saved, const Tile& tile, const float* w_in, const float* w_dual,
                Worker& w, float* sums) const {
    int64_t panels = tile.panels(), p = c.head_dim, s = c.rank;
    Block phi = features_of(saved, tile);
    Block dual = channels > inner ? phi.rows_from(inner) : w.d_scores.block(scores);
    Block inverse = inverse_of(saved, tile), x = turned_rows(tile, w);
    project<Start::zero>(w_dual, scores, c.width, x, dual, panels);
    if (positive) make_unit_rows(x, c.width, panels, factor_of_rows(saved, tile));
    queries_and_keys(x, panels, w_in, phi);
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

  // S_z and P_z of every sample.
  void sums_of_samples(const Saved& saved, const float* parts) const {
    for (int64_t b = 0; b < c.batch; b++) {
      float *sums = saved.sums + b * sides * size, *weights = saved.weights + b * sides * size;
      total(parts, b, sides * size, sums);
      for (int64_t z = 0; z < sides; z++) {
        const float* from = sums + other(z) * size;
        float scale = scale_of(b, from);
        for (int64_t k = 0; k < size; k++) weights[z * size + k] = scale * from[k];
      }
    }
  }

  // From the sums of every tile, in the place of its P_z, to those of what came before it.
  void sums_before(const Saved& saved) const {
    int64_t count = sides * size, half = c.heads * size;
    for (int64_t b = 0; b < c.batch; b++)
      for (int64_t i = 0; i < count; i++) {
        int64_t z = i / size, a = i % size / c.head_dim, k = i % c.head_dim;
        int64_t at = ((b * sides + z) * c.head_dim + k) * rows + a;
        saved.sums[b * count + i] = c.before ? c.before[at] : 0.0f;
      }
    Buffer own(count);
    for (const Tile& tile : positions.tiles) {
      float *sums = saved.sums + tile.sample * count, *here = weights_of(saved, tile);
      std::copy_n(here, count, static_cast<float*>(own));
      std::copy_n(sums, half, here + half);
      std::copy_n(sums + half, half, here);
      for (int64_t i = 0; i < count; i++) sums[i] += own[i];
    }
    for (int64_t b = 0; c.after && b < c.batch; b++)
      for (int64_t z = 0; z < sides; z++)
        for (int64_t k = 0; k < c.head_dim; k++)
          for (int64_t a = 0; a < rows; a++)
            c.after[((b * sides + z) * c.head_dim + k) * rows + a] =
                saved.sums[(b * sides + z) * size + a * c.head_dim + k];
  }

  // Scores of a tile and 1 / D of positive features; adds the squares to energy (2h, s).
  void score_tile(const Saved& saved, const Tile& tile, Worker& w, Block to, float* energy) const {
    int64_t panels = tile.panels();
    Block found = w.found.block(rows);
    for (int64_t z = 0; z < sides; z++) {
      Block q = features_of(saved, tile).rows_from(z * c.head_dim);
      Block inverse = inverse_of(saved, tile).rows_from(z);
      project_weights(saved, tile, z, rows, w, found);
      if (c.causal) {
        Block features = features_of(saved, tile);
        within.forward(tile, q, features.rows_from(other(z) * c.head_dim),
                       features.rows_from(inner + other(z) * c.rank), found, w.scratch);
      }
      if (positive) invert(found.rows_from(c.rank), inverse, panels);
      normalise(found, factor_of(tile, inverse, w), to.rows_from(z * c.rank), c.rank, panels,
                energy + z * c.rank);
    }
  }

  // to = the first rows of P_z times the features.
  void project_weights(const Saved& saved, const Tile& tile, int64_t z, int64_t count, Worker& w,
                       Block to) const {
    int64_t p = c.head_dim, step = round_up(rows, WIDTH);
    turn(weights_of(saved, tile) + z * size, p, rows, p, w.matrix, step);
    Block q = features_of(saved, tile).rows_from(z * p);
    project_columns<Start::zero>(w.matrix, step, count, p, q, to, tile.panels());
  }

  // What multiplies the scores of every position: 1 / D or 1 / |q|, in causal layers with c.
  Block factor_of(const Tile& tile, Block inverse, Worker& w) const {
    if (positive || !c.causal) return inverse;
    Block to = w.factor.block(1);
    int64_t before = tile.first + (c.seen ? c.seen[tile.sample] : 0);
    for (int64_t i = 0; i < tile.panels() * PANEL; i++)
      *to.at(0, i) = *inverse.at(0, i) / static_cast<float>(before + i + 1);
    return to;
  }

  // 1 / D, zero where D is next to nothing; NaN stays.
  void invert(Block from, Block to, int64_t panels) const {
    vec least = all(c.causal ? SMALLEST_SUM : 1e-30f);
    for (int64_t i = 0; i < panels; i++)
      for (int half = 0; half < PANEL; half += WIDTH) {
        vec value = load(from.panel(i) + half);
        store(to.panel(i) + half, value < least ? vec{} : 1.0f / value);
      }
  }

  // Tr(W_e^T W_r) of every head.
  void trace(const float* sums, int64_t sample) const {
    float scale = mean_of(sample);
    for (int64_t i = 0; i < c.heads; i++) {
      const float *a = sums + (sample * sides + i) * size, *b = a + c.heads * size;
      float sum = 0.0f;
      for (int64_t k = 0; k < c.rank * c.head_dim; k++) sum += (scale * a[k]) * (scale * b[k]);
      c.terms[(2 * c.batch + sample) * c.heads + i] = sum;
    }
  }

  // -- the way back ------------------------------------------------------------------------------

  void backward() {
    OutputMap map(c, threads);
    // the sums of a chunk: d_w_in and d_w_dual, those of the output map, d_b_in
    int64_t n_in = (inner + scores) * columns, n_out = map.size(), rest = n_in + map.matrix_size();
    int64_t n_all = round_up(n_in + n_out + inner, 16);
    cut(n_all);
    Saved saved(*this, c.saved);
    Buffer w_out = map.packed_rows(), sums = sums_of_chunks(n_all);
    int64_t du_rows = sides * rows;
    Buffer du_all(positions.padded * du_rows), dots_all(positive ? 0 : positions.padded * sides);
    Buffer parts = zeros((c.causal ? states : positions.slots) * sides * size);
    std::vector<Worker> workers = this->workers(rows, inner + scores, c.causal ? within.size() : 0);
    auto du_of = [&](const Tile& tile) {
      return Block{du_all + tile.at * du_rows, du_rows * PANEL};
    };
    auto dots_of = [&](const Tile& tile) {
      return Block{positive ? nullptr : dots_all + tile.at * sides, sides * PANEL};
    };

    // Back through the scores: the gradient of P is complete only after all tiles.
    for_tiles([&](const Tile& tile, int64_t chunk, int64_t worker) {
      Worker& w = workers[worker];
      float* own = begin_sums(sums, n_all, rest, chunk, tile);
      int64_t panels = tile.panels();
      Block score = scores_of(saved, tile, w);
      if (!c.causal) scores_again(saved, tile, w, score);
      Block ds = emit_backward(tile, score, map, w_out, own + n_in, begins(tile, chunk), w);
      energy_factors(tile.sample, w.factors);
      int64_t slot = c.causal ? number_of(tile) : positions.chunks[chunk].slot_of(tile.sample);
      for (int64_t z = 0; z < sides; z++) {
        Block du = du_of(tile).rows_from(z * rows);
        Block factor = factor_of(tile, inverse_of(saved, tile).rows_from(z), w);
        scores_backward(ds.rows_from(z * c.rank), score.rows_from(z * c.rank), factor,
                        w.factors + z * c.rank, c.rank, panels, positive, du,
                        dots_of(tile).rows_from(z));
        Block q = features_of(saved, tile).rows_from(z * c.head_dim);
        add_inner(du, rows, q, c.head_dim, panels, parts + (slot * sides + z) * size);
      }
    });

    Buffer own_sums(c.causal ? 0 : c.batch * sides * size);  // dS_z
    float* d_sums = c.causal ? parts : own_sums;
    if (c.causal)
      sums_after(saved, parts);
    else
      for (int64_t b = 0; b < c.batch; b++) sums_backward(saved, parts, b, own_sums);

    // Back through the sums: `h phi^T` gives dphi = dS^T h and dh = dS phi.
    Buffer w_in((inner + scores) * c.width);
    auto column = [&](int64_t k) {
      return k < inner ? c.w_in + k * c.width : c.w_dual + (k - inner) * c.width;
    };
    pack_columns_as_rows(column, c.width, inner + scores, w_in, threads);
    for_tiles([&](const Tile& tile, int64_t chunk, int64_t worker) {
      Worker& w = workers[worker];
      float* own = sums + chunk * n_all;
      int64_t panels = tile.panels(), p = c.head_dim, s = c.rank, step = round_up(rows, WIDTH);
      Block gradient = w.gradients.block(inner + scores), features = features_of(saved, tile);
      for (int64_t z = 0; z < sides; z++) {
        Block q = features.rows_from(z * p), h = features.rows_from(inner + z * s);
        Block dq = gradient.rows_from(z * p), dh = gradient.rows_from(inner + z * s);
        const float* d_sum = d_sums + (state_of(tile) * sides + z) * size;
        turn(d_sum, p, rows, p, w.matrix, step);
        project_columns<Start::zero>(w.matrix, step, s, p, q, dh, panels);
        if (positive)
          project_columns<Start::bias>(d_sum, p, p, s, h, dq, panels, d_sum + s * p);
        else
          project_columns<Start::zero>(d_sum, p, p, s, h, dq, panels);
        project_columns<Start::sum>(weights_of(saved, tile) + z * size, p, p, rows,
                                    du_of(tile).rows_from(z * rows), dq, panels);
      }
      for (int64_t z = 0; c.causal && z < sides; z++) {
        int64_t o = other(z);
        within.backward(tile, features.rows_from(z * p), features.rows_from(o * p),
                        features.rows_from(inner + o * s), du_of(tile).rows_from(z * rows),
                        gradient.rows_from(z * p), gradient.rows_from(o * p),
                        gradient.rows_from(inner + o * s), w.scratch);
      }
      for (int64_t z = 0; z < sides; z++) {
        Block inverse = inverse_of(saved, tile).rows_from(z);
        if (!positive)
          dual_backward(gradient.rows_from(inner + z * s), features.rows_from(inner + z * s),
                        inverse, s, panels, dots_of(tile).rows_from(z), w.dots.block(1));
        Feature::backward(gradient.rows_from(z * p), features.rows_from(z * p), p, panels,
                          positive ? factor_of_rows(saved, tile) : inverse, w.dots.block(1),
                          own + n_in + n_out + z * p);
      }
      maps_backward(tile, gradient, inner + scores, w_in, own, begins(tile, chunk), w, [&] {
        if (positive)
          unit_rows_backward(tile, features.rows_from(inner), gradient.rows_from(inner),
                             factor_of_rows(saved, tile), w);
      });
    });
    if (c.d_x) clear_ignored(c.d_x, c.type, c.width, c.ignore, c.batch * c.length);

    int64_t n_qk = inner * columns;
    total_of_chunks(sums, n_all, inner, columns, c.width, c.d_w_in);
    total_of_chunks(sums + n_qk, n_all, scores, columns, c.width, c.d_w_dual);
    total_of_chunks(sums + n_in, n_all, map.inputs, columns, columns, sums + n_in);
    total_of_chunks(sums + rest, n_all, 1, 0, n_all - rest, sums + rest);
    if (c.d_b_in) std::copy_n(sums + n_in + n_out, inner, c.d_b_in);
    map.backward(sums + n_in);
    std::fill_n(c.d_root, c.heads * c.rank, 0.0f);
    for (int64_t b = 0; b < c.batch; b++) energy_roots(b, saved.energy + b * scores);
  }

  // The scores of a tile once more, with the factors that the forward pass has found.
  void scores_again(const Saved& saved, const Tile& tile, Worker& w, Block to) const {
    for (int64_t z = 0; z < sides; z++) {
      Block own = to.rows_from(z * c.rank);
      project_weights(saved, tile, z, c.rank, w, own);
      normalise(own, inverse_of(saved, tile).rows_from(z), own, c.rank, tile.panels(), nullptr);
    }
  }

  // dS_z of a sample from the trace in J: `g c^2 S_o(z)`, added to the first rows of `to`.
  void add_trace(const Saved& saved, int64_t sample, int64_t z, float* to) const {
    if (!c.g_terms) return;
    float mean = mean_of(sample);
    float g = c.g_terms[(2 * c.batch + sample) * c.heads + z % c.heads] * mean;
    const float* theirs = saved.sums + (sample * sides + other(z)) * size;
    for (int64_t k = 0; k < c.rank * c.head_dim; k++) to[k] += g * (mean * theirs[k]);
  }

  // dS_z of a sample: that of P_o(z) in all its tiles, and that of the trace.
  void sums_backward(const Saved& saved, const float* parts, int64_t sample, float* out) const {
    Buffer own(sides * size);
    total(parts, sample, sides * size, own);
    for (int64_t z = 0; z < sides; z++) {
      float* to = out + (sample * sides + z) * size;
      float scale = scale_of(sample, saved.sums + (sample * sides + z) * size);
      for (int64_t k = 0; k < size; k++) to[k] = scale * own[other(z) * size + k];
      add_trace(saved, sample, z, to);
    }
  }

  // From dP_z of every tile to dS_z: the sum over later tiles of dP_o(z), and that of the trace.
  void sums_after(const Saved& saved, float* parts) const {
    int64_t count = sides * size, half = c.heads * size;
    Buffer running = zeros(c.batch * count), own(count);
    for (int64_t b = 0; b < c.batch; b++)
      for (int64_t z = 0; z < sides; z++)
        add_trace(saved, b, z, running + b * count + z * size);
    for (int64_t t = static_cast<int64_t>(positions.tiles.size()) - 1; t >= 0; t--) {
      float *sum = running + positions.tiles[t].sample * count, *here = parts + t * count;
      std::copy_n(here, count, static_cast<float*>(own));
      std::copy_n(sum, count, here);
      for (int64_t i = 0; i < half; i++) sum[i] += own[half + i], sum[half + i] += own[i];
    }
  }

  // Back through `x f`: of the gradient g of x in `w.out`, what came through the features counts
  // only across x. It is along x by `<g, x> - <dh, h>`.
  void unit_rows_backward(const Tile& tile, Block h, Block dh, Block factor, Worker& w) const {
    Block along = w.dots.block(1);
    for (int64_t i = 0; i < tile.panels(); i++)
      for (int half = 0; half < PANEL; half += WIDTH) {
        vec sum{};
        for (int64_t a = 0; a < scores; a++)
          sum += load(h.panel(i) + a * PANEL + half) * load(dh.panel(i) + a * PANEL + half);
        store(along.panel(i) + half, sum);
      }
    for (int64_t i = 0; i < tile.count; i++) {
      const float* x = w.rows(i);
      float *g = w.out + i * columns, f = *factor.at(0, i);
      vec sum{};
      for (int64_t k = 0; k < c.width; k += WIDTH) sum += load(g + k) * load(x + k);
      float share = (sum_of_lanes(sum) - *along.at(0, i)) * f * f / static_cast<float>(c.width);
      for (int64_t k = 0; k < c.width; k += WIDTH) store(g + k, load(g + k) - share * load(x + k));
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
