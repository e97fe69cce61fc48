// Work that nobody waits for: the threads behind parallel_for do it while there is nothing else for
// them to do, as between the loops of a training step that are too short to be shared.
#pragma once

namespace sotto {

class BackgroundTask {
 public:
  // Does a piece of some ten microseconds, and returns whether there was one left. Called by
  // several threads side by side; must not throw.
  virtual bool run_chunk() = 0;

 protected:
  BackgroundTask() = default;
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;
  // Its owner has called withdraw_idle_work() before.
  ~BackgroundTask() = default;
};

// Lets threads do it from now on, unless there is other such work already, or no thread but the
// caller's (parallel.h). Returns whether they will.
bool offer_idle_work(BackgroundTask& work);
// Returns when no thread is within it; does nothing where it was not offered.
void withdraw_idle_work(BackgroundTask& work);

}  // namespace sotto
