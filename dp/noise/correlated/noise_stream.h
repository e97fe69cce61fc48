// Multiplication of noise by C^-1, one step at a time, in integers: the noise that a mechanism
// adds. The stream stores past noise and must be kept as secret.
#pragma once

#include <span>

#include "core/tensor.h"
#include "dp/noise/correlated/strategy_matrix.h"

namespace sotto {

// y_t = z_t - round(m_t), where m_t = sum_(j < t) C[t, j] y_j depends on past noise only. The
// rounded number is within 3/4 of m_t, and equals it for a tree.
// docs/appendix/proofs-correlated-noise.md proves that this keeps the privacy of the Gaussian
// mechanism.
class CorrelatedNoiseStream {
 public:
  // For `elements` elements, each with a stream of its own.
  CorrelatedNoiseStream(StrategyMatrix strategy, std::int64_t elements);

  // Turns z into y for elements first, first + 1, ... at the current step. Call it once for each
  // element of a step, in any order.
  void correlate(std::int64_t first, std::span<std::int64_t> noise);
  // Moves to the next step.
  void advance() { ++step_; }

  const StrategyMatrix& strategy() const { return strategy_; }
  std::int64_t step() const { return step_; }
  std::int64_t elements() const { return memory_.size(1); }
  // The largest standard deviation, for z of standard deviation 1, of y and of the numbers stored.
  double spread() const;

  // The stored numbers, i64 [slots, elements]: past noise (banded; bands - 1 slots), the nodes in
  // use (tree; one for each level) or the buffers. SECRET.
  const Tensor& memory() const { return memory_; }
  // Continues at a step with a copy of that step's memory. Throws std::invalid_argument for a step
  // outside [0, steps] and for another shape or dtype.
  void resume(std::int64_t step, const Tensor& memory);

 private:
  StrategyMatrix strategy_;
  int fraction_bits_ = 0;  // of the buffers
  std::int64_t step_ = 0;
  Tensor memory_;
};

}  // namespace sotto
