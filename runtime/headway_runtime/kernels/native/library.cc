// What Python calls: it chooses the level for this processor, and checks every number before memory is touched.
#include <stdlib.h>
#include <string.h>

#include "headway.h"
#include "vectors.h"

#if defined(__x86_64__) && LANES == 8
#include <cpuid.h>
extern const Level level_avx2, level_avx512, level_avx512_bf16;
#else  // one level, which every processor of this kind has
extern const Level OF_LEVEL(level);
#endif

#define EXPORT extern "C" __attribute__((visibility("default")))

// What this file was built from: `build_kernels.py` finds it in the binary, and builds again when it is another.
EXPORT const char headway_kernels_key[] = "headway-kernels-key:" BUILD_KEY;

// Bytes of what calls hand over: `library.py` compares them with those that it packs.
EXPORT const int64_t headway_layout[] = {sizeof(Attention), sizeof(Linear)};

namespace {

#if defined(__x86_64__) && LANES == 8
const Level *const LEVELS[] = {&level_avx2, &level_avx512, &level_avx512_bf16};

bool bit(unsigned word, int number) { return word >> number & 1; }

// Whether the system keeps these registers when it switches between threads: bits of XCR0.
bool kept(unsigned wanted) {
  unsigned low, high;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (low & wanted) == wanted;
}

int best() {
  unsigned a, b, c, d;
  if (!__get_cpuid(1, &a, &b, &c, &d) || !bit(c, 27) || !bit(c, 12) || !bit(c, 28) || !kept(0x6)) return -1;  // FMA, AVX
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !bit(b, 5) || !bit(b, 8) || !bit(b, 3)) return -1;  // AVX2, BMI2, BMI1
  bool wide = bit(b, 16) && bit(b, 17) && bit(b, 28) && bit(b, 30) && bit(b, 31);  // F, DQ, CD, BW, VL
  if (!wide || !bit(c, 11) || !kept(0xe6)) return 0;                                // VNNI
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && bit(a, 5) ? 2 : 1;              // BF16
}
#else
const Level *const LEVELS[] = {&OF_LEVEL(level)};
int best() { return 0; }
#endif

int check(const Attention &of) {
  if (of.T < 0 || of.B < 0 || of.M < 0 || of.blocks < 1 || of.Hk < 1 || of.Hq < 1 || of.D < 1) return BAD_SIZES;
  if (of.Hq % of.Hk || of.D % 8 || of.D > WIDEST || of.window < 0) return BAD_SIZES;
  if (of.starts[0] != 0 || of.starts[of.B] != of.T) return BAD_STARTS;
  for (int64_t b = 0; b < of.B; b++) {
    int64_t added = (int64_t)of.starts[b + 1] - of.starts[b], length = of.lengths[b];
    if (added < 0) return STARTS_GO_BACK;
    if (length < added) return TOO_SHORT;
    if (length > of.M * BLOCK) return TOO_LONG;
    for (int64_t n = 0; n < (length + BLOCK - 1) / BLOCK; n++) {
      int64_t block = of.tables[b * of.M + n];
      if (block < 0 || block >= of.blocks) return BAD_BLOCK;
    }
  }
  for (int64_t t = 0; t < of.T; t++)
    if (of.slots[t] < -1 || of.slots[t] >= of.blocks * BLOCK) return BAD_SLOT;
  return FINE;
}

bool fits(int64_t kind, int64_t N, int64_t K) {
  constexpr int64_t MOST = 1 << 16;  // of K: a sum of products of bytes stays within 32 bits; of N: no product overflows
  return kind >= FLOAT32 && kind <= INT8 && N > 0 && K > 0 && N < MOST << 12 && K <= MOST;
}

int multiply(const Linear &of, const Part *parts, int64_t count, int64_t rows) {
  Product product{of, parts, count, rows};
  return LEVELS[of.level]->linear(&product);
}

int multiply_some(const Linear &of) {
  if (of.B < 1 || of.M % of.B) return BAD_LENGTHS;
  int64_t span = of.M / of.B, rows = 0;
  for (int64_t b = 0; b < of.B; b++) {
    if (of.lengths[b] < 0 || of.lengths[b] > span) return BAD_LENGTHS;
    rows += of.lengths[b];
  }
  Part *parts = (Part *)malloc((rows / PIECE + of.B) * sizeof(Part));  // each b has one at most that is not full
  if (!parts) return NO_MEMORY;
  int64_t count = 0;
  for (int64_t b = 0; b < of.B; b++) {
    int64_t length = of.lengths[b], row = b * span, end = row + length;
    memset(of.y + end * of.N, 0, (span - length) * of.N * sizeof(float));
    for (; row < end; row += parts[count++].rows) parts[count] = {row, end - row < PIECE ? end - row : PIECE};
  }
  int failure = rows ? multiply(of, parts, count, rows) : FINE;
  free(parts);
  return failure;
}

}  // namespace

// Levels that this processor can run are 0 to the result; -1: none.
EXPORT int headway_best(void) { return best(); }
EXPORT const char *headway_level(int64_t level) { return LEVELS[level]->name; }

// Bytes of a packed weight [N, K]; 0 where it cannot be.
EXPORT int64_t headway_linear_bytes(int64_t level, int64_t kind, int64_t N, int64_t K) {
  return fits(kind, N, K) ? LEVELS[level]->linear_bytes(kind, N, K) : 0;
}

EXPORT int headway_linear_pack(int64_t level, int64_t kind, const float *weight, int64_t N, int64_t K, void *packed) {
  if (!fits(kind, N, K)) return BAD_SIZES;
  LEVELS[level]->linear_pack(kind, weight, N, K, packed);
  return FINE;
}

EXPORT int headway_linear(const Linear *of) {
  if (!fits(of->kind, of->N, of->K) || of->M < 0 || of->M >= 1 << 28) return BAD_SIZES;
  if (!of->M) return FINE;
  return of->lengths ? multiply_some(*of) : multiply(*of, nullptr, 0, of->M);
}

EXPORT int headway_attend(const Attention *of) {
  int failure = check(*of);
  if (failure || !of->T) return failure;
  return LEVELS[of->D % 16 ? 0 : of->level]->attend(of);  // the first level has vectors of 8 or fewer
}
