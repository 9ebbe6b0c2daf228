// y = x W^T + b with weights in 8 bits. A scale belongs to a GROUP of numbers along K, of an output's weights as of a
// token's x, which becomes 8 bits, too: one scale for a whole row loses what is beside a large number (see
// docs/decisions/0022). Products within a group are exact.
//
// Packed as [strip][group]: the bytes [GROUP / 4][COLUMNS][4], a lane of 32 bits being four neighbours of K, then the
// scales of the columns in bfloat16.
#include <stdlib.h>

#include "linear.h"

#if defined(__AVX512VNNI__) && LANES == 16
#define VNNI
#include <immintrin.h>
#elif defined(__AVX2__) && LANES == 8
#define AVX2
#include <immintrin.h>
#endif

namespace {

constexpr int64_t GROUP = 64, QUADS = GROUP / 4;
constexpr int64_t GROUP_BYTES = GROUP * COLUMNS + COLUMNS * 2;
typedef int8_t vb __attribute__((vector_size(VL)));
typedef vb vb_any __attribute__((aligned(1), may_alias));

#ifdef VNNI
constexpr int OFFSET = 128;  // of the weights as stored: the processor multiplies unsigned by signed bytes
#else
constexpr int OFFSET = 0;
#endif

// Four products in each lane.
INLINE vi add_products(vi sum, vi x, vi weights) {
#if defined(VNNI)
  return (vi)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, (__m512i)x);
#elif defined(AVX2)
  __m256i w = (__m256i)weights;  // both are within 127, so that two products fit in 16 bits
  __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8((__m256i)x, w));
  return sum + (vi)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
#else
  for (int bits = 0; bits < 32; bits += 8) sum += ((x << (24 - bits)) >> 24) * ((weights << (24 - bits)) >> 24);
  return sum;
#endif
}

INLINE int64_t groups_of(int64_t K) { return (K + GROUP - 1) / GROUP; }

// One group of a token: its scale; its bytes; their sum, times -OFFSET, from where the sums of products start. A group
// with a number that is not finite gets the scale NaN, so that the answer shows it.
INLINE float quantise(const float *x, int64_t count, int8_t *to, int32_t *start) {
  float padded[GROUP] = {};
  if (count < GROUP) {
    __builtin_memcpy(padded, x, count * sizeof(float));
    x = padded;
  }
  vf greatest{}, strange{};
  for (int k = 0; k < GROUP; k += VL) {
    vf values = load(x + k);
    greatest = larger(absolute(values), greatest);
    strange += values * 0.f;
  }
  float peak = most(greatest);
  vf factor = all(peak > 1e-30f ? 127.f / peak : 0.f);
  vi total{};
  for (int k = 0; k < GROUP; k += VL) {
    vf values = load(x + k);
    vf rounded = values * factor + NEAREST - NEAREST;
    vi whole = __builtin_convertvector(values * 0.f == 0.f ? rounded : vf{}, vi);  // no integer is what is not finite
    *(vb_any *)(to + k) = __builtin_convertvector(whole, vb);
    total += whole;
  }
  int32_t sum_of = 0;
  for (int i = 0; i < VL; i++) sum_of += total[i];
  *start = -OFFSET * sum_of;
  return peak / 127.f + sum(strange);
}

struct Tokens {
  int8_t *bytes;    // [M][groups][GROUP]
  float *scales;    // [M][groups]
  int32_t *starts;  // [M][groups]
  int64_t groups;
};

// Adds the products of one group of K with S strips, whose weights are `apart` bytes from each other.
template <int R, int S>
INLINE void add_group(vf (&results)[R][S * VECTORS], const Tokens &x, int64_t from, const int8_t *weights, int64_t apart) {
  constexpr int NV = S * VECTORS;
  const int8_t *bytes = x.bytes + from * GROUP;
  vi sums[R][NV];
#pragma unroll
  for (int r = 0; r < R; r++)
#pragma unroll
    for (int v = 0; v < NV; v++) sums[r][v] = vi{} + x.starts[from + r * x.groups];
  for (int64_t k = 0; k < QUADS; k++) {
    vi columns[NV];
#pragma unroll
    for (int v = 0; v < NV; v++)
      columns[v] = *(const vi_any *)(weights + v / VECTORS * apart + (k * COLUMNS + v % VECTORS * VL) * 4);
#pragma unroll
    for (int r = 0; r < R; r++) {
      int32_t four;
      __builtin_memcpy(&four, bytes + r * x.groups * GROUP + k * 4, 4);
#pragma unroll
      for (int v = 0; v < NV; v++) sums[r][v] = add_products(sums[r][v], vi{} + four, columns[v]);
    }
  }
#pragma unroll
  for (int v = 0; v < NV; v++) {
    vf scale = load((const uint16_t *)(weights + v / VECTORS * apart + GROUP * COLUMNS) + v % VECTORS * VL);
#pragma unroll
    for (int r = 0; r < R; r++) {
      vf both = scale * x.scales[from + r * x.groups];
      results[r][v] = fma(__builtin_convertvector(sums[r][v], vf), both, results[r][v]);
    }
  }
}

