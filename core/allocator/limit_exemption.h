// Exempts work that must not stop half way: an update of parameters, a release that was charged.
#pragma once

namespace sotto {

// While it lives, allocations of this thread, and of the threads that run its parallel_for, may
// exceed the allocators' limits, and no observer refuses them. Check for memory before
// (Allocator::check_room).
class LimitExemption {
 public:
  explicit LimitExemption(bool exempt = true);
  LimitExemption(const LimitExemption&) = delete;
  LimitExemption& operator=(const LimitExemption&) = delete;
  ~LimitExemption();

  // True while this thread is exempt.
  static bool holds();

 private:
  bool before_;
};

}  // namespace sotto
