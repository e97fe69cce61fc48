#include "core/threads/thread_pool.h"

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>

#include <unistd.h>

namespace sotto {

namespace {

// The loops of a training step follow each other within microseconds, less than it takes to wake a
// sleeping thread. Idle threads therefore poll this often before they sleep, and yield the core now
// and then.
constexpr int looks = 2000, looks_between_yields = 50;

// Polls ready(); returns false if it did not become true in `looks` tries.
template <class F>
bool look_for(const F& ready) {
  for (int look = 1; look <= looks; ++look) {
    if (ready()) return true;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
    if (look % looks_between_yields == 0) std::this_thread::yield();
  }
  return false;
}

}  // namespace

// The numbers that the callers and the pool's threads share.
struct ThreadPool::State {
  // The state of a run: its number, the number of parts, and the next part. It is one atomic word,
  // so that a thread that takes a part knows that the run cannot end before it.
  struct alignas(std::uint64_t) Ticket {
    std::uint32_t run;
    std::uint16_t parts, next;
  };
  static_assert(std::atomic<Ticket>::is_always_lock_free);

  bool do_next();
  bool do_background();
  void grow(int threads);
  void work();
  void wait_for_others();

  std::atomic<Ticket> ticket{};
  std::atomic<const std::function<void(int)>*> part{nullptr};
  std::atomic<int> unfinished{0};
  std::atomic<int> runs{0};  // changes wake the threads
  std::atomic<BackgroundTask*> idle{nullptr};
  std::atomic<int> idlers{0};  // threads that may be inside the background work
  std::atomic_flag taken;
  int threads = 0;
  std::atomic<int> process{0};  // the process that started the threads
};

ThreadPool::ThreadPool() : state_(std::make_unique<State>()) {}

ThreadPool& ThreadPool::instance() {
  static auto* const pool = new ThreadPool;
  return *pool;
}

// Executes the next part of the run that no thread has begun, if there is one. Taking a part keeps
// the run, and thus *part, alive. If the run ended meanwhile, the ticket has changed and the
// exchange fails.
bool ThreadPool::State::do_next() {
  Ticket now = ticket.load(std::memory_order_acquire);
  while (now.next < now.parts) {
    const auto* const function = part.load(std::memory_order_relaxed);
    Ticket next = now;
    ++next.next;
    if (!ticket.compare_exchange_weak(now, next, std::memory_order_acq_rel)) continue;
    (*function)(now.next);
    if (unfinished.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished.notify_one();
    return true;
  }
  return false;
}

// Increments the count before it reads `idle`, so that withdraw() waits for this thread.
bool ThreadPool::State::do_background() {
  if (idle.load(std::memory_order_relaxed) == nullptr) return false;
  idlers.fetch_add(1);
  BackgroundTask* const work = idle.load();
  const bool did = work != nullptr && work->run_chunk();
  idlers.fetch_sub(1);
  return did;
}

bool ThreadPool::offer(BackgroundTask& work, int threads) {
  BackgroundTask* none = nullptr;
  if (threads < 1 || !state_->idle.compare_exchange_strong(none, &work)) return false;
  if (!state_->taken.test_and_set(std::memory_order_acquire)) {
    state_->grow(threads);
    state_->taken.clear(std::memory_order_release);
  }
  state_->runs.fetch_add(1, std::memory_order_release);
  for (int thread = 0; thread < threads; ++thread) state_->runs.notify_one();
  return true;
}

void ThreadPool::withdraw(BackgroundTask& work) {
  BackgroundTask* here = &work;
  if (!state_->idle.compare_exchange_strong(here, nullptr)) return;
  // After a fork the child has neither the threads nor the background work they were doing.
  if (state_->process != getpid()) return state_->idlers.store(0);
  while (state_->idlers.load() != 0) std::this_thread::yield();
}

void ThreadPool::State::work() {
  for (int seen = 0;;) {
    while (do_next() || do_background()) {
    }
    if (!look_for([&] { return runs.load(std::memory_order_relaxed) != seen; })) runs.wait(seen);
    seen = runs.load(std::memory_order_acquire);
  }
}

void ThreadPool::State::grow(int wanted) {
  if (threads == 0) process = getpid();
  try {
    for (; threads < wanted; ++threads) std::thread([this] { work(); }).detach();
  } catch (const std::exception&) {
    // The machine has no thread or memory left; fewer threads suffice.
  }
}

// A thread that has begun a part has a core, or had one when it began, so polling comes first.
void ThreadPool::State::wait_for_others() {
  if (look_for([&] { return unfinished.load(std::memory_order_acquire) == 0; })) return;
  for (int left = unfinished.load(); left != 0; left = unfinished.load()) unfinished.wait(left);
}

void ThreadPool::run(int parts, const std::function<void(int)>& part) {
  if (parts <= 1 || parts > max_parts || state_->taken.test_and_set(std::memory_order_acquire)) {
    for (int k = 0; k < parts; ++k) part(k);
    return;
  }
  state_->grow(parts - 1);
  state_->part.store(&part, std::memory_order_relaxed);
  state_->unfinished.store(parts, std::memory_order_relaxed);
  const State::Ticket last = state_->ticket.load(std::memory_order_relaxed);
  state_->ticket.store({last.run + 1, static_cast<std::uint16_t>(parts), 0},
                       std::memory_order_release);
  state_->runs.fetch_add(1, std::memory_order_release);
  for (int helper = 1; helper < parts; ++helper) state_->runs.notify_one();
  while (state_->do_next()) {
  }
  state_->wait_for_others();
  state_->taken.clear(std::memory_order_release);
}

}  // namespace sotto
