// Background work: the threads of parallel_for do it while they are idle, as between the loops of a
// training step that are too short to be shared.
#pragma once

namespace sotto {

// Work in small chunks, such as noise generated before it is needed.
class BackgroundTask {
 public:
  // Does about ten microseconds of work; returns false if none was left. Several threads call it at
  // once; it must not throw.
  virtual bool run_chunk() = 0;

 protected:
  BackgroundTask() = default;
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;
  // The owner must have called withdraw_background_work() before.
  ~BackgroundTask() = default;
};

// Offers `work` to the idle threads. Returns false if other work is already offered, or if there is
// no thread besides the caller's (parallel.h).
bool offer_background_work(BackgroundTask& work);
// Withdraws `work` and returns when no thread is inside it; does nothing if it was not offered.
void withdraw_background_work(BackgroundTask& work);

}  // namespace sotto
