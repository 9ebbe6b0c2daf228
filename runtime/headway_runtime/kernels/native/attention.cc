// Writes the keys and values of a step into the cache, then attends. `library.cc` has checked every number before.
#include "attention.h"

#include <stdlib.h>

namespace {

constexpr double MULTIPLIED = 25;  // products in a nanosecond, as attention goes
constexpr double WORTH = 30000;    // nanoseconds below which one thread does it: waking another costs some 6000

INLINE void put(float *to, float x) { *to = x; }
INLINE void put(uint16_t *to, float x) { *to = narrowed(x); }

template <typename E> void write(const Attention &of) {
  for (int64_t head = 0; head < of.Hk; head++)
    for (int64_t token = 0; token < of.T; token++) {
      int64_t slot = of.slots[token];
      if (slot < 0) continue;
      int64_t place = (slot / BLOCK * of.Hk + head) * BLOCK * of.D;
      const float *k = of.k + token * of.k_token + head * of.k_head;
      const float *v = of.v + token * of.v_token + head * of.v_head;
      E *key = (E *)of.keys + place + slot % BLOCK, *value = (E *)of.values + place + slot % BLOCK * of.D;
      for (int64_t d = 0; d < of.D; d++) put(key + d * BLOCK, k[d]);
      for (int64_t d = 0; d < of.D; d++) put(value + d, v[d]);
    }
}

template <typename E> void attend_part(const Piece &piece, int64_t part, Partial &partial) {
  const Attention &of = piece.of;
  alignas(64) float q[TILE * WIDEST];
  for (int64_t row = 0; row < piece.tile.rows; row++) {
    const float *from = of.q + piece.token(row) * of.q_token + piece.query_head(row) * of.q_head;
    for (int64_t d = 0; d < of.D; d += VL) store(q + row * of.D + d, load(from + d) * (float)of.scale);
    partial.greatest[row] = -__builtin_inff();
    partial.weight[row] = 0;
    __builtin_memset(partial.values + row * of.D, 0, of.D * sizeof(float));
  }
  int64_t first = part * PART, last = Piece::smaller_of(first + PART, piece.end());
  if (first < piece.begin()) first = piece.begin() / CHUNK * CHUNK;
  alignas(64) Scores scores;
  for (; first < last; first += CHUNK) {
    Chunk<E> chunk(piece, q, first);
    chunk.score(scores);
    chunk.soften(scores, partial);
    chunk.add_values(scores, partial);
  }
}

// Joins a later part to what was joined before; exact where one of them saw nothing.
void join(const Piece &piece, Partial &joined, const Partial &part) {
  int64_t D = piece.of.D;
  for (int64_t row = 0; row < piece.tile.rows; row++) {
    float a = joined.greatest[row], b = part.greatest[row];
    if (b == -__builtin_inff() && part.weight[row] == 0) continue;
    float greatest = b > a ? b : a;
    float of_a = a == greatest ? 1.f : exponential(a - greatest), of_b = b == greatest ? 1.f : exponential(b - greatest);
    joined.greatest[row] = greatest;
    joined.weight[row] = joined.weight[row] * of_a + part.weight[row] * of_b;
    for (int64_t d = row * D; d < (row + 1) * D; d += VL)
      store(joined.values + d, load(joined.values + d) * of_a + load(part.values + d) * of_b);
  }
}

void finish(const Piece &piece, const Partial &partial) {
  const Attention &of = piece.of;
  for (int64_t row = 0; row < piece.tile.rows; row++) {
    float *to = of.out + (piece.token(row) * of.Hq + piece.query_head(row)) * of.D;
    float factor = 1.f / partial.weight[row];
    for (int64_t d = 0; d < of.D; d += VL) store(to + d, load(partial.values + row * of.D + d) * factor);
  }
}

template <typename E> void attend_whole(const Piece &piece) {
  alignas(64) float values[2][TILE * WIDEST];
  Partial joined, part;
  joined.values = values[0];
  part.values = values[1];
  for (int64_t number = 0; number < piece.parts(); number++) {
    attend_part<E>(piece, piece.first_part() + number, number ? part : joined);
    if (number) join(piece, joined, part);
  }
  finish(piece, joined);
}

// One part of a tile; who finishes the tile's last one joins them.
struct Task {
  int64_t tile, part;
};
struct Joint {
  int64_t first, left;  // its tasks, and how many of them are not done
};

template <typename E>
int attend_parts(const Attention &of, const TileOf *tiles, int64_t count, int64_t parts) {
  int64_t numbers = TILE * of.D;
  size_t bytes = parts * (sizeof(Task) + sizeof(Partial) + numbers * sizeof(float)) + count * sizeof(Joint);
  char *room = (char *)malloc(bytes);
  if (!room) return NO_MEMORY;
  Partial *partials = (Partial *)room;
  Task *tasks = (Task *)(partials + parts);
  Joint *joints = (Joint *)(tasks + parts);
  float *values = (float *)(joints + count);
  for (int64_t tile = 0, next = 0; tile < count; tile++) {
    Piece piece(of, tiles[tile]);
    joints[tile] = {next, piece.parts()};
    for (int64_t part = 0; part < piece.parts(); part++, next++) {
      tasks[next] = {tile, piece.first_part() + part};
      partials[next].values = values + next * numbers;
    }
  }
  in_parallel(parts, of.threads, [&](int64_t number) {
    Piece piece(of, tiles[tasks[number].tile]);
    Joint &joint = joints[tasks[number].tile];
    attend_part<E>(piece, tasks[number].part, partials[number]);
    if (__atomic_sub_fetch(&joint.left, 1, __ATOMIC_ACQ_REL)) return;
    Partial &joined = partials[joint.first];
    for (int64_t part = 1; part < piece.parts(); part++) join(piece, joined, partials[joint.first + part]);
    finish(piece, joined);
  });
  free(room);
  return FINE;
}

template <typename E> int attend(const Attention &of) {
  write<E>(of);
  int64_t group = of.Hq / of.Hk, count = 0, parts = 0;
  for (int64_t b = 0; b < of.B; b++) count += ((of.starts[b + 1] - of.starts[b]) * group + TILE - 1) / TILE * of.Hk;
  if (!count) return FINE;
  TileOf *tiles = (TileOf *)malloc(count * sizeof(TileOf));
  if (!tiles) return NO_MEMORY;
  double products = 0;
  int64_t next = 0;
  for (int64_t b = 0; b < of.B; b++) {
    int64_t rows = (of.starts[b + 1] - of.starts[b]) * group;
    for (int64_t head = 0; head < of.Hk; head++)
      for (int64_t first = 0; first < rows; first += TILE) {
        TileOf &tile = tiles[next++] = {b, head, first, Piece::smaller_of(TILE, rows - first)};
        Piece piece(of, tile);
        parts += piece.parts();
        products += 2. * tile.rows * of.D * (piece.end() - piece.begin());
      }
  }
  int64_t threads = products / MULTIPLIED < WORTH ? 1 : of.threads;
  int failure = FINE;
  if (threads > 1 && count < 4 * threads && parts > count)
    failure = attend_parts<E>(of, tiles, count, parts);
  else
    in_parallel(count, threads, [&](int64_t number) { attend_whole<E>(Piece(of, tiles[count - 1 - number])); });
  free(tiles);
  return failure;
}

}  // namespace

int OF_LEVEL(attend)(const Attention *of) { return of->bfloat16 ? attend<uint16_t>(*of) : attend<float>(*of); }
