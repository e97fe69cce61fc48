#include "sotto/core/parallel.h"

#include <algorithm>
#include <exception>

#include <omp.h>

#include "sotto/core/error.h"
#include "sotto/core/limit_exemption.h"
#include "sotto/core/memory_label.h"

namespace sotto {

void parallel_for(std::int64_t count, std::int64_t grain,
                  const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (count <= 0) return;
  const std::int64_t most = count / std::max<std::int64_t>(grain, 1);
  const std::int64_t parts = std::min<std::int64_t>(omp_in_parallel() ? 1 : thread_count(), most);
  if (parts <= 1) return body(0, count);
  std::exception_ptr failure;
  const MemoryLabel label = memory_label();
  const void* const owner = memory_owner();
  const bool exempt = LimitExemption::holds();
#pragma omp parallel for num_threads(static_cast <int>(parts)) schedule(static, 1)
  for (std::int64_t part = 0; part < parts; ++part) {
    const LabelScope scope(label, owner);
    const LimitExemption exemption(exempt);
    try {
      body(count * part / parts, count * (part + 1) / parts);
    } catch (...) {
#pragma omp critical
      failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

int thread_count() { return omp_get_max_threads(); }

void set_thread_count(int count) {
  check(count >= 1, "set_thread_count: {} threads", count);
  omp_set_num_threads(count);
}

}  // namespace sotto
