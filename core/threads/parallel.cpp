#include "core/threads/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>

#include <omp.h>

#include "core/allocator/limit_exemption.h"
#include "core/allocator/memory_label.h"
#include "core/error.h"
#include "core/threads/thread_pool.h"

namespace sotto {

namespace {

static_assert(max_threads <= ThreadPool::max_parts);

thread_local bool in_part = false;

// Sets in_part while it lives.
class InPart {
 public:
  InPart() { in_part = true; }
  ~InPart() { in_part = false; }
  InPart(const InPart&) = delete;
  InPart& operator=(const InPart&) = delete;
};

std::atomic<int>& threads() {
  static std::atomic<int> count{std::min(omp_get_max_threads(), max_threads)};
  return count;
}

}  // namespace

OneThread::OneThread() : before_(omp_get_max_threads()) {
  if (before_ != 1) omp_set_num_threads(1);
}

OneThread::~OneThread() {
  if (before_ != 1) omp_set_num_threads(before_);
}

void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (count <= 0) return;
  const std::int64_t max = in_part || omp_in_parallel() ? 1 : thread_count();
  const std::int64_t parts = std::min(count / std::max<std::int64_t>(grain, 1), max);
  const OneThread one;
  if (parts <= 1) return body(0, count);
  std::mutex mutex;
  std::exception_ptr failure;
  const MemoryLabel label = memory_label();
  const void* const owner = memory_owner();
  const bool exempt = LimitExemption::holds();
  ThreadPool::instance().run(static_cast<int>(parts), [&](int part) {
    const OneThread one_here;
    const InPart here;
    const LabelScope scope(label, owner);
    const LimitExemption exemption(exempt);
    try {
      body(count * part / parts, count * (part + 1) / parts);
    } catch (...) {
      const std::lock_guard lock(mutex);
      failure = std::current_exception();
    }
  });
  if (failure) std::rethrow_exception(failure);
}

bool offer_background_work(BackgroundTask& work) {
  const int others = thread_count() - 1;
  return !in_part && ThreadPool::instance().offer(work, others);
}

void withdraw_background_work(BackgroundTask& work) { ThreadPool::instance().withdraw(work); }

int thread_count() { return threads(); }

void set_thread_count(int count) {
  check(count >= 1 && count <= max_threads, "set_thread_count: {} threads", count);
  threads() = count;
}

}  // namespace sotto
