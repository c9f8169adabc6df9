// Causal tied weights within a tile. With the kernel `K[j][i] = <phi_o(x_j), phi_z(x_i)>` for j <= i,
//
//     s_z(x_i) += sum_j h_o(x_j) K[j][i]      D_z(x_i) += sum_j K[j][i]
//
// A kernel is a block with the positions j as its channels.
#pragma once

#include "pass.h"

namespace primal {

template <class Feature>
struct Within {
  static constexpr bool positive = Feature::positive;
  int64_t width, rank, rows, most;  // p, s, s (+ 1), positions of a tile

  Within(const Pass& pass, int64_t all_rows)
      : width(pass.c.head_dim), rank(pass.c.rank), rows(all_rows), most(tile_size(pass.c)) {}

  // Numbers of scratch memory.
  int64_t size() const { return most * (2 * most + std::max(step(width), step(rows))); }

  // found (rows) += the part of the tile itself. phi: of this side; key, dual: of the other.
  void forward(const Tile& tile, Block phi, Block key, Block dual, Block found,
               float* scratch) const {
    int64_t panels = tile.panels(), stride = step(rows);
    Block kernel = block(scratch);
    float* by_position = scratch + most * most;
    make_kernel(phi, key, width, panels, kernel);
    for (int64_t i = 0; positive && i < panels; i++)
      add_channels(kernel.panel(i), (i + 1) * PANEL, found.panel(i) + rank * PANEL);
    rows_of(dual, rank, panels, by_position, stride);
    // a later NaN or infinity must not reach earlier positions as 0 * NaN or 0 * inf; later ones
    // get it from the kernel
    for (int64_t i = 0; i < panels * PANEL * stride; i++)
      if (!(by_position[i] - by_position[i] == 0.0f)) by_position[i] = 0.0f;
    add_earlier(by_position, stride, rank, panels, kernel, found);
  }

  // From du (rows), the gradient of `found`: adds to those of phi, key and dual.
  void backward(const Tile& tile, Block phi, Block key, Block dual, Block du, Block d_phi,
                Block d_key, Block d_dual, float* scratch) const {
    int64_t panels = tile.panels();
    Block kernel = block(scratch), turned = block(scratch + most * most);
    float* by_position = scratch + 2 * most * most;
    int64_t stride = std::max(step(width), step(rows));

    make_kernel(phi, key, width, panels, kernel);
    turn_kernel(kernel, panels, turned);
    rows_of(du, rank, panels, by_position, stride);
    add_later(by_position, stride, rank, panels, turned, d_dual);

    make_kernel(du, dual, rank, panels, kernel, positive ? rank : -1);  // dK
    turn_kernel(kernel, panels, turned);
    rows_of(key, width, panels, by_position, stride);
    add_earlier(by_position, stride, width, panels, kernel, d_phi);
    rows_of(phi, width, panels, by_position, stride);
    add_later(by_position, stride, width, panels, turned, d_key);
  }

 private:
  static int64_t step(int64_t count) { return round_up(count, WIDTH); }
  Block block(float* data) const { return {data, most * PANEL}; }

  // kernel (j, i) = <right(j), left(i)> over some channels, zero where j > i within a panel; later
  // panels of j are not written. Plus, for all j, row `extra` of left.
  void make_kernel(Block left, Block right, int64_t channels, int64_t panels, Block kernel,
                   int64_t extra = -1) const {
    for (int64_t j = 0; j < panels; j++)
      project_columns<Start::zero>(right.panel(j), PANEL, PANEL, channels, left.panels_from(j),
                                   kernel.rows_from(j * PANEL).panels_from(j), panels - j);
    for (int64_t i = 0; i < panels; i++) {
      float* panel = kernel.panel(i);
      for (int64_t j = 0; extra >= 0 && j < (i + 1) * PANEL; j++)
        for (int half = 0; half < PANEL; half += WIDTH) {
          float* at = panel + j * PANEL + half;
          store(at, load(at) + load(left.panel(i) + extra * PANEL + half));
        }
      for (int64_t j = 0; j < PANEL; j++)
        std::memset(panel + (i * PANEL + j) * PANEL, 0, j * sizeof(float));
    }
  }

  // to(i) += sum over j <= i of K[j][i] rows(j), with rows that lie one after the other.
  static void add_earlier(const float* rows, int64_t stride, int64_t channels, int64_t panels,
                          Block kernel, Block to) {
    for (int64_t i = 0; i < panels; i++)
      project_columns<Start::sum>(rows, stride, channels, (i + 1) * PANEL, kernel.panels_from(i),
                                  to.panels_from(i), 1);
  }

  // to(j) += sum over i >= j of K[j][i] rows(i); the kernel is turned.
  static void add_later(const float* rows, int64_t stride, int64_t channels, int64_t panels,
                        Block turned, Block to) {
    for (int64_t j = 0; j < panels; j++)
      project_columns<Start::sum>(rows + j * PANEL * stride, stride, channels,
                                  (panels - j) * PANEL,
                                  turned.rows_from(j * PANEL).panels_from(j), to.panels_from(j), 1);
  }

  // to (PANEL) += the sum over channels of a panel.
  static void add_channels(const float* panel, int64_t channels, float* to) {
    for (int half = 0; half < PANEL; half += WIDTH) {
      vec sum = load(to + half);
      for (int64_t j = 0; j < channels; j++) sum += load(panel + j * PANEL + half);
      store(to + half, sum);
    }
  }

  static void turn_kernel(Block from, int64_t panels, Block to) {
    for (int64_t i = 0; i < panels; i++)
      for (int64_t j = 0; j <= i; j++)
        turn(from.panel(i) + j * PANEL * PANEL, PANEL, PANEL, PANEL,
             to.panel(j) + i * PANEL * PANEL, PANEL);
  }
};

}  // namespace primal
