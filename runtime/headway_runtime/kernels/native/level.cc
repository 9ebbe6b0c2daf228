// One level's functions, for `library.cc` to choose from.
#include "linear.h"

int OF_LEVEL(attend)(const Attention *of);

namespace {

int64_t bytes(int64_t kind, int64_t N, int64_t K) {
  if (kind == FLOAT32) return strips_of(N) * COLUMNS * K * (int64_t)sizeof(float);
  return kind == INT8 ? OF_LEVEL(bytes_int8)(N, K) : OF_LEVEL(bytes_bfloat16)(N, K);
}

void pack(int64_t kind, const float *weight, int64_t N, int64_t K, void *packed) {
  if (kind == FLOAT32) return OF_LEVEL(pack_float)(weight, N, K, (float *)packed);
  if (kind == INT8) return OF_LEVEL(pack_int8)(weight, N, K, (uint8_t *)packed);
  OF_LEVEL(pack_bfloat16)(weight, N, K, (uint16_t *)packed);
}

int run(const Product *of) {
  if (of->kind == INT8) return OF_LEVEL(linear_int8)(*of);
  if (of->kind == BFLOAT16) return OF_LEVEL(linear_bfloat16)(*of);
  OF_LEVEL(linear_float)(*of);
  return FINE;
}

#define STRING(x) #x
#define NAME(x) STRING(x)

}  // namespace

extern const Level OF_LEVEL(level);
const Level OF_LEVEL(level) = {NAME(LEVEL), bytes, pack, run, OF_LEVEL(attend)};
