#include "core/threads/thread_pool.h"

#include <exception>
#include <thread>

#include <unistd.h>

namespace sotto {

namespace {

// Between the loops of a training step pass some microseconds, which is less than it takes to wake
// a thread that sleeps: threads look for so long, and now and then let others have the core.
constexpr int looks = 2000, looks_between_yields = 50;

// Whether `ready` was found before it took too long.
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

// Does a part of the run that nobody has begun, if there is one. A part that is taken keeps the run
// going, and with it what part_ points to; if the run is over by then, another is in the ticket.
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

// Counted before it looks, so that whoever takes the work away waits.
bool ThreadPool::do_idle() {
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
  // A fork left the threads behind, and what they did.
  if (process_ != getpid()) return idlers_.store(0);
  while (idlers_.load() != 0) std::this_thread::yield();
}

void ThreadPool::work() {
  for (int seen = 0;;) {
    while (do_next() || do_idle()) {
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
    // The machine has no thread or no memory left for us: fewer will do.
  }
}

// Those who have begun a part have a core, or had one when they began.
void ThreadPool::wait_for_others() {
  if (look_for([&] { return unfinished_.load(std::memory_order_acquire) == 0; })) return;
  for (int left = unfinished_.load(); left != 0; left = unfinished_.load()) unfinished_.wait(left);
}

void ThreadPool::run(int parts, const std::function<void(int)>& part) {
  if (parts <= 1 || parts > most_parts || taken_.test_and_set(std::memory_order_acquire)) {
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
