// The noise multiplier of every step: where it starts, how a schedule moves it, and what the steps
// are accounted as.
#pragma once

#include <memory>

#include "dp/engine/engine_options.h"
#include "dp/ledger/ledger.h"
#include "dp/noise/mechanism.h"
#include "dp/sampling/sampler.h"

namespace sotto {

class NoiseSchedule {
 public:
  // Starts from the options' noise multiplier, or from the one that is calibrated to their target
  // epsilon, with what the ledger's releases and planned means leave of it. Throws
  // std::invalid_argument when they leave nothing. The options and the sampler outlive it.
  NoiseSchedule(const EngineOptions& options, const Sampler& sampler, const Ledger& ledger);

  double initial() const { return initial_; }
  void set_initial(double noise_multiplier) { initial_ = noise_multiplier; }
  // The noise multiplier of a step.
  double noise_at(std::int64_t step) const;
  // What the steps from one to before another will be accounted as, from where the sampler stands.
  EventCounts planned(std::int64_t from, std::int64_t to) const;
  // All steps and the planned means.
  EventCounts whole_plan() const;

  // The standard deviation of the noise on counts that are released with the gradient; 0 for none.
  double unclipped_count_stddev(double expected_batch_size) const;
  // Throws std::invalid_argument when the counts of so many clip groups leave the gradient nothing
  // of the noise multiplier at some step.
  void check_counts(std::size_t groups) const;

  std::unique_ptr<Mechanism> make_mechanism() const;

 private:
  const EngineOptions& options_;
  const Sampler& sampler_;
  double initial_;
};

// Whether the number of finite gradients is released with the gradient.
bool counts_finite(const EngineOptions& options);

}  // namespace sotto
