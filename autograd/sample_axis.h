// The axis of a value that counts the samples. Tracking it proves that samples are independent.
#pragma once

#include <span>

#include "core/shape.h"

namespace sotto {

// Shared: equal for all samples. An axis: one slice per sample. Mixed: samples have been combined,
// which a private tape refuses.
class SampleAxis {
 public:
  // Equal for all samples.
  static constexpr SampleAxis shared() { return SampleAxis(-1); }
  // Combined from several samples.
  static constexpr SampleAxis mixed() { return SampleAxis(-2); }
  // One slice for each sample along this axis.
  constexpr SampleAxis(int axis) : axis_(axis) {}

  constexpr bool is_shared() const { return axis_ == -1; }  // equal for all samples
  constexpr bool is_mixed() const { return axis_ == -2; }   // combined from several
  // True if the value has one slice per sample.
  constexpr bool batched() const { return axis_ >= 0; }
  // The axis. Throws std::invalid_argument unless batched.
  int axis() const;
  constexpr bool operator==(const SampleAxis&) const = default;

 private:
  int axis_;
};

}  // namespace sotto
