// y = x W^T + b with float32 weights, packed as [strip][K][COLUMNS].
#include "linear.h"

namespace {

constexpr int64_t DEPTH = 1024;  // of K at a time: a strip stays near for all rows

}  // namespace

void OF_LEVEL(pack_float)(const float *weight, int64_t N, int64_t K, float *packed) {
  for (int64_t strip = 0; strip < strips_of(N); strip++)
    for (int64_t k = 0; k < K; k++)
      for (int64_t c = 0; c < COLUMNS; c++) {
        int64_t n = strip * COLUMNS + c;
        packed[(strip * K + k) * COLUMNS + c] = n < N ? weight[n * K + k] : 0.f;
      }
}

void OF_LEVEL(linear_float)(const Product &of) {
  over_strips(of, sizeof(float), [&](int64_t strip, int64_t strips, int64_t row, int64_t rows, Tile &tile) {
    for (int64_t k = 0; k < of.K; k += DEPTH) {
      int64_t depth = of.K - k < DEPTH ? of.K - k : DEPTH;
      const float *weights = (const float *)of.weights + (strip * of.K + k) * COLUMNS;
      in_passes(strips, rows, [&]<int R, int S>(int64_t first) {
        vf sums[R][S * VECTORS];
        begin<R, S>(sums, tile, first, k == 0);
        const float *columns[S * VECTORS];
        for (int v = 0; v < S * VECTORS; v++)
          columns[v] = weights + v / VECTORS * of.K * COLUMNS + v % VECTORS * VL;
        multiply(sums, of.x + (row + first) * of.K + k, of.K, columns, COLUMNS, depth);
        end<R, S>(sums, tile, first);
      });
    }
  });
}
