// What the three products share: how the work is cut up, and how results leave.
//
// Weights lie in strips of COLUMNS outputs, the last one filled with zeros. A strip times some rows is computed into a
// tile, from where the rows go to y.
#pragma once
#include "headway.h"
#include "multiply.h"

namespace {

constexpr int STREAMS = 4;          // strips that one row follows side by side: memory brings four sooner than one
constexpr double WORTH = 30000;     // nanoseconds below which one thread does it: waking another costs some 6000
constexpr double READ_BYTES = 20;   // of weights in a nanosecond
constexpr double MULTIPLIED = 40;   // and products of float32

INLINE int64_t strips_of(int64_t N) { return (N + COLUMNS - 1) / COLUMNS; }

struct Tile {
  float at[PIECE][COLUMNS];
};

// The sums of R rows and one strip, or of one row and S strips, from the tile or from nothing, and back.
template <int R, int S> INLINE void begin(vf (&sums)[R][S * VECTORS], const Tile &tile, int64_t first, bool anew) {
#pragma unroll
  for (int r = 0; r < R; r++)
#pragma unroll
    for (int v = 0; v < S * VECTORS; v++)
      sums[r][v] = anew ? vf{} : load(tile.at[first + r + v / VECTORS] + v % VECTORS * VL);
}
template <int R, int S> INLINE void end(const vf (&sums)[R][S * VECTORS], Tile &tile, int64_t first) {
#pragma unroll
  for (int r = 0; r < R; r++)
#pragma unroll
    for (int v = 0; v < S * VECTORS; v++) store(tile.at[first + r + v / VECTORS] + v % VECTORS * VL, sums[r][v]);
}

// Calls f<R, 1>(row) for groups of rows, or f<1, STREAMS>(0).
template <typename F> INLINE void in_passes(int64_t strips, int64_t rows, const F &f) {
  if (strips == STREAMS)
    f.template operator()<1, STREAMS>(0);
  else
    in_groups(rows, [&]<int R>(int64_t first) { f.template operator()<R, 1>(first); });
}

INLINE void leave_tile(const Product &of, const float (*tile)[COLUMNS], int64_t strip, int64_t row, int64_t rows) {
  int64_t column = strip * COLUMNS, width = of.N - column < COLUMNS ? of.N - column : COLUMNS;
  float bias[COLUMNS] = {};
  if (of.bias) __builtin_memcpy(bias, of.bias + column, width * sizeof(float));
  for (int64_t r = 0; r < rows; r++) {
    float *y = of.y + (row + r) * of.N + column;
    if (width == COLUMNS)
      for (int c = 0; c < COLUMNS; c += VL) store(y + c, load(tile[r] + c) + load(bias + c));
    else
      for (int64_t c = 0; c < width; c++) y[c] = tile[r][c] + bias[c];
  }
}

INLINE int64_t parts_of(const Product &of) { return of.parts ? of.count : (of.M + PIECE - 1) / PIECE; }
INLINE Part part_of(const Product &of, int64_t number, int64_t parts) {
  if (of.parts) return of.parts[number];
  int64_t row = of.M * number / parts;
  return {row, of.M * (number + 1) / parts - row};
}

// f(row) for all rows that are multiplied.
template <typename F> INLINE void over_rows(const Product &of, const F &f) {
  int64_t parts = parts_of(of);
  for (int64_t number = 0; number < parts; number++) {
    Part part = part_of(of, number, parts);
    for (int64_t row = part.row; row < part.row + part.rows; row++) f(row);
  }
}

// compute(strip, strips, row, rows, tile) for all strips and pieces of rows. `bytes`: of a weight.
template <typename F> void over_strips(const Product &of, double bytes, const F &compute) {
  int64_t strips = strips_of(of.N), pieces = parts_of(of);
  double weights = (double)of.N * of.K;
  double nanoseconds = weights * bytes / READ_BYTES + weights * of.rows / MULTIPLIED;
  int64_t threads = nanoseconds < WORTH ? 1 : of.threads;
  int64_t span = strips / (threads * 16) + 1, spans = (strips + span - 1) / span;
  in_parallel(spans * pieces, threads, [&](int64_t number) {
    int64_t first = number / pieces * span;
    auto [row, rows] = part_of(of, number % pieces, pieces);
    Tile tile;
    int64_t last = first + span < strips ? first + span : strips;
    for (int64_t strip = first, count; strip < last; strip += count) {
      count = of.rows == 1 && strip + STREAMS <= last ? STREAMS : 1;
      compute(strip, count, row, rows, tile);
      for (int64_t i = 0; i < count; i++) leave_tile(of, tile.at + i, strip + i, row, rows);
    }
  });
}

}  // namespace

// Each product of one level; `linear.cc` chooses.
void OF_LEVEL(pack_float)(const float *weight, int64_t N, int64_t K, float *packed);
void OF_LEVEL(linear_float)(const Product &of);
int64_t OF_LEVEL(bytes_bfloat16)(int64_t N, int64_t K);
void OF_LEVEL(pack_bfloat16)(const float *weight, int64_t N, int64_t K, uint16_t *packed);
int OF_LEVEL(linear_bfloat16)(const Product &of);
int64_t OF_LEVEL(bytes_int8)(int64_t N, int64_t K);
void OF_LEVEL(pack_int8)(const float *weight, int64_t N, int64_t K, uint8_t *packed);
int OF_LEVEL(linear_int8)(const Product &of);