// The bfloat16 that is not below x >= 0, so that no byte exceeds 127.
uint16_t narrowed_up(float x) {
  union { float value; uint32_t bits; } u = {x};
  return (uint16_t)((u.bits + 0xffff) >> 16);
}

void pack_group(const float *weight, int64_t count, uint8_t *bytes, uint16_t *scale) {
  float peak = 0;
  for (int64_t k = 0; k < count; k++) peak = __builtin_fabsf(weight[k]) > peak ? __builtin_fabsf(weight[k]) : peak;
  *scale = narrowed_up(peak / 127.f);
  float factor = peak > 1e-30f ? 1.f / widened(*scale) : 0.f;
  for (int64_t k = 0; k < GROUP; k++) {
    float whole = k < count ? weight[k] * factor + NEAREST - NEAREST : 0.f;
    bytes[k / 4 * COLUMNS * 4 + k % 4] = (uint8_t)((int32_t)whole + OFFSET);
  }
}

}  // namespace

int64_t OF_LEVEL(bytes_int8)(int64_t N, int64_t K) { return strips_of(N) * groups_of(K) * GROUP_BYTES; }

void OF_LEVEL(pack_int8)(const float *weight, int64_t N, int64_t K, uint8_t *packed) {
  for (int64_t n = 0; n < strips_of(N) * COLUMNS; n++)
    for (int64_t g = 0; g < groups_of(K); g++) {
      uint8_t *group = packed + (n / COLUMNS * groups_of(K) + g) * GROUP_BYTES;
      int64_t left = n < N ? K - g * GROUP : 0, count = left < GROUP ? left : GROUP, c = n % COLUMNS;
      pack_group(weight + n * K + g * GROUP, count, group + c * 4, (uint16_t *)(group + GROUP * COLUMNS) + c);
    }
}

int OF_LEVEL(linear_int8)(const Product &of) {
  int64_t groups = groups_of(of.K), all_groups = of.M * groups;
  char *room = (char *)malloc(all_groups * (GROUP + sizeof(float) + sizeof(int32_t)));
  if (!room) return NO_MEMORY;
  float *scales = (float *)(room + all_groups * GROUP);
  Tokens x{(int8_t *)room, scales, (int32_t *)(scales + all_groups), groups};
  over_rows(of, [&](int64_t m) {
    for (int64_t g = 0; g < groups; g++) {
      int64_t k = g * GROUP, count = of.K - k < GROUP ? of.K - k : GROUP, at = m * groups + g;
      x.scales[at] = quantise(of.x + m * of.K + k, count, x.bytes + at * GROUP, x.starts + at);
    }
  });
  over_strips(of, sizeof(int8_t), [&](int64_t strip, int64_t strips, int64_t row, int64_t rows, Tile &tile) {
    const int8_t *weights = (const int8_t *)of.weights + strip * groups * GROUP_BYTES;
    // Few rows wait for memory: two passes follow it side by side. More rows do not, and a strip stays near for them.
    int64_t step = rows > ROWS && rows <= 8 ? 1 : groups;
    for (int64_t g = 0; g < groups; g += step)
      in_passes(strips, rows, [&]<int R, int S>(int64_t first) {
        vf results[R][S * VECTORS];
        begin<R, S>(results, tile, first, g == 0);
        for (int64_t i = g; i < g + step; i++)
          add_group<R, S>(results, x, (row + first) * groups + i, weights + i * GROUP_BYTES, groups * GROUP_BYTES);
        end<R, S>(results, tile, first);
      });
  });
  free(room);
  return FINE;
}
