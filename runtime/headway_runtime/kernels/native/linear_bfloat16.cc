// y = x W^T + b with weights in bfloat16, for which x is rounded to bfloat16, too; sums are float32. Packed as
// [strip][K / 2][COLUMNS][2]: a lane of 32 bits holds two neighbours of K, as the processor's own dot product wants it.
#include <stdlib.h>

#include "linear.h"

#if defined(__AVX512BF16__) && LANES == 16
#define DOT_PRODUCT
#include <immintrin.h>
#endif

namespace {

constexpr int64_t DEPTH = 1024;  // pairs of K at a time: a strip stays near for all rows

INLINE int64_t pairs_of(int64_t K) { return (K + 1) / 2; }

// `x` and `weights` hold two numbers in each lane.
INLINE vf add_products(vf sum, vi x, vi weights) {
#ifdef DOT_PRODUCT
  return (vf)_mm512_dpbf16_ps((__m512)sum, (__m512bh)x, (__m512bh)weights);
#else
  sum = fma((vf)(x << 16), (vf)(weights << 16), sum);
  return fma((vf)(x & (int32_t)0xffff0000), (vf)(weights & (int32_t)0xffff0000), sum);
#endif
}

template <int R, int NV>
INLINE void add_pairs(vf (&sums)[R][NV], const int32_t *x, int64_t x_row, const int32_t *const (&weights)[NV],
                      int64_t depth) {
  for (int64_t k = 0; k < depth; k++) {
    vi columns[NV];
#pragma unroll
    for (int v = 0; v < NV; v++) columns[v] = *(const vi_any *)(weights[v] + k * COLUMNS);
#pragma unroll
    for (int r = 0; r < R; r++) {
      vi both = vi{} + x[r * x_row + k];
#pragma unroll
      for (int v = 0; v < NV; v++) sums[r][v] = add_products(sums[r][v], both, columns[v]);
    }
  }
}

}  // namespace

int64_t OF_LEVEL(bytes_bfloat16)(int64_t N, int64_t K) { return strips_of(N) * pairs_of(K) * COLUMNS * 4; }

void OF_LEVEL(pack_bfloat16)(const float *weight, int64_t N, int64_t K, uint16_t *packed) {
  int64_t pairs = pairs_of(K);
  for (int64_t strip = 0; strip < strips_of(N); strip++)
    for (int64_t k = 0; k < 2 * pairs; k++)
      for (int64_t c = 0; c < COLUMNS; c++) {
        int64_t n = strip * COLUMNS + c;
        uint16_t *to = packed + ((strip * pairs + k / 2) * COLUMNS + c) * 2 + k % 2;
        *to = n < N && k < K ? narrowed(weight[n * K + k]) : 0;
      }
}

int OF_LEVEL(linear_bfloat16)(const Product &of) {
  int64_t pairs = pairs_of(of.K);
  uint16_t *x = (uint16_t *)malloc(of.M * pairs * 4);
  if (!x) return NO_MEMORY;
  over_rows(of, [&](int64_t m) {
    for (int64_t k = 0; k < 2 * pairs; k++) x[m * 2 * pairs + k] = k < of.K ? narrowed(of.x[m * of.K + k]) : 0;
  });
  over_strips(of, sizeof(uint16_t), [&](int64_t strip, int64_t strips, int64_t row, int64_t rows, Tile &tile) {
    for (int64_t k = 0; k < pairs; k += DEPTH) {
      int64_t depth = pairs - k < DEPTH ? pairs - k : DEPTH;
      const int32_t *weights = (const int32_t *)of.weights + (strip * pairs + k) * COLUMNS;
      in_passes(strips, rows, [&]<int R, int S>(int64_t first) {
        vf sums[R][S * VECTORS];
        begin<R, S>(sums, tile, first, k == 0);
        const int32_t *columns[S * VECTORS];
        for (int v = 0; v < S * VECTORS; v++)
          columns[v] = weights + v / VECTORS * pairs * COLUMNS + v % VECTORS * VL;
        add_pairs(sums, (const int32_t *)x + (row + first) * pairs + k, pairs, columns, depth);
        end<R, S>(sums, tile, first);
      });
    }
  });
  free(x);
  return FINE;
}
