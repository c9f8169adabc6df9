// All passes over odd sizes, for a build with sanitizers: every buffer has exactly the size that the
// interface asks for.
#include <cstdio>
#include <cstdlib>

#define PRIMAL_KEEP_NOTHING
#include "primal.cpp"

static std::vector<float> numbers(int64_t count) {
  std::vector<float> made(count);
  for (int64_t i = 0; i < count; i++) made[i] = static_cast<float>(std::rand() % 2001) / 1000 - 1;
  return made;
}

static int calls = 0;

static void run(int64_t batch, int64_t length, int64_t heads, int64_t head_dim, int64_t rank,
                int kind, bool masked, bool bias) {
  // kind: 0 free, 1 data, 2 to 4 tied by feature map, 5 to 7 the same, causal
  int64_t width = heads * head_dim, inner = 2 * width, scores = 2 * heads * rank, anchors = 7;
  bool tied = kind >= 2, causal = kind >= 5;
  int64_t rows = kind == 1 ? anchors : head_dim;
  auto x = numbers(batch * length * width), g = x, out = x, d_x = x;
  auto w_in = numbers(inner * width), d_w_in = w_in, b_in = numbers(inner), d_b_in = b_in;
  auto w_dual = numbers(scores * width), d_w_dual = w_dual;
  auto w_e = numbers(heads * rows * rank), w_r = w_e, d_w_e = w_e, d_w_r = w_e;
  auto root = numbers(heads * rank), d_root = root;
  auto concat_w = numbers(head_dim * 2 * rank), d_concat_w = concat_w;
  auto concat_b = numbers(head_dim), d_concat_b = concat_b;
  auto out_w = numbers(width * width), d_out_w = out_w, out_b = numbers(width), d_out_b = out_b;
  auto terms = numbers(3 * batch * heads), g_terms = terms;
  auto log_sharp = numbers(2 * heads), d_log_sharp = log_sharp;
  std::vector<uint8_t> ignore(batch * length);
  for (auto& value : ignore) value = std::rand() % 3 == 0;
  Call call{};
  call.batch = batch, call.length = length, call.width = width, call.heads = heads;
  call.head_dim = head_dim, call.rank = rank, call.causal = causal, call.threads = 1 + calls % 3;
  call.map = tied ? static_cast<Map>((kind - 2) % 3) : Map::cosine;
  call.keep_scale = 2.0, call.x = x.data(), call.w_in = w_in.data(), call.root = root.data();
  call.concat_w = concat_w.data(), call.out_w = out_w.data();
  if (masked) call.ignore = ignore.data();
  if (bias) call.b_in = b_in.data(), call.concat_b = concat_b.data(), call.out_b = out_b.data();
  if (tied) call.w_dual = w_dual.data();
  if (call.map != Map::cosine) call.log_sharp = log_sharp.data();
  if (!tied) call.w_e = w_e.data(), call.w_r = w_r.data(), call.anchors = kind == 1 ? anchors : 0;
  float square = 0.0f, g_square = 0.5f;
  call.out = out.data(), call.terms = terms.data(), call.square = &square;
  int64_t saved_size = 0, padded = 0;
  (tied ? primal_tied_sizes : primal_fixed_sizes)(&call, &saved_size, &padded);
  (tied ? primal_tied_forward : primal_fixed_forward)(&call);  // without a way back
  std::vector<float> saved(saved_size);
  std::vector<uint8_t> keep(padded * scores);
  for (auto& value : keep) value = std::rand() % 2;
  call.saved = saved.data(), call.keep = keep.data();
  (tied ? primal_tied_forward : primal_fixed_forward)(&call);
  call.g = g.data(), call.g_terms = g_terms.data(), call.d_x = d_x.data();
  call.g_square = &g_square, call.d_log_sharp = d_log_sharp.data();
  call.d_w_in = d_w_in.data(), call.d_w_dual = d_w_dual.data(), call.d_w_e = d_w_e.data();
  call.d_w_r = d_w_r.data(), call.d_root = d_root.data(), call.d_concat_w = d_concat_w.data();
  call.d_out_w = d_out_w.data();
  if (bias)
    call.d_b_in = d_b_in.data(), call.d_concat_b = d_concat_b.data(), call.d_out_b = d_out_b.data();
  (tied ? primal_tied_backward : primal_fixed_backward)(&call);
  calls++;
}

int main() {
  if (!primal_runs_here()) {
    std::printf("compiled for another processor\n");
    return 0;
  }
  for (int kind = 0; kind < 8; kind++)
    for (int64_t length : {1, 15, 17, 95, 96, 97, 200})
      for (int64_t head_dim : {1, 5, 17})
        for (int64_t rank : {1, 6, 13})
          run(1 + length % 3, length, 2, head_dim, rank, kind, rank == 6, head_dim == 5);
  run(2, 0, 2, 3, 4, 2, false, true);
  std::printf("%d calls\n", calls);
}
