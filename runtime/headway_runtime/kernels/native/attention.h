// Attention of some query rows of one sequence and key head to one part of its cache.
//
// Rows are (token, query head of the group) pairs, so that all heads that share keys read them once. Keys are read in
// CHUNKs with an online softmax (Milakov and Gimelshein, 2018); a PART is finished alone and parts are joined in order,
// as in Flash-Decoding. Chunks and parts lie at fixed positions of the sequence: a row's bits do not depend on the tile
// that it is in, on the tokens beside it, or on the number of threads.
#pragma once
#include "headway.h"
#include "multiply.h"

namespace {

constexpr int CHUNK = 64;   // tokens: four blocks
constexpr int PART = 256;   // tokens
constexpr int TILE = 24;    // rows
constexpr int BLOCKS = CHUNK / BLOCK;

// What a part leaves: of each row the greatest score, the sum of the weights, and the weighted sum of the values.
struct Partial {
  float greatest[TILE], weight[TILE];
  float *values;  // [TILE][D]
};

// Rows of one sequence and key head. `first` counts rows, not tokens.
struct TileOf {
  int64_t sequence, head, first, rows;
};

struct Scores {
  float at[TILE][CHUNK];
};

struct Piece {
  const Attention &of;
  const TileOf &tile;
  int64_t group, position;  // query heads of a key head; position of the sequence's first new token

  explicit Piece(const Attention &a, const TileOf &t) : of(a), tile(t), group(a.Hq / a.Hk) {
    position = a.lengths[t.sequence] - (a.starts[t.sequence + 1] - a.starts[t.sequence]);
  }
  int64_t at(int64_t row) const { return position + (tile.first + row) / group; }
  int64_t token(int64_t row) const { return of.starts[tile.sequence] + (tile.first + row) / group; }
  int64_t query_head(int64_t row) const { return tile.head * group + (tile.first + row) % group; }
  int64_t begin() const { return of.window ? larger_of(at(0) - of.window + 1, 0) : 0; }
  int64_t end() const { return at(tile.rows - 1) + 1; }
  int64_t first_part() const { return begin() / PART; }
  int64_t parts() const { return (end() + PART - 1) / PART - first_part(); }
  static int64_t larger_of(int64_t a, int64_t b) { return a > b ? a : b; }
  static int64_t smaller_of(int64_t a, int64_t b) { return a < b ? a : b; }
};

template <typename E> struct Chunk {
  const Piece &piece;
  const float *q;  // [TILE][D], scaled
  int64_t first;   // token
  int64_t count;   // tokens that any row sees, from there
  const E *keys[BLOCKS], *values[BLOCKS];

  Chunk(const Piece &p, const float *scaled, int64_t from) : piece(p), q(scaled), first(from) {
    const Attention &of = p.of;
    count = Piece::smaller_of(CHUNK, p.end() - from);
    for (int64_t b = 0; b < BLOCKS; b++) {
      int64_t number = Piece::smaller_of(from / BLOCK + b, (p.end() - 1) / BLOCK);
      int64_t block = of.tables[p.tile.sequence * of.M + number];
      int64_t place = (block * of.Hk + p.tile.head) * BLOCK * of.D;
      keys[b] = (const E *)of.keys + place;
      values[b] = (const E *)of.values + place;
    }
  }

  void score(Scores &scores) const {
    constexpr int TOKENS = COLUMNS < CHUNK ? COLUMNS : CHUNK;
    int64_t D = piece.of.D;
    for (int token = 0; token < count; token += TOKENS)
      in_groups(piece.tile.rows, [&]<int R>(int64_t row) {
        vf sums[R][VECTORS] = {};
        const E *columns[VECTORS];
        for (int v = 0; v < VECTORS; v++) {
          int at = token + v * VL;
          columns[v] = keys[at / BLOCK] + at % BLOCK;
        }
        multiply<R, VECTORS>(sums, q + row * D, D, columns, BLOCK, D);
        for (int r = 0; r < R; r++)
          for (int v = 0; v < VECTORS; v++) store(scores.at[row + r] + token + v * VL, sums[r][v]);
      });
  }

  // Scores become weights; what a row had before is scaled down where a greater score comes.
  void soften(Scores &scores, Partial &partial) const {
    const Attention &of = piece.of;
    vf place = {};
    for (int i = 0; i < VL; i++) place[i] = (float)i;
    for (int64_t row = 0; row < piece.tile.rows; row++) {
      int64_t at = piece.at(row) - first;
      float last = (float)at, least = of.window ? (float)(at - of.window + 1) : 0.f;
      float *score = scores.at[row];
      vf greatest = all(-__builtin_inff());
      for (int c = 0; c < CHUNK; c += VL) {
        vf s = load(score + c), token = place + (float)c;
        if (of.softcap > 0) s = hyperbolic_tangent(s * (float)(1 / of.softcap)) * (float)of.softcap;
        s = token > last ? all(-__builtin_inff()) : s;
        s = token < least ? all(-__builtin_inff()) : s;
        store(score + c, s);
        greatest = s > greatest ? s : greatest;
      }
      float before = partial.greatest[row], now = most(greatest);
      now = now > before ? now : before;
      if (now == -__builtin_inff()) {  // nothing is seen yet, or NaN alone: then the weights stay 0, and 0 / 0 is NaN
        for (int c = 0; c < CHUNK; c++) score[c] = 0;
        continue;
      }
      vf weights{};
      for (int c = 0; c < CHUNK; c += VL) {
        vf w = exponential(load(score + c) - now);
        store(score + c, w);
        weights += w;
      }
      float factor = before == now ? 1.f : exponential(before - now);
      partial.weight[row] = partial.weight[row] * factor + sum(weights);
      partial.greatest[row] = now;
      if (factor != 1.f)
        for (int64_t d = 0; d < of.D; d += VL) {
          float *value = partial.values + row * of.D + d;
          store(value, load(value) * factor);
        }
    }
  }

  template <int NV> void add_columns(const Scores &scores, Partial &partial, int64_t d) const {
    int64_t D = piece.of.D;
    in_groups(piece.tile.rows, [&]<int R>(int64_t row) {
      vf sums[R][NV];
      float *to = partial.values + row * D + d;
      for (int r = 0; r < R; r++)
        for (int v = 0; v < NV; v++) sums[r][v] = load(to + r * D + v * VL);
      for (int64_t token = 0; token < count; token += BLOCK) {
        const E *columns[NV];
        for (int v = 0; v < NV; v++) columns[v] = values[token / BLOCK] + d + v * VL;
        multiply<R, NV>(sums, scores.at[row] + token, CHUNK, columns, D, Piece::smaller_of(BLOCK, count - token));
      }
      for (int r = 0; r < R; r++)
        for (int v = 0; v < NV; v++) store(to + r * D + v * VL, sums[r][v]);
    });
  }

  void add_values(const Scores &scores, Partial &partial) const {
    int64_t D = piece.of.D, d = 0;
    for (; d + COLUMNS <= D; d += COLUMNS) add_columns<VECTORS>(scores, partial, d);
    for (; d < D; d += VL) add_columns<1>(scores, partial, d);
  }
};

}  // namespace
