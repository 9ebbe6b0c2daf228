// What lies between two products of a decoder, each in one pass over memory: a norm, a rotation, a gate.
#include "headway.h"
#include "vectors.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

// One call; `pointwise.py` packs it. Everything is dense. `second` and `sum` may be null for a norm.
struct Pointwise {
  const float *first, *second, *third;
  float *sum, *out;
  int64_t rows, width, heads, kind, threads;
  double epsilon;
};

enum Gate { SILU = 0, GELU_TANH = 1 };

namespace {

constexpr int64_t WORTH = 1 << 15;  // numbers for which waking a thread costs less than it brings

// f(first, last) over all rows, in parts that are worth a thread.
template <typename F> void over_rows(const Pointwise &of, const F &f) {
  int64_t parts = of.rows * of.width * of.heads / WORTH;
  int64_t most = of.threads * 4;
  parts = parts > most ? most : parts;
  if (parts < 2 || of.threads < 2) return f(0, of.rows);
  in_parallel(parts, of.threads, [&](int64_t part) { f(of.rows * part / parts, of.rows * (part + 1) / parts); });
}

INLINE vf gated(vf x, int64_t kind) {
  if (kind == SILU) {
    vf e = exponential(-absolute(x));
    return x * ((x < 0.f ? e : all(1.f)) / (1.f + e));
  }
  vf inner = 0.79788456f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.f + hyperbolic_tangent(inner));
}

INLINE void norm_row(const float *x, const float *more, const float *weight, float *sum_to, float *y, int64_t D,
                     double epsilon) {
  vf squares[4] = {};
  int64_t d = 0;
  for (; d + 4 * VL <= D; d += 4 * VL)
#pragma unroll
    for (int i = 0; i < 4; i++) {
      vf v = load(x + d + i * VL);
      if (more) {
        v += load(more + d + i * VL);
        store(sum_to + d + i * VL, v);
      }
      squares[i] = fma(v, v, squares[i]);
    }
  float total = sum((squares[0] + squares[1]) + (squares[2] + squares[3]));
  for (; d < D; d++) {
    float v = x[d];
    if (more) sum_to[d] = v += more[d];
    total += v * v;
  }
  const float *from = more ? sum_to : x;
  float scale = 1.f / __builtin_sqrtf(total / (float)D + (float)epsilon);
  for (d = 0; d + VL <= D; d += VL) store(y + d, load(from + d) * scale * load(weight + d));
  for (; d < D; d++) y[d] = from[d] * scale * weight[d];
}

INLINE void rotate_head(const float *x, const float *cos, const float *sin, float *y, int64_t D) {
  int64_t half = D / 2, d = 0;
  for (; d + VL <= half; d += VL) {
    vf low = load(x + d), high = load(x + half + d);
    store(y + d, low * load(cos + d) - high * load(sin + d));
    store(y + half + d, high * load(cos + half + d) + low * load(sin + half + d));
  }
  for (; d < half; d++) {
    float low = x[d], high = x[half + d];
    y[d] = low * cos[d] - high * sin[d];
    y[half + d] = high * cos[half + d] + low * sin[half + d];
  }
}

}  // namespace

// out = norm(first [+ second, which goes to sum]) * third: x / sqrt(mean(x^2) + epsilon) of each row of `width`.
EXPORT int OF_LEVEL(headway_norm)(const Pointwise *of) {
  over_rows(*of, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++) {
      int64_t at = row * of->width;
      const float *more = of->second ? of->second + at : nullptr;
      float *total = of->second ? of->sum + at : nullptr;
      norm_row(of->first + at, more, of->third, total, of->out + at, of->width, of->epsilon);
    }
  });
  return FINE;
}

// out[row][head] = first * cos(second) + rotated(first) * sin(third), where rotated swaps the halves of a head and
// negates the first; cos and sin have one row for all heads.
EXPORT int OF_LEVEL(headway_rotate)(const Pointwise *of) {
  over_rows(*of, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; row++)
      for (int64_t head = 0; head < of->heads; head++) {
        int64_t at = (row * of->heads + head) * of->width, angle = row * of->width;
        rotate_head(of->first + at, of->second + angle, of->third + angle, of->out + at, of->width);
      }
  });
  return FINE;
}

// out = gate(first) * second.
EXPORT int OF_LEVEL(headway_gate)(const Pointwise *of) {
  over_rows(*of, [&](int64_t first, int64_t last) {
    int64_t at = first * of->width, end = last * of->width;
    for (; at + VL <= end; at += VL) store(of->out + at, gated(load(of->first + at), of->kind) * load(of->second + at));
    for (; at < end; at++) of->out[at] = gated(all(of->first[at]), of->kind)[0] * of->second[at];
  });
  return FINE;
}
