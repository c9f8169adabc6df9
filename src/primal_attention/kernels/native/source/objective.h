// The loss of a layer from the terms of J (equation 11), and back: the mean over samples of J^2, where
// J is the mean over heads of `(sum e^2 + sum r^2) / 2n - trace` with the n valid positions.
#pragma once

#include "call.h"

namespace primal {

class Objective {
 public:
  explicit Objective(const Call& call) : c(call), valid(call.batch, call.length) {
    for (int64_t b = 0; c.ignore && b < c.batch; b++)
      for (int64_t i = 0; i < c.length; i++) valid[b] -= c.ignore[b * c.length + i] != 0;
    for (int64_t count : valid) samples += count > 0;
    samples = std::max<int64_t>(1, samples);
  }

  float mean_square() const {
    float sum = 0.0f;
    for (int64_t b = 0; b < c.batch; b++) sum += of(b) * of(b);
    return sum / static_cast<float>(samples);
  }

  // g_terms, if they are given, plus what g_square gives to the terms (3, B, h).
  void gradient(float* out) const {
    int64_t count = c.batch * c.heads;
    for (int64_t b = 0; b < c.batch; b++) {
      float g = 2.0f * *c.g_square * of(b) / static_cast<float>(samples * c.heads);
      for (int64_t i = b * c.heads; i < (b + 1) * c.heads; i++) {
        out[i] = out[count + i] = g * half(b);
        out[2 * count + i] = -g;
      }
    }
    for (int64_t i = 0; c.g_terms && i < 3 * count; i++) out[i] += c.g_terms[i];
  }

 private:
  const Call& c;
  std::vector<int64_t> valid;
  int64_t samples = 0;  // with valid positions

  float half(int64_t sample) const {
    return 0.5f / static_cast<float>(std::max<int64_t>(1, valid[sample]));
  }

  // J of a sample, 0 where it has no position.
  float of(int64_t sample) const {
    if (!valid[sample]) return 0.0f;
    int64_t count = c.batch * c.heads;
    float sum = 0.0f;
    for (int64_t i = sample * c.heads; i < (sample + 1) * c.heads; i++)
      sum += half(sample) * (c.terms[i] + c.terms[count + i]) - c.terms[2 * count + i];
    return sum / static_cast<float>(c.heads);
  }
};

}  // namespace primal
