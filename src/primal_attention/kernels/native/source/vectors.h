// Vectors of the widest kind that the target has, by compiler extensions: no intrinsics.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>

#define PRIMAL_INLINE static inline __attribute__((always_inline))

namespace primal {

// WIDTH: floats in a vector. ROWS x 2 and INNER_ROWS x 4 accumulators fit the registers.
#if defined(__AVX512F__)
constexpr int WIDTH = 16, ROWS = 12, INNER_ROWS = 6;
#elif defined(__AVX2__)
constexpr int WIDTH = 8, ROWS = 6, INNER_ROWS = 3;
#else
constexpr int WIDTH = 4, ROWS = 12, INNER_ROWS = 6;
#endif
constexpr int PANEL = 2 * WIDTH;  // neighbours that a product treats together

typedef float vec __attribute__((vector_size(4 * WIDTH)));
typedef int32_t ivec __attribute__((vector_size(4 * WIDTH)));
typedef float quad __attribute__((vector_size(16)));
typedef float loose_vec __attribute__((vector_size(4 * WIDTH), aligned(4), may_alias));

PRIMAL_INLINE vec load(const float* from) { return *reinterpret_cast<const loose_vec*>(from); }
PRIMAL_INLINE void store(float* to, vec v) { *reinterpret_cast<loose_vec*>(to) = v; }
PRIMAL_INLINE vec all(float a) { return a - vec{}; }

// -- lanes ----------------------------------------------------------------------------------------

using Lanes = std::make_integer_sequence<int, WIDTH>;

template <int... lane>
PRIMAL_INLINE vec pick(vec a, vec b) {
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(a, b, lane...);
#else
  return __builtin_shuffle(a, b, ivec{lane...});
#endif
}

// Exchange the off-diagonal blocks of `step` lanes between two rows.
template <int step, int... lane>
PRIMAL_INLINE void exchange(vec& a, vec& b, std::integer_sequence<int, lane...>) {
  vec upper = pick<((lane & step) ? WIDTH + lane - step : lane)...>(a, b);
  vec lower = pick<((lane & step) ? WIDTH + lane : lane + step)...>(a, b);
  a = upper, b = lower;
}

// WIDTH rows become WIDTH columns.
template <int step = 1>
PRIMAL_INLINE void transpose_lanes(vec (&row)[WIDTH]) {
  if constexpr (step < WIDTH) {
    for (int i = 0; i < WIDTH; i++)
      if (!(i & step)) exchange<step>(row[i], row[i + step], Lanes{});
    transpose_lanes<2 * step>(row);
  }
}

template <int step>
PRIMAL_INLINE vec merge(vec a, vec b) {
  exchange<step>(a, b, Lanes{});
  return a + b;
}

template <int step, int... lane>
PRIMAL_INLINE vec fold_lanes(vec a, std::integer_sequence<int, lane...> lanes) {
  if constexpr (step < WIDTH) return fold_lanes<2 * step>(a + pick<(lane ^ step)...>(a, a), lanes);
  return a;
}

// The sums of the lanes of four vectors.
PRIMAL_INLINE quad sums_of_lanes(vec a, vec b, vec c, vec d) {
  vec merged = fold_lanes<4>(merge<2>(merge<1>(a, b), merge<1>(c, d)), Lanes{});
  quad sums;
  std::memcpy(&sums, &merged, sizeof sums);
  return sums;
}

PRIMAL_INLINE float sum_of_lanes(vec a) { return fold_lanes<1>(a, Lanes{})[0]; }

// -- functions ------------------------------------------------------------------------------------

// exp(x) for x <= 0; NaN stays NaN. Underflows to 1.2e-38, not to zero.
PRIMAL_INLINE vec exp_negative(vec x) {
  x = x < -87.3f ? all(-87.3f) : x;
  const float shift = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  vec shifted = x * 1.44269504f + shift;
  vec whole = shifted - shift;
  vec rest = x - whole * 0.693359375f + whole * 2.12194440e-4f;
  vec sum = rest * 1.9875691500e-4f + 1.3981999507e-3f;
  sum = sum * rest + 8.3334519073e-3f;
  sum = sum * rest + 4.1665795894e-2f;
  sum = sum * rest + 1.6666665459e-1f;
  sum = sum * rest + 5.0000001201e-1f;
  sum = sum * rest * rest + rest + 1.0f;
  ivec exponent = reinterpret_cast<ivec>(shifted) - 0x4B400000 + 127;
  return sum * reinterpret_cast<vec>(exponent << 23);
}

PRIMAL_INLINE vec square_root(vec x) {
  for (int i = 0; i < WIDTH; i++) x[i] = __builtin_sqrtf(x[i]);
  return x;
}

}  // namespace primal
