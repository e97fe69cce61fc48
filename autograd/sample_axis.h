// Which axis of a value counts the samples: the one bit of bookkeeping that independence of
// samples is proved by.
#pragma once

#include <span>

#include "core/shape.h"

namespace sotto {

// Shared: the same for all samples. At an axis: one slice for each sample. Mixed: samples have been
// combined, which only an ordinary tape allows.
class SampleAxis {
 public:
  static constexpr SampleAxis shared() { return SampleAxis(-1); }
  static constexpr SampleAxis mixed() { return SampleAxis(-2); }
  constexpr SampleAxis(int axis) : axis_(axis) {}

  constexpr bool is_shared() const { return axis_ == -1; }
  constexpr bool is_mixed() const { return axis_ == -2; }
  // Has one slice for each sample.
  constexpr bool batched() const { return axis_ >= 0; }
  // Throws std::invalid_argument unless batched.
  int axis() const {
    check(batched(), "sample axis: a {} value has none", is_shared() ? "shared" : "mixed");
    return axis_;
  }
  constexpr bool operator==(const SampleAxis&) const = default;

 private:
  int axis_;
};

}  // namespace sotto
