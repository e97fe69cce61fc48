#include "core/ranks/ranks.h"

#include <utility>

#include "core/error.h"
#include "core/ranks/rank_failure.h"

namespace sotto {

Pending::Pending(std::unique_ptr<Work> work) : work_(std::move(work)) {}

Pending::Pending(Pending&&) noexcept = default;

Pending& Pending::operator=(Pending&& other) noexcept {
  Pending ended(std::move(other));
  std::swap(work_, ended.work_);
  return *this;
}

Pending::~Pending() {
  try {
    wait();
  } catch (const RankFailure&) {
    // The next operation throws it again.
  } catch (const SystemFailure&) {
    // The device failed: the next call on it reports the error.
  }
}

void Pending::wait() {
  if (const auto work = std::exchange(work_, nullptr)) work->wait();
}

}  // namespace sotto
