// The threads behind parallel_for. Whoever has work does it itself and never waits for a thread to
// begin, only for parts that were begun: on a machine that is busy with other things, loops seldom
// take longer than on one thread, where a barrier would wait for a thread that has no core, some
// milliseconds each time.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "core/threads/background_work.h"

namespace sotto {

class ThreadPool {
 public:
  // One for the process; it lives as long as that, since its threads do. After a fork the child's
  // has no threads, and callers do everything themselves; a part must not fork and go on in both.
  static ThreadPool& instance();

  // Calls part(k) once for each k in [0, parts): on this thread those that no thread of the pool
  // has begun. Up to parts - 1 threads help. While another caller has the pool, all are done here.
  // part must not throw.
  void run(int parts, const std::function<void(int)>& part);

  static constexpr int most_parts = 1 << 15;

  // Up to `threads` threads of the pool call work.run_chunk() while they have no parts to do.
  // Returns false, and nothing happens, while there is other such work.
  bool offer(BackgroundTask& work, int threads);
  // Returns when no thread is within `work`, and none will be.
  void withdraw(BackgroundTask& work);

 private:
  // What the threads share of a run: its number, how many parts there are, and the next to begin,
  // in one word, so that whoever takes a part knows that the run is not over before it is done.
  struct alignas(std::uint64_t) Ticket {
    std::uint32_t run;
    std::uint16_t parts, next;
  };
  static_assert(std::atomic<Ticket>::is_always_lock_free);

  ThreadPool() = default;
  bool do_next();
  bool do_idle();
  void grow(int threads);
  void work();
  void wait_for_others();

  std::atomic<Ticket> ticket_{};
  std::atomic<const std::function<void(int)>*> part_{nullptr};
  std::atomic<int> unfinished_{0};
  std::atomic<int> runs_{0};  // wakes the threads
  std::atomic<BackgroundTask*> idle_{nullptr};
  std::atomic<int> idlers_{0};  // that may be within it
  std::atomic_flag taken_;
  int threads_ = 0;
  std::atomic<int> process_{0};  // whose threads they are
};

}  // namespace sotto
