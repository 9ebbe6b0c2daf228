// The innermost loops of everything here: a few rows times NV vectors of columns, all sums in registers.
//
// Each sum is taken over k in order, whatever the number of rows, of threads, and of tokens beside it: the same token
// gets the same bits in every batch.
#pragma once
#include "vectors.h"

namespace {

constexpr int ROWS = 6;  // at most, at a time: with VECTORS they fill the registers
#if LANES == 8
constexpr int VECTORS = 2;
#else
constexpr int VECTORS = 4;
#endif
constexpr int COLUMNS = VECTORS * VL;

// sums[r][v] += sum over k of a[r * a_row + k] * b[v][k * b_step ..]
template <int R, int NV, typename E>
INLINE void multiply(vf (&sums)[R][NV], const float *a, int64_t a_row, const E *const (&b)[NV], int64_t b_step, int64_t K) {
  for (int64_t k = 0; k < K; k++) {
    vf columns[NV];
#pragma unroll
    for (int v = 0; v < NV; v++) columns[v] = load(b[v] + k * b_step);
#pragma unroll
    for (int r = 0; r < R; r++) {
      vf x = all(a[r * a_row + k]);
#pragma unroll
      for (int v = 0; v < NV; v++) sums[r][v] = fma(x, columns[v], sums[r][v]);
    }
  }
}

// Calls f<R>(row) for groups of at most ROWS rows, as even as can be.
template <int R> struct Rows {
  template <typename F> INLINE void call(int rows, int64_t first, const F &f) {
    if (rows == R)
      f.template operator()<R>(first);
    else
      Rows<R - 1>::call(rows, first, f);
  }
};
template <> struct Rows<0> {
  template <typename F> INLINE void call(int, int64_t, const F &) {}
};
template <typename F> INLINE void in_groups(int64_t rows, const F &f) {
  int64_t passes = (rows + ROWS - 1) / ROWS;
  for (int64_t pass = 0, first = 0; pass < passes; pass++) {
    int count = (int)((rows - first + passes - pass - 1) / (passes - pass));
    Rows<ROWS>::call(count, first, f);
    first += count;
  }
}

}  // namespace
