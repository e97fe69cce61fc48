// Chooses the strategy that computes steps within a limit of bytes: among those that the policy
// allows, the one with the least recomputation, with as many rows at once as fit.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "memory/planning/batch_size_search.h"
#include "nn/optim/optimizer.h"

namespace sotto::memory {

// The recomputation and the settings of a strategy.
struct StrategyCost {
  double recomputation = 0;  // in forward passes
  std::string text = {};     // further settings: "recomputes modules 0 .. 4 of 9"
};

// A strategy: one way to compute a step.
struct Strategy {
  std::string name;                     // "two passes, bf16"
  std::function<StrategyCost()> apply;  // switches steps and dry runs to this strategy.
};

// A batch of fewer rows leaves much of the machine idle: a strategy with room for this many rows is
// preferred to one without, even if it recomputes more.
inline constexpr std::int64_t useful_rows = 8;

// The memory that a step needs, and the limit.
struct MemoryRequirement {
  PeakOf peak_of;          // measures peak bytes by a dry run under the strategy applied last
  std::int64_t min = 1;    // rows that must be computed together
  std::int64_t max = 1;    // rows that are ever needed at once
  std::size_t update = 0;  // peak bytes while parameters are updated (update_bytes)
  std::size_t limit = 0;   // bytes

  // The smaller of useful_rows and `max`, but at least `min`.
  std::int64_t useful() const;
};

// The chosen strategy, and all that were tried.
struct Plan {
  struct Considered {
    std::string name;      // of the strategy
    double recomputation;  // in forward passes
    BatchSizeSearch fit;   // rows that fit
    std::string text;      // of StrategyCost
  };
  std::vector<Considered> considered;  // in the order in which they were tried
  std::size_t chosen = 0;              // index of the chosen one
  std::size_t update = 0, limit = 0;   // bytes, of the MemoryRequirement

  // The chosen strategy's batch size; `measured` is the predicted peak of a physical batch.
  const BatchSizeSearch& fit() const { return considered[chosen].fit; }
  // The choice and the reasons against the other strategies, predicted and measured: a few lines,
  // or a JSON object.
  std::string text() const;
  std::string json() const;
};

// Applies the first strategy, in order of preference, that fits useful() rows, else the first that
// fits `min` rows. Throws std::invalid_argument, with the bytes, when none does or the update
// does not fit.
Plan choose_strategy(std::span<const Strategy> strategies, const MemoryRequirement& requirement);

// The device of the first parameter, or the CPU if there are none.
template <class P>
Device device_of(const std::vector<P*>& parameters) {
  return parameters.empty() ? cpu : parameters.front()->value.device();
}
inline Device device_of(const nn::Optimizer& optimizer) {
  return device_of(optimizer.parameters());
}

// Peak bytes during the optimizer's next step with a gradient for every parameter: the bytes in use
// now, gradients, state still to be made, and the rule's temporaries for the largest parameter.
std::size_t update_bytes(const nn::Optimizer& optimizer);

}  // namespace sotto::memory
