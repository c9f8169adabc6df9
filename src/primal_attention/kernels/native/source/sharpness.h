// The sharpness a of a feature map, one for each side, as part of the maps that make queries and keys:
// `a (W x + c) = (a W) x + a c`. The call has log a.
#pragma once

#include <cmath>

#include "call.h"

namespace primal {

class Sharpened {
 public:
  explicit Sharpened(const Call& call)
      : c(call), inner(call), sides(call.log_sharp ? 2 * call.heads : 0),
        size(call.head_dim * call.width), weight(sides * size), bias(sides * call.head_dim) {
    if (!sides) return;
    for (int64_t z = 0; z < sides; z++) {
      float a = std::exp(c.log_sharp[z]);
      for (int64_t k = z * size; k < (z + 1) * size; k++) weight[k] = a * c.w_in[k];
      for (int64_t k = z * c.head_dim; c.b_in && k < (z + 1) * c.head_dim; k++)
        bias[k] = a * c.b_in[k];
    }
    inner.w_in = weight;
    if (c.b_in) inner.b_in = bias;
  }

  // The call with these maps.
  const Call& call() const { return inner; }

  // From the gradients of a W and a c, in place, to those of W, c and log a.
  void backward() const {
    for (int64_t z = 0; z < sides; z++) {
      float a = std::exp(c.log_sharp[z]), sum = 0.0f;
      for (int64_t k = z * c.head_dim; k < (z + 1) * c.head_dim; k++) {
        sum += scale(c.d_w_in + k * c.width, c.w_in + k * c.width, c.width, a);
        if (c.b_in) sum += scale(c.d_b_in + k, c.b_in + k, 1, a);
      }
      c.d_log_sharp[z] = sum;
    }
  }

 private:
  const Call& c;
  Call inner;
  int64_t sides, size;  // none without a sharpness; the numbers in a map
  Buffer weight, bias;

  // gradient *= a; returns its product with the values.
  static float scale(float* gradient, const float* values, int64_t count, float a) {
    vec sum{};
    int64_t k = 0;
    for (; k + WIDTH <= count; k += WIDTH) {
      vec scaled = load(gradient + k) * a;
      sum += scaled * load(values + k);
      store(gradient + k, scaled);
    }
    float rest = 0.0f;
    for (; k < count; k++) gradient[k] *= a, rest += gradient[k] * values[k];
    return sum_of_lanes(sum) + rest;
  }
};

}  // namespace primal
