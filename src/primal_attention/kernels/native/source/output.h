// The linear map from scores to the output: W_c and the output projection in one, and back.
#pragma once

#include "call.h"

namespace primal {

template <int rows>
PRIMAL_INLINE void multiply_panel(const float* a, int64_t a_row, int64_t a_inner, const float* b,
                                  int64_t b_row, int64_t inner, float* to, int64_t to_row) {
  vec sum[rows][2];
  for (int i = 0; i < rows; i++)
    sum[i][0] = load(to + i * to_row), sum[i][1] = load(to + i * to_row + WIDTH);
  for (int64_t k = 0; k < inner; k++, a += a_inner, b += b_row) {
    vec left = load(b), right = load(b + WIDTH);
    for (int i = 0; i < rows; i++) {
      vec factor = all(a[i * a_row]);
      sum[i][0] += factor * left, sum[i][1] += factor * right;
    }
  }
  for (int i = 0; i < rows; i++)
    store(to + i * to_row, sum[i][0]), store(to + i * to_row + WIDTH, sum[i][1]);
}

// to (rows, columns) += a (rows, inner) b (inner, columns); rows of b and `to` are apart by a stride,
// and columns are a multiple of PANEL.
static void multiply(const float* a, int64_t a_row, int64_t a_inner, const float* b, int64_t b_row,
                     int64_t rows, int64_t inner, int64_t columns, float* to, int64_t to_row) {
  Groups groups(rows, ROWS);
  for (int64_t i = 0; i < groups.count; i++) {
    int size = groups.size(i);
    with_constant<ROWS>(size, [&](auto n) {
      for (int64_t j = 0; j < columns; j += PANEL)
        multiply_panel<n>(a, a_row, a_inner, b + j, b_row, inner, to + j, to_row);
    });
    a += size * a_row, to += size * to_row;
  }
}

struct OutputMap {
  int64_t width, heads, head_dim, rank, scores, columns;
  Buffer weight;  // (2 h s, columns), columns = d filled up to a multiple of PANEL
  Buffer bias;    // (columns)
  Buffer turned;  // (h p, columns): the output projection, transposed

  explicit OutputMap(const Call& c)
      : width(c.width), heads(c.heads), head_dim(c.head_dim), rank(c.rank),
        scores(2 * c.heads * c.rank), columns(round_up(c.width, PANEL)),
        weight(scores * columns), bias(columns), turned(heads * head_dim * columns) {
    int64_t inner = heads * head_dim;
    std::fill_n(static_cast<float*>(weight), scores * columns, 0.0f);
    std::fill_n(static_cast<float*>(bias), columns, 0.0f);
    std::fill_n(static_cast<float*>(turned), inner * columns, 0.0f);
    transpose(c.out_w, inner, width, inner, turned, columns);
    for (int64_t z = 0; z < 2 * heads; z++)
      multiply(c.concat_w + z / heads * rank, 1, 2 * rank, head(z % heads), columns, rank, head_dim,
               columns, side(weight, z), columns);
    if (c.out_b) std::copy_n(c.out_b, width, static_cast<float*>(bias));
    for (int64_t k = 0; c.concat_b && k < inner; k++)
      for (int64_t o = 0; o < width; o++)
        bias[o] += turned[k * columns + o] * c.concat_b[k % head_dim];
  }

  float* head(int64_t i) const { return turned + i * head_dim * columns; }
  float* side(float* matrix, int64_t z) const { return matrix + z * rank * columns; }

  // From the gradients of weight and bias to those of the parameters.
  void backward(const Call& c, float* d_weight, const float* d_bias) const {
    int64_t inner = heads * head_dim;
    std::fill_n(c.d_concat_w, head_dim * 2 * rank, 0.0f);
    Buffer d_turned(inner * columns);
    std::fill_n(static_cast<float*>(d_turned), inner * columns, 0.0f);
    if (c.d_out_b) std::copy_n(d_bias, width, c.d_out_b);
    if (c.d_concat_b) std::fill_n(c.d_concat_b, head_dim, 0.0f);
    for (int64_t z = 0; z < 2 * heads; z++) {
      multiply(c.concat_w + z / heads * rank, 2 * rank, 1, side(d_weight, z), columns, head_dim,
               rank, columns, d_turned + z % heads * head_dim * columns, columns);
      for (int64_t k = 0; k < head_dim; k++)
        add_dots(side(d_weight, z), head(z % heads) + k * columns,
                 c.d_concat_w + k * 2 * rank + z / heads * rank);
    }
    for (int64_t k = 0; k < inner; k++) {
      if (c.concat_b)
        for (int64_t o = 0; o < width; o++)
          d_turned[k * columns + o] += c.concat_b[k % head_dim] * d_bias[o];
      if (c.d_concat_b) c.d_concat_b[k % head_dim] += dot(turned + k * columns, d_bias);
    }
    transpose(d_turned, columns, inner, width, c.d_out_w, inner);
  }

 private:
  // to (s) += the products of the rows of a matrix with b.
  void add_dots(const float* matrix, const float* b, float* to) const {
    for (int64_t a = 0; a < rank; a += 4)
      with_constant<4>(static_cast<int>(std::min<int64_t>(4, rank - a)), [&](auto n) {
        vec sum[n] = {};
        for (int64_t i = 0; i < columns; i += WIDTH) {
          vec value = load(b + i);
          for (int j = 0; j < n; j++) sum[j] += value * load(matrix + (a + j) * columns + i);
        }
        for (int j = 0; j < n; j++) to[a + j] += sum_of_lanes(sum[j]);
      });
  }

  float dot(const float* a, const float* b) const {
    vec sum{};
    for (int64_t i = 0; i < columns; i += WIDTH) sum += load(a + i) * load(b + i);
    return sum_of_lanes(sum);
  }
};

}  // namespace primal
