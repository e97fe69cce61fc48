// Chooses how a step is computed, so that it keeps a limit of bytes: of the ways that a policy
// leaves open, the one that computes least twice, with the most rows at once.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "memory/planning/batch_size_search.h"
#include "nn/optim/optimizer.h"

namespace sotto::memory {

// What a way to compute a step comes to.
struct StrategyCost {
  double recomputation = 0;  // what is computed again, in forward passes
  std::string text = {};     // what its name does not say: "runs 0 .. 4 of 9 modules again"
};

// One way to compute a step.
struct Strategy {
  std::string name;                     // "two passes, bf16"
  std::function<StrategyCost()> apply;  // from now on steps and dry runs are computed in this way
};

// Fewer rows at once leave much of the machine idle: a way in which so many fit is preferred to one
// with less recomputation in which they do not.
inline constexpr std::int64_t useful_rows = 8;

// What has to fit.
struct MemoryRequirement {
  PeakOf peak_of;          // dry runs in the way that was entered last
  std::int64_t least = 1;  // rows that cannot be parted
  std::int64_t most = 1;   // more are never needed at once
  std::size_t update = 0;  // bytes in use at once while parameters are updated (update_bytes)
  std::size_t limit = 0;   // bytes

  // useful_rows, or the most, if that is less.
  std::int64_t useful() const;
};

struct Plan {
  struct Considered {
    std::string name;
    double recomputation;
    BatchSizeSearch fit;
    std::string text;  // of Entered
  };
  std::vector<Considered> considered;  // in the order in which they were tried
  std::size_t chosen = 0;              // of these
  std::size_t update = 0, limit = 0;   // bytes, as in Demand

  // Its `measured` is the peak that computing a physical batch is predicted to have.
  const BatchSizeSearch& fit() const { return considered[chosen].fit; }
  // What was chosen and why no other way, predicted and measured: a few lines, or a JSON object.
  std::string text() const;
  std::string json() const;
};

// Of ways in the order of preference, enters the first in which useful() rows fit, else the first
// in which the least fit. Throws std::invalid_argument, with bytes, when none does or the update
// does not.
Plan choose_strategy(std::span<const Strategy> strategies, const MemoryRequirement& requirement);

// Where parameters are: of the first of them, or the CPU where there are none.
template <class P>
Device device_of(const std::vector<P*>& parameters) {
  return parameters.empty() ? cpu : parameters.front()->value.device();
}
inline Device device_of(const nn::Optimizer& optimizer) {
  return device_of(optimizer.parameters());
}

// Bytes that have to be free for the optimizer's next step with a gradient for every parameter, and
// those in use now: these, gradients, state that is still to be made, and the rule's temporaries
// for the largest parameter.
std::size_t update_bytes(const nn::Optimizer& optimizer);

}  // namespace sotto::memory
