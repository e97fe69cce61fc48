// Parallel loops over all cores, on one thread pool of the library's own. Other libraries with
// threads (oneDNN, by OpenMP) run single-threaded inside it.
#pragma once

#include <cstdint>
#include <functional>

namespace sotto {

// Calls body(begin, end) on disjoint ranges that cover [0, count). A range has at least `grain`
// items, so a small loop runs on the calling thread, as does a nested call. An exception in a range
// is rethrown here. The ranges depend only on the count, the grain and the number of threads, not
// on the thread that executes them: the caller executes those that no other thread has begun
// (core/threads/thread_pool.h).
void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& body);

// The largest number of ranges of parallel_for; initially the number of cores (or OMP_NUM_THREADS).
int thread_count();
// An upper limit beyond any machine's cores; a larger OMP_NUM_THREADS is reduced to it.
inline constexpr int max_threads = 1 << 10;
// Sets the number of threads for the process. Throws std::invalid_argument unless 1 <= count <=
// max_threads.
void set_thread_count(int count);

// While one lives, OpenMP libraries run single-threaded on the thread that made it, as in
// parallel_for's body. oneDNN reads the number of threads when a primitive is made and when it
// runs.
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
