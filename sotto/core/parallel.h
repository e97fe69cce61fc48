// Both cores for one loop. One thread pool serves us and oneDNN, so that they never compete.
#pragma once

#include <cstdint>
#include <functional>

namespace sotto {

// Calls body(begin, end) on disjoint parts that cover [0, count). Parts hold at least `grain`
// items, so small loops stay on the calling thread; a nested call runs on the calling thread.
// An exception in a part is thrown again here. The parts depend on the count, the grain and the
// number of threads alone.
void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t begin, std::int64_t end)>& body);

// How many threads parallel_for may use; at first what the machine has (or OMP_NUM_THREADS).
int thread_count();
// Throws std::invalid_argument unless count >= 1.
void set_thread_count(int count);

}  // namespace sotto
