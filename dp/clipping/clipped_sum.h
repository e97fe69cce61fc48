// The result of a clipper: a sum with a known sensitivity, and statistics of the batch.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace sotto {

class SampledBatch;

// The sum of the clipped gradients of a batch's privacy units, made by Clipper::finish(). It is not
// private until a mechanism releases it, so its values cannot be read. It can be moved but not
// copied, and a release uses it up. A sum that was moved from throws std::invalid_argument.
class ClippedSum {
 public:
  // Moving leaves the other one empty: it throws std::invalid_argument when used.
  ClippedSum(ClippedSum&&) noexcept;
  // Moving leaves the other one empty: it throws std::invalid_argument when used.
  ClippedSum& operator=(ClippedSum&&) noexcept;
  ~ClippedSum();
  // The largest L2 distance, over all parameters, by which one unit can change the sum, rounding
  // included.
  double sensitivity() const;
  // The number of clip groups.
  std::int64_t groups() const;
  // True if the number of finite gradients was counted (ClipOptions::count_finite).
  bool counts_finite() const;
  // The batch whose units were summed.
  const SampledBatch& draw() const;

 private:
  friend class ClipperState;
  friend class Mechanism;
  struct Content;
  explicit ClippedSum(std::unique_ptr<Content> content);
  Content& content() const;
  std::unique_ptr<Content> content_;
};

}  // namespace sotto
