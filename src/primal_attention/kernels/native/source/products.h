// Matrix products in registers.
//
// A *block* holds `rows` channels of the positions of a tile, in panels of PANEL positions:
// channel c of position m is at ((m / PANEL) * rows + c) * PANEL + m % PANEL. Products read and
// write panels from one end to the other, whatever the number of channels.
#pragma once

#include <algorithm>

#include "parallel.h"
#include "vectors.h"

namespace primal {

constexpr int64_t round_up(int64_t n, int64_t k) { return (n + k - 1) / k * k; }

// A block, or some neighbouring channels of one.
struct Block {
  float* data;
  int64_t stride;  // from a panel to the next

  Block rows_from(int64_t row) const { return {data + row * PANEL, stride}; }
  Block panels_from(int64_t i) const { return {data + i * stride, stride}; }
  float* panel(int64_t i) const { return data + i * stride; }
  float* at(int64_t row, int64_t position) const {
    return panel(position / PANEL) + row * PANEL + position % PANEL;
  }
};

// Rows are treated `most` at a time or fewer, in groups of nearly equal size.
struct Groups {
  int64_t count, small, larger;
  Groups(int64_t rows, int64_t most) : count((rows + most - 1) / most), small(0), larger(0) {
    if (count) small = rows / count, larger = rows % count;
  }
  int size(int64_t i) const { return static_cast<int>(small + (i < larger)); }
  int64_t first(int64_t i) const { return i * small + (i < larger ? i : larger); }
};

// Call f with a constant that equals n, 1 <= n <= most.
template <int most, class F>
PRIMAL_INLINE void with_constant(int n, F&& f) {
  if constexpr (most > 1)
    if (n < most) return with_constant<most - 1>(n, f);
  f(std::integral_constant<int, most>{});
}

// -- block = matrix block --------------------------------------------------------------------------

// A matrix with any strides.
struct Matrix {
  const float* data;
  int64_t by_row, by_column;
  float operator()(int64_t row, int64_t k) const { return data[row * by_row + k * by_column]; }
};

// `at(row, k)` for k < inner, groups of rows together, for `project`.
template <class At>
static void pack_rows(const At& at, int64_t rows, int64_t inner, float* out, int64_t threads = 1) {
  Groups groups(rows, ROWS);
  parallel(groups.count, threads, [&](int64_t i, int64_t) {
    int64_t first = groups.first(i);
    with_constant<ROWS>(groups.size(i), [&](auto n) {
      float* to = out + first * inner;
      for (int64_t k = 0; k < inner; k++)
        for (int j = 0; j < n; j++) *to++ = at(first + j, k);
    });
  });
}

// The same where the rows of a k lie one after another, from `column(k)` on.
template <class Column>
static void pack_columns_as_rows(const Column& column, int64_t rows, int64_t inner, float* out,
                                 int64_t threads) {
  Groups groups(rows, ROWS);
  parallel(groups.count, threads, [&](int64_t i, int64_t) {
    int64_t first = groups.first(i);
    with_constant<ROWS>(groups.size(i), [&](auto n) {
      float* to = out + first * inner;
      for (int64_t k = 0; k < inner; k++, to += n) std::copy_n(column(k) + first, int{n}, to);
    });
  });
}

enum class Start { zero, bias, sum };

template <int rows, Start start>
PRIMAL_INLINE void project_panel(const float* matrix, int64_t step, const float* from,
                                 int64_t inner, float* to, const float* bias) {
  vec sum[rows][2];
  for (int i = 0; i < rows; i++) {
    if (start == Start::sum)
      sum[i][0] = load(to + i * PANEL), sum[i][1] = load(to + i * PANEL + WIDTH);
    else
      sum[i][0] = sum[i][1] = start == Start::bias ? all(bias[i]) : vec{};
  }
  for (int64_t k = 0; k < inner; k++, matrix += step, from += PANEL) {
    vec left = load(from), right = load(from + WIDTH);
    for (int i = 0; i < rows; i++) {
      vec a = all(matrix[i]);
      sum[i][0] += a * left, sum[i][1] += a * right;
    }
  }
  for (int i = 0; i < rows; i++)
    store(to + i * PANEL, sum[i][0]), store(to + i * PANEL + WIDTH, sum[i][1]);
}

// to (rows) = matrix (rows, inner) from (inner), plus a bias for each row or plus what is there.
template <Start start>
static void project(const float* packed, int64_t rows, int64_t inner, Block from, Block to,
                    int64_t panels, const float* bias = nullptr) {
  Groups groups(rows, ROWS);
  for (int64_t i = 0; i < groups.count; i++) {
    int size = groups.size(i);
    with_constant<ROWS>(size, [&](auto n) {
      for (int64_t j = 0; j < panels; j++)
        project_panel<n, start>(packed, n, from.panel(j), inner, to.panel(j), bias);
    });
    packed += size * inner, to = to.rows_from(size);
    if (start == Start::bias) bias += size;
  }
}

// The same with a matrix that lies column by column, `step` apart.
template <Start start>
static void project_columns(const float* matrix, int64_t step, int64_t rows, int64_t inner,
                            Block from, Block to, int64_t panels, const float* bias = nullptr) {
  Groups groups(rows, ROWS);
  for (int64_t i = 0; i < groups.count; i++) {
    int size = groups.size(i);
    with_constant<ROWS>(size, [&](auto n) {
      for (int64_t j = 0; j < panels; j++)
        project_panel<n, start>(matrix, step, from.panel(j), inner, to.panel(j), bias);
    });
    matrix += size, to = to.rows_from(size);
    if (start == Start::bias) bias += size;
  }
}

// to[column][row] = from[row][column], rows apart by the strides. Reads and writes whole vectors of
// columns; fills up the rows of `to` with zeros to whole vectors.
static void turn(const float* from, int64_t from_stride, int64_t rows, int64_t columns, float* to,
                 int64_t to_stride) {
  for (int64_t i = 0; i < rows; i += WIDTH)
    for (int64_t k = 0; k < columns; k += WIDTH) {
      vec lane[WIDTH];
      for (int j = 0; j < WIDTH; j++)
        lane[j] = i + j < rows ? load(from + (i + j) * from_stride + k) : vec{};
      transpose_lanes(lane);
      for (int j = 0; j < WIDTH; j++) store(to + (k + j) * to_stride + i, lane[j]);
    }
}

// to (positions, stride) = a block of `channels`, filled up to whole vectors.
static void rows_of(Block from, int64_t channels, int64_t panels, float* to, int64_t stride) {
  for (int64_t i = 0; i < panels; i++)
    turn(from.panel(i), PANEL, channels, PANEL, to + i * PANEL * stride, stride);
}

// The same for any number of columns: nothing beyond them is read or written.
static void transpose(const float* from, int64_t from_stride, int64_t rows, int64_t columns,
                      float* to, int64_t to_stride) {
  int64_t whole_rows = rows / WIDTH * WIDTH, whole_columns = columns / WIDTH * WIDTH;
  turn(from, from_stride, whole_rows, whole_columns, to, to_stride);
  for (int64_t i = 0; i < rows; i++)
    for (int64_t k = i < whole_rows ? whole_columns : 0; k < columns; k++)
      to[k * to_stride + i] = from[i * from_stride + k];
}

// -- matrix += block rows --------------------------------------------------------------------------

// `row(k)` for k < inner, each of `columns` floats (and a multiple of PANEL in the result), in
// panels of columns: for `add_outer`.
template <class Row>
static void pack_columns(const Row& row, int64_t inner, int64_t columns, float* out) {
  for (int64_t first = 0; first < columns; first += PANEL)
    for (int64_t k = 0; k < inner; k++, out += PANEL) {
      const float* from = row(k) + first;
      if (columns - first >= PANEL) {
        store(out, load(from)), store(out + WIDTH, load(from + WIDTH));
      } else {
        for (int j = 0; j < PANEL; j++) out[j] = first + j < columns ? from[j] : 0.0f;
      }
    }
}

template <int rows>
PRIMAL_INLINE void add_outer_panel(Block from, int64_t positions, const float* packed, float* to,
                                   int64_t columns, bool fresh) {
  vec sum[rows][2] = {};
  for (int i = 0; i < rows && !fresh; i++)
    sum[i][0] = load(to + i * columns), sum[i][1] = load(to + i * columns + WIDTH);
  for (int64_t m = 0; m < positions; m += PANEL) {
    const float* in = from.panel(m / PANEL);
    int64_t here = positions - m < PANEL ? positions - m : PANEL;
    for (int64_t j = 0; j < here; j++, packed += PANEL) {
      vec left = load(packed), right = load(packed + WIDTH);
      for (int i = 0; i < rows; i++) {
        vec a = all(in[i * PANEL + j]);
        sum[i][0] += a * left, sum[i][1] += a * right;
      }
    }
  }
  for (int i = 0; i < rows; i++)
    store(to + i * columns, sum[i][0]), store(to + i * columns + WIDTH, sum[i][1]);
}

// to (rows, columns) += from (rows, positions) x (positions, columns), x packed by columns; `fresh`
// memory holds nothing yet.
static void add_outer(Block from, int64_t rows, const float* packed, int64_t positions,
                      int64_t columns, float* to, bool fresh = false) {
  Groups groups(rows, ROWS);
  for (int64_t i = 0; i < groups.count; i++) {
    int size = groups.size(i);
    with_constant<ROWS>(size, [&](auto n) {
      for (int64_t first = 0; first < columns; first += PANEL)
        add_outer_panel<n>(from, positions, packed + first * positions, to + first, columns, fresh);
    });
    from = from.rows_from(size), to += size * columns;
  }
}

// -- matrix += block block^T -----------------------------------------------------------------------

template <int a_rows, int b_rows>
PRIMAL_INLINE void add_inner_part(Block a, Block b, int64_t panels, float* to, int64_t columns) {
  vec sum[a_rows][b_rows] = {};
  for (int64_t i = 0; i < panels; i++)
    for (int half = 0; half < 2; half++) {
      vec left[a_rows];
      for (int j = 0; j < a_rows; j++) left[j] = load(a.panel(i) + j * PANEL + half * WIDTH);
      for (int k = 0; k < b_rows; k++) {
        vec right = load(b.panel(i) + k * PANEL + half * WIDTH);
        for (int j = 0; j < a_rows; j++) sum[j][k] += left[j] * right;
      }
    }
  for (int j = 0; j < a_rows; j++, to += columns) {
    if constexpr (b_rows == 4) {
      quad sums = sums_of_lanes(sum[j][0], sum[j][1], sum[j][2], sum[j][3]);
      for (int k = 0; k < 4; k++) to[k] += sums[k];
    } else {
      for (int k = 0; k < b_rows; k++) to[k] += sum_of_lanes(sum[j][k]);
    }
  }
}

// to (a_rows, b_rows) += a b^T over all positions, those that fill up the last panel included.
static void add_inner(Block a, int64_t a_rows, Block b, int64_t b_rows, int64_t panels, float* to) {
  Groups groups(a_rows, INNER_ROWS);
  for (int64_t i = 0; i < groups.count; i++) {
    int size = groups.size(i);
    with_constant<INNER_ROWS>(size, [&](auto n) {
      for (int64_t k = 0; k < b_rows; k += 4)
        with_constant<4>(b_rows - k < 4 ? static_cast<int>(b_rows - k) : 4, [&](auto columns) {
          add_inner_part<n, columns>(a, b.rows_from(k), panels, to + k, b_rows);
        });
    });
    a = a.rows_from(size), to += size * b_rows;
  }
}

// to (rows) += the sums of a block over all positions.
static void add_row_sums(Block from, int64_t rows, int64_t panels, float* to) {
  for (int64_t k = 0; k < rows; k++) {
    vec sum{};
    for (int64_t i = 0; i < panels; i++)
      sum += load(from.panel(i) + k * PANEL) + load(from.panel(i) + k * PANEL + WIDTH);
    to[k] += sum_of_lanes(sum);
  }
}

}  // namespace primal
