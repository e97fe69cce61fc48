// All cores for one loop. The threads are ours alone: libraries that would start some of their own
// (oneDNN, by OpenMP) run on the thread that calls them, and we share out what they do.
#pragma once

#include <cstdint>
#include <functional>

namespace sotto {

// Calls body(begin, end) on disjoint parts that cover [0, count). Parts hold at least `grain`
// items, so small loops stay on the calling thread; a nested call runs on the calling thread.
// An exception in a part is thrown again here. The parts depend on the count, the grain and the
// number of threads alone, and not on who does them: the caller does those that no other thread has
// begun (core/threads/thread_pool.h).
void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& body);

// How many parts parallel_for makes at most; at first what the machine has (or OMP_NUM_THREADS).
int thread_count();
// More than machines have cores: what OMP_NUM_THREADS asks for beyond it is not given.
inline constexpr int most_threads = 1 << 10;
// For all threads. Throws std::invalid_argument unless 1 <= count <= most_threads.
void set_thread_count(int count);

// While one lives, libraries take the thread that made it for the only one. So it is in
// parallel_for's body. oneDNN looks when a primitive is made and when it runs.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace sotto
