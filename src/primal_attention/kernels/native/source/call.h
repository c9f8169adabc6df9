// One call of a layer, as Python describes it (`library.py`, in the same order).
//
// B samples, N positions of width d, h heads of width p, s directions; a layer has 2h sides, the
// queries of its heads and then the keys. x, out, g and dx are of `type`, all else is float32.
#pragma once

#include "tiles.h"

namespace primal {

constexpr int INTERFACE = 3;  // changes whenever `Call` does

enum class Map : int64_t { cosine, elu, squared_elu };

struct Call {
  int64_t batch, length, width, heads, head_dim, rank;
  int64_t anchors;  // n of data-dependent weights, 0: free ones
  Map map;
  Type type;
  int64_t causal;
  int64_t threads;
  double keep_scale;      // of the scores that dropout keeps
  const void* x;          // (B, N, d)
  const uint8_t* ignore;  // (B, N), or nullptr
  const uint8_t* keep;    // a byte for each score, in the order of `saved`; nullptr: no dropout
  // parameters
  const float* w_dual;    // (2 h s, d): tied weights
  const float *w_e, *w_r; // (h, n, s): fixed weights, n = p where they are free
  const float* weights;   // (B, 2h, s, p): data-dependent weights made elsewhere, or nullptr
  const float* w_in;      // (2 h p, d)
  const float* b_in;      // (2 h p), or nullptr
  const float* root;      // (h, s), Lambda^{1/2}
  const float* concat_w;  // (p, 2 s)
  const float* concat_b;  // (p), or nullptr
  const float* out_w;     // (d, h p)
  const float* out_b;     // (d), or nullptr
  const float* log_sharp; // (2h): of a sharp feature map, or nullptr
  float* before;          // (B, 2h, p, s or s + 1): sums of a causal tied layer before this call
  const int64_t* seen;    // (B), the positions in them
  float* saved;           // for the way back, or nullptr
  // results of the forward pass
  void* out;     // (B, N, d)
  float* terms;  // (3, B, h), or nullptr: the terms of J; the way back reads them
  float* square; // the mean over samples of J^2, or nullptr
  float* after;  // like `before`, or nullptr
  // gradients: those that come, and those that are wanted, in the order of the parameters
  const void* g;         // (B, N, d), or nullptr
  const float* g_terms;  // (3, B, h), or nullptr
  const float* g_square; // or nullptr
  void* d_x;             // (B, N, d), or nullptr
  float *d_w_dual, *d_w_e, *d_w_r, *d_weights, *d_w_in, *d_b_in, *d_root;
  float *d_concat_w, *d_concat_b, *d_out_w, *d_out_b, *d_log_sharp;
};

}  // namespace primal
