// The C interface. Every function returns 0, or 1 where there was not enough memory.
#include <new>

#include "fixed.h"
#include "objective.h"
#include "processor.h"
#include "sharpness.h"
#include "tied.h"

using namespace primal;

#if defined(_WIN32)
#define PRIMAL_EXPORT extern "C" __declspec(dllexport)
#else
#define PRIMAL_EXPORT extern "C" __attribute__((visibility("default")))
#endif

namespace {

template <class F>
int guarded(F&& f) {
  try {
    f();
    return 0;
  } catch (const std::bad_alloc&) {
    return 1;
  }
}

// f(pass) with the pass over tied weights for the feature map of a call.
template <class F>
void with_tied(const Call& call, F&& f) {
  if (call.map == Map::cosine) f(Tied<Cosine>(call));
  if (call.map == Map::elu) f(Tied<Elu<1>>(call));
  if (call.map == Map::squared_elu) f(Tied<Elu<2>>(call));
}

size_t tensor_bytes(const Call& c) {
  return c.batch * c.length * c.width * (c.type == Type::float32 ? 4 : 2);
}

template <class P>
void forward(const Call& c, P&& pass) {
  if (c.saved) use_large_pages(c.saved, pass.saved_size() * sizeof(float));
  pass.forward();
}

template <class F>
int run_forward(const Call* call, F&& f) {
  return guarded([&] {
    use_large_pages(call->out, tensor_bytes(*call));
    f(Sharpened(*call).call());
    if (call->square) *call->square = Objective(*call).mean_square();
  });
}

// f(call) with the gradient of the terms that that of their squares is part of.
template <class F>
int run_backward(const Call* call, F&& f) {
  return guarded([&] {
    Call inner = *call;
    if (call->d_x) use_large_pages(call->d_x, tensor_bytes(*call));
    Buffer gradient(call->g_square ? 3 * call->batch * call->heads : 0);
    if (call->g_square) Objective(*call).gradient(gradient), inner.g_terms = gradient;
    Sharpened sharpened(inner);
    f(sharpened.call());
    sharpened.backward();
  });
}

}  // namespace

// Whether this processor has the instructions that the library was compiled for.
PRIMAL_EXPORT int primal_runs_here() {
#if defined(__AVX512F__)
  return has_vectors(true);
#elif defined(__AVX2__)
  return has_vectors(false);
#else
  return 1;
#endif
}

// Changes whenever `Call` does.
PRIMAL_EXPORT int primal_interface() { return INTERFACE; }

// Whether W_c and the output projection become one matrix for the shapes of a call.
PRIMAL_EXPORT int primal_folds(const Call* call) { return folds(*call); }

// Use the threads of an OpenMP library: the address of its GOMP_parallel.
PRIMAL_EXPORT void primal_use_team(void* address) { team = reinterpret_cast<Team>(address); }

// Numbers to keep for the way back (`saved`), and positions with those that fill up panels.
PRIMAL_EXPORT int primal_tied_sizes(const Call* call, int64_t* saved, int64_t* padded) {
  return guarded([&] {
    with_tied(*call, [&](auto&& pass) {
      *saved = pass.saved_size(), *padded = pass.positions.padded;
    });
  });
}

PRIMAL_EXPORT int primal_tied_forward(const Call* call) {
  return run_forward(call, [](const Call& c) {
    with_tied(c, [&](auto&& pass) { forward(c, pass); });
  });
}

PRIMAL_EXPORT int primal_tied_backward(const Call* call) {
  return run_backward(call, [](const Call& c) {
    with_tied(c, [](auto&& pass) { pass.backward(); });
  });
}

PRIMAL_EXPORT int primal_fixed_sizes(const Call* call, int64_t* saved, int64_t* padded) {
  return guarded([&] {
    Fixed pass(*call);
    *saved = pass.saved_size(), *padded = pass.positions.padded;
  });
}

PRIMAL_EXPORT int primal_fixed_forward(const Call* call) {
  return run_forward(call, [](const Call& c) {
    Fixed pass(c);
    forward(c, pass);
  });
}

PRIMAL_EXPORT int primal_fixed_backward(const Call* call) {
  return run_backward(call, [](const Call& c) { Fixed(c).backward(); });
}
