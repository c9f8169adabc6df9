// What all passes over a batch share: sizes, tiles, the forward and backward steps at the scores.
#pragma once

#include "call.h"
#include "feature_maps.h"
#include "output.h"

namespace primal {

// Positions of a tile: what a tile needs at a time stays in the second cache. A short sequence of
// wide rows is worth two threads, hence two tiles.
inline int64_t tile_size(const Call& c) {
  if (c.causal) return 32;  // within a tile all pairs of positions are treated
  if (c.width <= 128) return 192;
  return c.batch * c.length <= 128 ? 64 : 128;
}

constexpr int64_t CHUNKS = 16;  // at most, so at most so many threads help

// to (columns) += the sum of the rows of a packed tile.
PRIMAL_INLINE void add_column_sums(const float* packed, int64_t positions, int64_t columns,
                                   float* to) {
  for (int64_t first = 0; first < columns; first += PANEL) {
    vec left = load(to + first), right = load(to + first + WIDTH);
    for (int64_t m = 0; m < positions; m++, packed += PANEL)
      left += load(packed), right += load(packed + WIDTH);
    store(to + first, left), store(to + first + WIDTH, right);
  }
}

// Numbers that start at zero.
inline Buffer zeros(int64_t count) {
  Buffer made(count);
  std::fill_n(static_cast<float*>(made), count, 0.0f);
  return made;
}

struct Pass {
  const Call& c;
  int64_t sides, inner, scores, columns;  // 2h, 2 h p, 2 h s, d filled up to a multiple of PANEL
  Positions positions;
  int64_t threads;

  explicit Pass(const Call& call)
      : c(call), sides(2 * c.heads), inner(sides * c.head_dim), scores(sides * c.rank),
        columns(round_up(c.width, PANEL)),
        positions(c.batch, c.length, c.ignore, tile_size(c)) {
    int64_t work = positions.padded * c.width * (inner + 2 * scores);
    threads = work < PARALLEL ? 1 : std::max<int64_t>(1, std::min(c.threads, CHUNKS));
  }

  // About one chunk for each `numbers` that are kept for the way back: chunks have sums of their
  // own, which must not need much more memory than that. A power of two, so that threads have
  // equal shares.
  void cut(int64_t numbers) {
    int64_t kept = positions.padded * (inner + scores), count = 2;
    while (count < CHUNKS && 3 * count * numbers <= 2 * kept) count *= 2;
    positions.cut(count);
  }

  // What one thread works with; `found` and `gradients` have so many channels.
  struct Worker {
    Rows rows;
    Buffer turned, packed, found, scores, used, d_scores, gradients, dots, factor, factors, matrix,
        scratch, out, mixed;
    Worker(const Pass& pass, int64_t most, int64_t found_rows, int64_t gradient_rows,
           int64_t scratch_size)
        : rows(pass.c.width, most), turned(most * pass.columns), packed(most * pass.columns),
          found(most * found_rows), scores(most * pass.scores),
          used(pass.c.keep ? most * pass.scores : 0), d_scores(most * pass.scores),
          gradients(most * gradient_rows), dots(most), factor(most), factors(pass.scores),
          matrix(round_up(pass.c.head_dim, WIDTH) * round_up(found_rows, WIDTH)),
          scratch(scratch_size), out(most * pass.columns),
          mixed(folds(pass.c) ? 0 : most * pass.c.heads * pass.c.head_dim) {}
  };

  std::vector<Worker> workers(int64_t found_rows, int64_t gradient_rows,
                              int64_t scratch_size = 0) const {
    std::vector<Worker> made;
    for (int64_t i = 0; i < threads; i++)
      made.emplace_back(*this, positions.longest * PANEL, found_rows, gradient_rows, scratch_size);
    return made;
  }

  // f(tile, chunk, worker) for all tiles, in order within a chunk.
  template <class F>
  void for_tiles(F&& f) {
    parallel(positions.chunks.size(), threads, [&](int64_t i, int64_t worker) {
      const Chunk& chunk = positions.chunks[i];
      for (int64_t t = chunk.first_tile; t < chunk.last_tile; t++)
        f(positions.tiles[t], i, worker);
    });
  }

  int64_t number_of(const Tile& tile) const { return &tile - positions.tiles.data(); }

  // total (count numbers) = the sum, in the order of chunks, of what they have for a sample.
  void total(const float* parts, int64_t sample, int64_t count, float* out) const {
    std::fill_n(out, count, 0.0f);
    for (const Chunk& chunk : positions.chunks)
      if (chunk.first_sample <= sample && sample <= chunk.last_sample) {
        const float* part = parts + chunk.slot_of(sample) * count;
        for (int64_t i = 0; i < count; i++) out[i] += part[i];
      }
  }

