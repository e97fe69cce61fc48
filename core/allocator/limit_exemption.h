// Work that must not stop half way: an update of parameters, a release that was charged.
#pragma once

namespace sotto {

// While it lives, what this thread allocates, and what parallel_for's others do for it, may pass
// the allocators' limits, and no watch refuses it. Ask for room before (Allocator::check_room).
class LimitExemption {
 public:
  explicit LimitExemption(bool exempt = true);
  LimitExemption(const LimitExemption&) = delete;
  LimitExemption& operator=(const LimitExemption&) = delete;
  ~LimitExemption();

  // Of this thread, now.
  static bool holds();

 private:
  bool before_;
};

}  // namespace sotto
