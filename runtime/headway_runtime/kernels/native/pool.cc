// Threads for loops. They wait in the kernel, never spinning: CPU seconds are what a pod pays for.
//
// The caller works too, and waits only for threads that have joined: one that wakes late finds the gate closed and
// sleeps on, so a busy machine costs parallelism but never a wait. Threads are made when first needed, after the
// sandbox. One loop has them at a time; another engine's loop meanwhile runs on its own thread alone.
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "headway.h"

namespace {

constexpr uint32_t OPEN = 1u << 31;  // in `gate`; the rest counts the threads that have joined
constexpr int MOST = 255;
constexpr int STEPS = 200;  // looks at the gate before the caller sleeps: about a microsecond

struct Pool {
  uint32_t taken = 0;  // a loop has the threads
  uint32_t round = 0;  // what sleeping threads wait on
  uint32_t gate = 0;
  int threads = 0;
  Body body = nullptr;
  void *context = nullptr;
  int64_t total = 0;
  alignas(64) int64_t next = 0;
} pool;

template <typename T> T get(T *at) { return __atomic_load_n(at, __ATOMIC_ACQUIRE); }

void sleep_while(uint32_t *at, uint32_t value) { syscall(SYS_futex, at, FUTEX_WAIT_PRIVATE, value, nullptr); }
void wake(uint32_t *at, int threads) { syscall(SYS_futex, at, FUTEX_WAKE_PRIVATE, threads); }

void work() {
  for (;;) {
    int64_t number = __atomic_fetch_add(&pool.next, 1, __ATOMIC_RELAXED);
    if (number >= pool.total) return;
    pool.body(pool.context, number);
  }
}

bool join() {
  uint32_t gate = get(&pool.gate);
  while (gate & OPEN)
    if (__atomic_compare_exchange_n(&pool.gate, &gate, gate + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) return true;
  return false;
}

void leave() {
  if (__atomic_sub_fetch(&pool.gate, 1, __ATOMIC_ACQ_REL) == 0) wake(&pool.gate, 1);
}

void *live(void *) {
  for (uint32_t seen = 0;;) {
    uint32_t round = get(&pool.round);
    if (round == seen) {
      sleep_while(&pool.round, seen);
      continue;
    }
    seen = round;
    if (join()) {
      work();
      leave();
    }
  }
}

// Signals are for the thread that runs Python.
void grow(int threads) {
  sigset_t every, before;
  sigfillset(&every);
  pthread_sigmask(SIG_SETMASK, &every, &before);
  while (pool.threads < threads) {
    pthread_t thread;
    if (pthread_create(&thread, nullptr, live, nullptr)) break;
    pthread_detach(thread);
    pool.threads++;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void close_gate() {
  uint32_t gate = __atomic_and_fetch(&pool.gate, ~OPEN, __ATOMIC_ACQ_REL);
  for (int step = 0; gate && step < STEPS; step++) gate = get(&pool.gate);
  for (; gate; gate = get(&pool.gate)) sleep_while(&pool.gate, gate);
}

}  // namespace

void in_parallel(int64_t total, int64_t threads, Body body, void *context) {
  int64_t others = (threads < total ? threads : total) - 1;
  if (others > MOST) others = MOST;
  if (others <= 0 || __atomic_exchange_n(&pool.taken, 1, __ATOMIC_ACQUIRE)) {
    for (int64_t number = 0; number < total; number++) body(context, number);
    return;
  }
  if (pool.threads < others) grow((int)others);
  pool.body = body;
  pool.context = context;
  pool.total = total;
  pool.next = 0;
  __atomic_store_n(&pool.gate, OPEN, __ATOMIC_RELEASE);
  __atomic_add_fetch(&pool.round, 1, __ATOMIC_RELEASE);
  wake(&pool.round, (int)others);
  work();
  close_gate();
  __atomic_store_n(&pool.taken, 0, __ATOMIC_RELEASE);
}