  // Memory for the sums of chunks, `count` numbers each. The first tile of a chunk writes those of
  // matrices, and clears the others, from `rest` on (`begin_sums`).
  Buffer sums_of_chunks(int64_t count) const {
    return positions.chunks.empty() ? zeros(count) : Buffer(positions.chunks.size() * count);
  }
  bool begins(const Tile& tile, int64_t chunk) const {
    return number_of(tile) == positions.chunks[chunk].first_tile;
  }
  float* begin_sums(float* sums, int64_t count, int64_t rest, int64_t chunk,
                    const Tile& tile) const {
    float* own = sums + chunk * count;
    if (begins(tile, chunk)) std::fill(own + rest, own + count, 0.0f);
    return own;
  }

  // to (rows, width) = the total over chunks of the rows (columns) at `sums`, those of a chunk
  // `count` numbers after those of the one before it.
  void total_of_chunks(const float* sums, int64_t count, int64_t rows, int64_t columns,
                       int64_t width, float* to) const {
    constexpr int64_t TOGETHER = 16;
    int64_t tasks = (rows + TOGETHER - 1) / TOGETHER;
    parallel(tasks, threads, [&](int64_t task, int64_t) {
      for (int64_t row = task * TOGETHER; row < std::min(rows, (task + 1) * TOGETHER); row++) {
        const float* from = sums + row * columns;
        float* out = to + row * width;
        std::copy_n(from, width, out);
        for (size_t i = 1; i < positions.chunks.size(); i++)
          for (int64_t k = 0; k < width; k++) out[k] += from[i * count + k];
      }
    });
  }

  // Factors of the squared scores in the loss: `2 g lambda^2` for (side, direction) of a sample.
  void energy_factors(int64_t sample, float* out) const {
    for (int64_t z = 0; z < sides; z++) {
      int64_t head = z % c.heads;
      float g = c.g_terms ? c.g_terms[(z / c.heads * c.batch + sample) * c.heads + head] : 0.0f;
      for (int64_t a = 0; a < c.rank; a++) {
        float root = c.root[head * c.rank + a];
        out[z * c.rank + a] = 2.0f * g * root * root;
      }
    }
  }

  // The first two terms of J from the sums of squared scores (2h, s) of a sample.
  void energy_terms(int64_t sample, const float* energy) const {
    for (int64_t z = 0; z < sides; z++) {
      int64_t head = z % c.heads;
      float sum = 0.0f;
      for (int64_t a = 0; a < c.rank; a++) {
        float root = c.root[head * c.rank + a];
        sum += root * root * energy[z * c.rank + a];
      }
      c.terms[(z / c.heads * c.batch + sample) * c.heads + head] = sum;
    }
  }

  // d_root += the part of a sample.
  void energy_roots(int64_t sample, const float* energy) const {
    for (int64_t z = 0; c.g_terms && z < sides; z++) {
      int64_t head = z % c.heads;
      float g = c.g_terms[(z / c.heads * c.batch + sample) * c.heads + head];
      for (int64_t a = 0; a < c.rank; a++) {
        int64_t at = head * c.rank + a;
        c.d_root[at] += 2.0f * c.root[at] * g * energy[z * c.rank + a];
      }
    }
  }

  // scores (s rows) = found times a factor of each position; adds their squares to energy (s).
  static void normalise(Block found, Block factor, Block to, int64_t rank, int64_t panels,
                        float* energy) {
    for (int64_t a = 0; a < rank; a++) {
      vec sum{};
      for (int64_t i = 0; i < panels; i++)
        for (int half = 0; half < PANEL; half += WIDTH) {
          vec score = load(found.panel(i) + a * PANEL + half) * load(factor.panel(i) + half);
          store(to.panel(i) + a * PANEL + half, score);
          sum += score * score;
        }
      if (energy) energy[a] += sum_of_lanes(sum);
    }
  }

  // x^T of a tile, in `w.turned`.
  Block turned_rows(const Tile& tile, Worker& w) const {
    Block x = w.turned.block(columns);
    w.rows.gather(c.x, c.type, positions, tile);
    w.rows.transpose(tile.panels(), x);
    return x;
  }

  // Queries and keys from x^T, before the feature map.
  void queries_and_keys(Block x, int64_t panels, const float* w_in, Block to) const {
    if (c.b_in)
      project<Start::bias>(w_in, inner, c.width, x, to, panels, c.b_in);
    else
      project<Start::zero>(w_in, inner, c.width, x, to, panels);
  }

