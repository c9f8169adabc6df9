// Whether the processor has the instructions that a library was compiled for. It is asked by cpuid:
// the compilers' own function is in a library that not every linker finds.
#pragma once

#include <cstdint>

#if defined(__x86_64__) || defined(_M_X64)
#include <cpuid.h>
#endif

namespace primal {

#if defined(__AVX2__)

// All of `bits` among `word`.
inline bool has_all(uint32_t word, uint32_t bits) { return (word & bits) == bits; }

// The instructions of x86-64-v3, or with `wide` those of x86-64-v4; the system must keep their
// registers.
inline bool has_vectors(bool wide) {
  uint32_t a, b, c, d, kept, rest;
  constexpr uint32_t FMA = 1u << 12, OSXSAVE = 1u << 27, AVX = 1u << 28;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !has_all(c, FMA | OSXSAVE | AVX)) return false;
  __asm__ volatile("xgetbv" : "=a"(kept), "=d"(rest) : "c"(0));
  if (!has_all(kept, wide ? 0xe6u : 0x6u)) return false;
  constexpr uint32_t AVX2 = 1u << 5, BMI2 = 1u << 8;
  constexpr uint32_t AVX512 = 1u << 16 | 1u << 17 | 1u << 28 | 1u << 30 | 1u << 31;  // F DQ CD BW VL
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && has_all(b, AVX2 | BMI2 | (wide ? AVX512 : 0));
}

#endif

}  // namespace primal
