// The C interface. Every function returns 0, or 1 where there was not enough memory.
#include <new>

#include "fixed.h"
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
int with_tied(const Call* call, F&& f) {
  return guarded([&] {
    if (call->map == Map::cosine) f(Tied<Cosine>(*call));
    if (call->map == Map::elu) f(Tied<Elu<1>>(*call));
    if (call->map == Map::squared_elu) f(Tied<Elu<2>>(*call));
  });
}

}  // namespace

// Whether this processor has the instructions that the library was compiled for.
PRIMAL_EXPORT int primal_runs_here() {
#if defined(__AVX512F__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512cd");
#elif defined(__AVX2__)
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("bmi2");
#else
  return 1;
#endif
}

// Changes whenever `Call` does.
PRIMAL_EXPORT int primal_interface() { return INTERFACE; }

// Use the threads of an OpenMP library: the address of its GOMP_parallel.
PRIMAL_EXPORT void primal_use_team(void* address) { team = reinterpret_cast<Team>(address); }

// Numbers to keep for the way back (`saved`), and positions with those that fill up panels.
PRIMAL_EXPORT int primal_tied_sizes(const Call* call, int64_t* saved, int64_t* padded) {
  return with_tied(call, [&](auto&& pass) {
    *saved = pass.saved_size(), *padded = pass.positions.padded;
  });
}

PRIMAL_EXPORT int primal_tied_forward(const Call* call) {
  return with_tied(call, [](auto&& pass) { pass.forward(); });
}

PRIMAL_EXPORT int primal_tied_backward(const Call* call) {
  return with_tied(call, [](auto&& pass) { pass.backward(); });
}

PRIMAL_EXPORT int primal_fixed_sizes(const Call* call, int64_t* saved, int64_t* padded) {
  return guarded([&] {
    Fixed pass(*call);
    *saved = pass.saved_size(), *padded = pass.positions.padded;
  });
}

PRIMAL_EXPORT int primal_fixed_forward(const Call* call) {
  return guarded([&] { Fixed(*call).forward(); });
}

PRIMAL_EXPORT int primal_fixed_backward(const Call* call) {
  return guarded([&] { Fixed(*call).backward(); });
}
