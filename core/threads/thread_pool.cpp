#include "core/threads/thread_pool.h"

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

ThreadPool& ThreadPool::instance() {
  static auto* const pool = new ThreadPool;
  return *pool;
}

// Executes the next part of the run that no thread has begun, if there is one. Taking a part keeps
// the run, and thus *part_, alive. If the run ended meanwhile, the ticket has changed and the
// exchange fails.
bool ThreadPool::do_next() {
  Ticket ticket = ticket_.load(std::memory_order_acquire);
  while (ticket.next < ticket.parts) {
    const auto* const part = part_.load(std::memory_order_relaxed);
    Ticket taken = ticket;
    ++taken.next;
    if (!ticket_.compare_exchange_weak(ticket, taken, std::memory_order_acq_rel)) continue;
    (*part)(ticket.next);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
    return true;
  }
  return false;
}

// Increments the count before it reads idle_, so that withdraw() waits for this thread.
bool ThreadPool::do_background() {
  if (idle_.load(std::memory_order_relaxed) == nullptr) return false;
  idlers_.fetch_add(1);
  BackgroundTask* const work = idle_.load();
  const bool did = work != nullptr && work->run_chunk();
  idlers_.fetch_sub(1);
  return did;
}

bool ThreadPool::offer(BackgroundTask& work, int threads) {
  BackgroundTask* none = nullptr;
  if (threads < 1 || !idle_.compare_exchange_strong(none, &work)) return false;
  if (!taken_.test_and_set(std::memory_order_acquire)) {
    grow(threads);
    taken_.clear(std::memory_order_release);
  }
  runs_.fetch_add(1, std::memory_order_release);
  for (int thread = 0; thread < threads; ++thread) runs_.notify_one();
  return true;
}

void ThreadPool::withdraw(BackgroundTask& work) {
  BackgroundTask* here = &work;
  if (!idle_.compare_exchange_strong(here, nullptr)) return;
  // After a fork the child has neither the threads nor the background work they were doing.
  if (process_ != getpid()) return idlers_.store(0);
  while (idlers_.load() != 0) std::this_thread::yield();
}

void ThreadPool::work() {
  for (int seen = 0;;) {
    while (do_next() || do_background()) {
    }
    if (!look_for([&] { return runs_.load(std::memory_order_relaxed) != seen; })) runs_.wait(seen);
    seen = runs_.load(std::memory_order_acquire);
  }
}

void ThreadPool::grow(int threads) {
  if (threads_ == 0) process_ = getpid();
  try {
    for (; threads_ < threads; ++threads_) std::thread([this] { work(); }).detach();
  } catch (const std::exception&) {
    // The machine has no thread or memory left; fewer threads suffice.
  }
}

// A thread that has begun a part has a core, or had one when it began, so polling comes first.
void ThreadPool::wait_for_others() {
  if (look_for([&] { return unfinished_.load(std::memory_order_acquire) == 0; })) return;
  for (int left = unfinished_.load(); left != 0; left = unfinished_.load()) unfinished_.wait(left);
}

void ThreadPool::run(int parts, const std::function<void(int)>& part) {
  if (parts <= 1 || parts > max_parts || taken_.test_and_set(std::memory_order_acquire)) {
    for (int k = 0; k < parts; ++k) part(k);
    return;
  }
  grow(parts - 1);
  part_.store(&part, std::memory_order_relaxed);
  unfinished_.store(parts, std::memory_order_relaxed);
  const Ticket last = ticket_.load(std::memory_order_relaxed);
  ticket_.store({last.run + 1, static_cast<std::uint16_t>(parts), 0}, std::memory_order_release);
  runs_.fetch_add(1, std::memory_order_release);
  for (int helper = 1; helper < parts; ++helper) runs_.notify_one();
  while (do_next()) {
  }
  wait_for_others();
  taken_.clear(std::memory_order_release);
}

}  // namespace sotto
