// Vectors of the processor as the compiler's own type: one source for AVX-512, AVX2 and NEON. No intrinsics here.
#pragma once
#include <stdint.h>

#if !defined(LANES)
#error "the build says how many floats a vector has: -DLANES=16, 8 or 4"
#endif

// Every level is compiled from the same files, so its functions need names of their own: LEVEL is avx512, avx2, ...
#define PASTE(a, b) a##_##b
#define EXPAND(a, b) PASTE(a, b)
#define OF_LEVEL(name) EXPAND(name, LEVEL)

namespace {

constexpr int VL = LANES;
typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef uint32_t vu __attribute__((vector_size(VL * 4)));
typedef uint16_t vh __attribute__((vector_size(VL * 2)));  // bfloat16, as its bits
typedef vf vf_any __attribute__((aligned(4), may_alias));
typedef vi vi_any __attribute__((aligned(4), may_alias));
typedef vh vh_any __attribute__((aligned(2), may_alias));

#define INLINE static inline __attribute__((always_inline))

INLINE vf load(const float *p) { return *(const vf_any *)p; }
INLINE void store(float *p, vf v) { *(vf_any *)p = v; }
INLINE vf all(float x) { return vf{} + x; }
INLINE vf fma(vf a, vf b, vf c) { return __builtin_elementwise_fma(a, b, c); }
INLINE vf larger(vf a, vf b) { return a > b ? a : b; }
INLINE vf absolute(vf a) { return (vf)((vi)a & 0x7fffffff); }

INLINE float widened(uint16_t h) {
  union { uint32_t bits; float value; } u = {(uint32_t)h << 16};
  return u.value;
}
INLINE vf widened(vh v) { return (vf)(__builtin_convertvector(v, vu) << 16); }
INLINE vf load(const uint16_t *p) { return widened(*(const vh_any *)p); }

// Nearest, ties to even; NaN stays NaN.
INLINE uint16_t narrowed(float x) {
  union { float value; uint32_t bits; } u = {x};
  if ((u.bits & 0x7fffffff) > 0x7f800000) return (uint16_t)((u.bits >> 16) | 0x40);
  return (uint16_t)((u.bits + 0x7fff + ((u.bits >> 16) & 1)) >> 16);
}

// Always in the same order, so that sums do not depend on what runs beside.
INLINE float sum(vf v) {
  float s = 0;
  for (int i = 0; i < VL; i++) s += v[i];
  return s;
}
INLINE float most(vf v) {
  float s = v[0];
  for (int i = 1; i < VL; i++) s = v[i] > s ? v[i] : s;
  return s;
}

constexpr float NEAREST = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer, ties to even

// e^x for x <= 0, within 2 units of the last place; exactly 1 at 0 and 0 below -87. NaN stays NaN. After Cephes' expf.
INLINE vf exponential(vf x) {
  vf n = fma(x, all(1.44269504f), all(NEAREST)) - NEAREST;
  vf r = fma(n, all(-0.693359375f), x);
  r = fma(n, all(2.12194440e-4f), r);
  vf y = all(1.9875691500e-4f);
  y = fma(y, r, all(1.3981999507e-3f));
  y = fma(y, r, all(8.3334519073e-3f));
  y = fma(y, r, all(4.1665795894e-2f));
  y = fma(y, r, all(1.6666665459e-1f));
  y = fma(y, r, all(5.0000001201e-1f));
  y = fma(y, r * r, r + 1.f);
  vi exponent = (__builtin_convertvector(x >= -87.f ? n : vf{}, vi) + 127) << 23;  // NaN is no integer
  vf result = y * (vf)exponent;
  return x < -87.f ? vf{} : result;
}
INLINE float exponential(float x) { return exponential(all(x))[0]; }

INLINE vf hyperbolic_tangent(vf x) {
  vf e = exponential(-2.f * absolute(x));
  vf t = (1.f - e) / (1.f + e);
  return x < 0.f ? -t : t;
}

}  // namespace
