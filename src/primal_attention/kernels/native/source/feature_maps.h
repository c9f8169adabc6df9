// Feature maps phi of Remark 4.1 on one side of a tile: p channels of queries or keys.
//
// The cosine keeps q itself and 1 / |q|: scores have fewer channels than q and are divided
// instead. A positive map replaces q by phi(q) and keeps 1 / D, the inverse of the normaliser.
#pragma once

#include "products.h"

namespace primal {

constexpr float SMALLEST_SQUARE = 1e-24f;  // a shorter row has no direction worth the name
constexpr float SMALLEST_SUM = 1e-19f;     // below, nothing was summed or all features underflow

// Zero the last positions of rows that fill up the last panel.
PRIMAL_INLINE void clear_rest(Block block, int64_t rows, int64_t positions) {
  int64_t rest = positions % PANEL;
  if (!rest) return;
  float* last = block.panel(positions / PANEL);
  for (int64_t i = 0; i < rows; i++)
    std::memset(last + i * PANEL + rest, 0, (PANEL - rest) * sizeof(float));
}

struct Cosine {
  static constexpr bool positive = false;

  // inverse (1 row) = 1 / |q|, zero where q is, and beyond the last position.
  static void forward(Block q, int64_t width, int64_t positions, Block inverse) {
    for (int64_t m = 0; m < positions; m += PANEL)
      for (int half = 0; half < PANEL; half += WIDTH) {
        const float* in = q.panel(m / PANEL) + half;
        vec square{};
        for (int64_t k = 0; k < width; k++) {
          vec value = load(in + k * PANEL);
          square += value * value;
        }
        vec usable = square > SMALLEST_SQUARE ? square : all(1.0f);
        vec found = 1.0f / square_root(usable);
        store(inverse.panel(m / PANEL) + half, square > SMALLEST_SQUARE ? found : vec{});
      }
    clear_rest(inverse, 1, positions);
  }

  // dq = g - (dot / |q|^2) q, in place of g, the gradient without that of the norm. Adds the sums
  // over positions to `sums`.
  static void backward(Block g, Block q, int64_t width, int64_t panels, Block inverse, Block dot,
                       float* sums) {
    for (int64_t k = 0; k < width; k++) {
      vec sum{};
      for (int64_t i = 0; i < panels; i++)
        for (int half = 0; half < PANEL; half += WIDTH) {
          vec inv = load(inverse.panel(i) + half), along = load(dot.panel(i) + half);
          float* at = g.panel(i) + k * PANEL + half;
          vec value = load(at) - along * inv * inv * load(q.panel(i) + k * PANEL + half);
          store(at, value);
          sum += value;
        }
      sums[k] += sum_of_lanes(sum);
    }
  }
};

// x = x / rms(x) in place, and the factor (1 row); both zero where x is.
PRIMAL_INLINE void make_unit_rows(Block x, int64_t width, int64_t panels, Block factor) {
  for (int64_t i = 0; i < panels; i++)
    for (int half = 0; half < PANEL; half += WIDTH) {
      float* at = x.panel(i) + half;
      vec square{};
      for (int64_t k = 0; k < width; k++) {
        vec value = load(at + k * PANEL);
        square += value * value;
      }
      vec usable = square > SMALLEST_SQUARE ? square : all(1.0f);
      vec found = square_root(static_cast<float>(width) / usable);
      found = square > SMALLEST_SQUARE ? found : vec{};
      store(factor.panel(i) + half, found);
      for (int64_t k = 0; k < width; k++) store(at + k * PANEL, load(at + k * PANEL) * found);
    }
}

// phi(u) = (elu(u) + 1)^power, for power 1 or 2; the sharpness is part of the projection. u is made
// from the unit row `x f`, where f = 1 / rms(x).
template <int power>
struct Elu {
  static constexpr bool positive = true;

  // phi in place of u, zero beyond the last position.
  static void forward(Block u, int64_t width, int64_t positions, Block) {
    for (int64_t m = 0; m < positions; m += PANEL) {
      float* panel = u.panel(m / PANEL);
      for (int64_t i = 0; i < width * PANEL; i += WIDTH) {
        vec value = load(panel + i), none{};
        vec base = value > none ? value + 1.0f : exp_negative(value > none ? none : value);
        store(panel + i, power == 2 ? base * base : base);
      }
    }
    clear_rest(u, width, positions);
  }

  // du f, in place of g, where du = g phi'(u), whose sums over positions are added to `sums`. phi
  // tells on which side of zero u was.
  static void backward(Block g, Block phi, int64_t width, int64_t panels, Block factor, Block,
                       float* sums) {
    for (int64_t k = 0; k < width; k++) {
      vec sum{};
      for (int64_t i = 0; i < panels; i++)
        for (int half = 0; half < PANEL; half += WIDTH) {
          vec value = load(phi.panel(i) + k * PANEL + half), one = all(1.0f);
          vec slope;
          if (power == 2)
            slope = 2.0f * (value > one ? square_root(value) : value);
          else
            slope = value > one ? one : value;
          float* at = g.panel(i) + k * PANEL + half;
          vec found = load(at) * slope;
          store(at, found * load(factor.panel(i) + half));
          sum += found;
        }
      sums[k] += sum_of_lanes(sum);
    }
  }
};

}  // namespace primal
