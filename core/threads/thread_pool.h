// The threads behind parallel_for. The caller executes parts itself and waits only for parts that
// other threads have begun, never for a thread to begin. On a busy machine a loop therefore seldom
// takes longer than on one thread, whereas a barrier would wait milliseconds for a descheduled
// thread.
#pragma once

#include <functional>
#include <memory>

#include "core/threads/background_work.h"

namespace sotto {

class ThreadPool {
 public:
  // The pool of the process, which is never destroyed, because its threads live as long as the
  // process. After a fork the child's pool has no threads and callers execute everything
  // themselves; a part must not fork and continue in both processes.
  static ThreadPool& instance();

  // Calls part(k) once for each k in [0, parts). Up to parts - 1 threads of the pool help; this
  // thread executes the parts that none of them has begun, and all of them while another caller
  // uses the pool. `part` must not throw.
  void run(int parts, const std::function<void(int)>& part);

  static constexpr int max_parts = 1 << 15;

  // Up to `threads` threads of the pool call work.run_chunk() while they have no parts. Returns
  // false, and changes nothing, if other work is already offered.
  bool offer(BackgroundTask& work, int threads);
  // Returns when no thread is inside `work`, and none will enter it.
  void withdraw(BackgroundTask& work);

 private:
  struct State;
  ThreadPool();

  std::unique_ptr<State> state_;
};

}  // namespace sotto