  // The output rows of a tile; w_out^T (d, inputs) packed by rows.
  void emit(const Tile& tile, Block score, const OutputMap& map, const float* w_out,
            Worker& w) const {
    if (c.keep) drop(score, w.used.block(scores), tile), score = w.used.block(scores);
    Block made = w.turned.block(columns), in = map.inputs_of(score, tile.panels(), w.mixed);
    project<Start::bias>(w_out, c.width, map.inputs, in, made, tile.panels(), map.bias);
    rows_of(made, c.width, tile.panels(), w.out, columns);
    scatter(w.out, columns, c.width, c.out, c.type, positions, tile);
  }

  // Back through the output rows: the gradient of the scores, in `w.d_scores`, without that of
  // their squares. w_out (inputs, d) packed by rows. Adds to the sums of the map, whose matrix may
  // be `fresh`.
  Block emit_backward(const Tile& tile, Block score, const OutputMap& map, const float* w_out,
                      float* sums, bool fresh, Worker& w) const {
    Block g = w.turned.block(columns), found = w.d_scores.block(scores), used = score;
    int64_t panels = tile.panels();
    float* d_bias = sums + map.matrix_size();
    w.rows.gather(c.g, c.type, positions, tile);
    w.rows.transpose(panels, g);
    pack_columns(w.rows, tile.count, c.width, w.packed);
    add_column_sums(w.packed, tile.count, columns, d_bias);
    if (c.keep) used = w.used.block(scores), drop(score, used, tile);
    Block in = map.inputs_of(used, panels, w.mixed);
    add_outer(in, map.inputs, w.packed, tile.count, columns, sums, fresh);
    Block d_in = map.folded ? found : in;
    project<Start::zero>(w_out, map.inputs, c.width, g, d_in, panels);
    if (!map.folded) map.concat->backward(used, d_in, found, panels, d_bias + columns);
    if (c.keep) drop(found, found, tile);
    return found;
  }

  // Back through linear maps of x, W^T packed by rows, from the gradients (rows) of what they made:
  // adds to that of the maps, d_w (rows, columns), unless that is `fresh`, and writes that of x after
  // `mend` has changed it in `w.out`.
  template <class F>
  void maps_backward(const Tile& tile, Block gradients, int64_t rows, const float* maps, float* d_w,
                     bool fresh, Worker& w, F&& mend) const {
    w.rows.gather(c.x, c.type, positions, tile);
    pack_columns(w.rows, tile.count, c.width, w.packed);
    add_outer(gradients, rows, w.packed, tile.count, columns, d_w, fresh);
    if (!c.d_x) return;
    Block made = w.turned.block(columns);
    project<Start::zero>(maps, c.width, rows, gradients, made, tile.panels());
    rows_of(made, c.width, tile.panels(), w.out, columns);
    mend();
    scatter(w.out, columns, c.width, c.d_x, c.type, positions, tile);
  }

  // to = from with the dropped scores of a tile zeroed and the others scaled; may be in place.
  void drop(Block from, Block to, const Tile& tile) const {
    const uint8_t* keep = c.keep + tile.at * scores;
    float scale = static_cast<float>(c.keep_scale);
    for (int64_t i = 0; i < tile.panels(); i++)
      for (int64_t k = 0; k < scores * PANEL; k++)
        to.panel(i)[k] = *keep++ ? from.panel(i)[k] * scale : 0.0f;
  }

  // Back through the scores of a side: `ds + factors * s`, then `du = ds * factor` into `to`, and
  // `dot = <ds, s>`. With a normaliser, one more row: the gradient `-dot * factor` of D.
  static void scores_backward(Block g, Block score, Block factor, const float* factors,
                              int64_t rank, int64_t panels, bool positive, Block to, Block dot) {
    for (int64_t i = 0; i < panels; i++)
      for (int half = 0; half < PANEL; half += WIDTH) {
        const float *ds = g.panel(i) + half, *s = score.panel(i) + half;
        float* du = to.panel(i) + half;
        vec sum{}, scale = load(factor.panel(i) + half);
        for (int64_t a = 0; a < rank; a++) {
          vec value = load(s + a * PANEL);
          vec gradient = load(ds + a * PANEL) + factors[a] * value;
          sum += gradient * value;
          store(du + a * PANEL, gradient * scale);
        }
        if (positive)
          store(du + rank * PANEL, -sum * scale);
        else
          store(dot.panel(i) + half, sum);
      }
  }
};

}  // namespace primal
