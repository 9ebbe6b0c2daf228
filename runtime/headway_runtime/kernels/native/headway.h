// The C interface of the library, and what its levels (code for one kind of processor) offer to it.
#pragma once
#include <stdint.h>

constexpr int BLOCK = 16;  // tokens of a block of the cache: BLOCK_TOKENS in prepare/decoder.py
constexpr int WIDEST = 512;  // numbers of a head that attention has room for: WIDEST in library.py

// One call of the attention operator; `library.py` packs it. Strides are in elements; the last axis is dense.
struct Attention {
  const float *q, *k, *v;      // [T, Hq, D], [T, Hk, D], [T, Hk, D]
  float *out;                  // [T, Hq, D], dense
  void *keys, *values;         // [blocks, Hk, D, BLOCK], [blocks, Hk, BLOCK, D], float or bfloat16
  const int32_t *tables;       // [B, M]
  const int32_t *lengths;      // [B]
  const int32_t *starts;       // [B + 1]
  const int64_t *slots;        // [T]
  int64_t q_token, q_head, k_token, k_head, v_token, v_head;  // strides
  int64_t T, B, M, blocks, Hq, Hk, D, window, bfloat16, threads, level;
  double scale, softcap;
};

constexpr int64_t PIECE = 96;  // rows of a product that are computed together, at most

// Rows of a product: `rows` from `row` on.
struct Part {
  int64_t row, rows;
};

// One product y = x W^T + b; `linear.py` packs it. Where there are lengths, its rows are [B, M / B]: the first
// `lengths[b]` of each b are multiplied, and the others of y become 0.
struct Linear {
  const float *x;          // [M, K], dense
  const void *weights;     // as `pack` wrote them
  const float *bias;       // [N] or null
  float *y;                // [M, N], dense
  const int64_t *lengths;  // [B] or null
  int64_t M, N, K, kind, threads, level, B;
};

// The same for the levels: `count` parts of at most PIECE rows, all within x and y; null: all M rows.
struct Product : Linear {
  const Part *parts;
  int64_t count, rows;  // in all parts
};

enum Kind { FLOAT32 = 0, BFLOAT16 = 1, INT8 = 2 };

// A part of a loop: the body is called for each of `total` numbers once, from several threads.
typedef void (*Body)(void *context, int64_t number);
void in_parallel(int64_t total, int64_t threads, Body body, void *context);

template <typename F> void in_parallel(int64_t total, int64_t threads, const F &f) {
  in_parallel(total, threads, [](void *context, int64_t number) { (*(const F *)context)(number); }, (void *)&f);
}

struct Level {
  const char *name;
  int64_t (*linear_bytes)(int64_t kind, int64_t N, int64_t K);
  void (*linear_pack)(int64_t kind, const float *weight, int64_t N, int64_t K, void *packed);
  int (*linear)(const Product *);
  int (*attend)(const Attention *);
};

// What a call returns; `library.py` has a sentence for each.
enum Failure {
  FINE = 0,
  NO_MEMORY = 1,
  BAD_STARTS = 2,
  STARTS_GO_BACK = 3,
  TOO_SHORT = 4,
  TOO_LONG = 5,
  BAD_SLOT = 6,
  BAD_BLOCK = 7,
  BAD_SIZES = 8,
  BAD_LENGTHS = 9,
};
