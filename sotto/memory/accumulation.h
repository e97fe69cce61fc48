// Ordinary training on batches of any size: the gradient of the mean loss, computed in physical
// batches. (Private training does the same in dp/engine.h.)
#pragma once

#include <functional>
#include <optional>
#include <span>

#include "sotto/autograd/tape.h"
#include "sotto/memory/phases.h"
#include "sotto/memory/physical_batches.h"
#include "sotto/memory/policy.h"
#include "sotto/nn/optimizer.h"

namespace sotto::memory {

class Accumulation {
 public:
  // One loss for each row, [rows], on the given tape.
  using Loss = std::function<Var(Tape& tape, std::span<const std::int64_t> rows)>;
  struct Result {
    Gradients gradients;  // of the mean of all losses
    double loss_sum = 0;
  };

  // Throws std::invalid_argument for a policy that is out of range.
  explicit Accumulation(const Policy& policy);

  // The rows' losses and the gradient of their mean. Each part has a tape with the options, on
  // which rows are numbered as in one with all of them. When memory runs out it goes on in smaller
  // parts, down to a single row. The first call finds the physical batch, where the policy leaves
  // it open, with room for the optimizer's state; throws std::invalid_argument, with bytes, when
  // not even one row keeps the limit.
  Result mean_gradient(const Loss& loss, std::span<const std::int64_t> rows,
                       const nn::Optimizer& optimizer, const TapeOptions& options = {});

  // The most rows that are computed at once; nothing before they were found.
  std::optional<std::int64_t> physical_batch() const;
  // "forward" and "backward"; others may be entered.
  PhaseClock& phases() { return phases_; }
  const PhaseClock& phases() const { return phases_; }

 private:
  struct Batch {
    const Loss& loss;
    std::span<const std::int64_t> rows;
    const TapeOptions& options;
  };
  void fit(const Batch& batch, const nn::Optimizer& optimizer);

  Policy policy_;
  std::optional<PhysicalBatches> parts_;
  PhaseClock phases_;
};

}  // namespace sotto::memory
