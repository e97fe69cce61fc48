// The noise multiplier of every step: its initial value, its schedule, and the events as which the
// steps are accounted.
#pragma once

#include <memory>

#include "dp/engine/engine_options.h"
#include "dp/ledger/ledger.h"
#include "dp/noise/mechanism.h"
#include "dp/sampling/sampler.h"

namespace sotto {

class NoiseSchedule {
 public:
  // Starts from the options' noise multiplier, or from the one calibrated for the part of their
  // target epsilon that the ledger's releases and the planned means leave. Throws
  // std::invalid_argument if they leave none. The options, with their ranks, and the sampler must
  // outlive this object. Collective.
  NoiseSchedule(const EngineOptions& options, const Sampler& sampler, const Ledger& ledger);

  double initial() const { return initial_; }
  void set_initial(double noise_multiplier) { initial_ = noise_multiplier; }
  // The noise multiplier of a step.
  double noise_at(std::int64_t step) const;
  // The events as which steps `from` to `to` - 1 are accounted, given the sampler's position now.
  EventCounts planned(std::int64_t from, std::int64_t to) const;
  // The events of all steps and of the planned means.
  EventCounts whole_plan() const;

  // The standard deviation of the noise on counts released with the gradient; 0 if there are none.
  double unclipped_count_stddev(double expected_batch_size) const;
  // Throws std::invalid_argument if, at some step, the counts of this many clip groups alone are
  // less private than the noise multiplier allows, so that no noise on the gradient could suffice.
  void check_counts(std::size_t groups) const;

  std::unique_ptr<Mechanism> make_mechanism() const;

 private:
  const EngineOptions& options_;
  const Sampler& sampler_;
  double initial_;
};

// True if the number of finite gradients is released with the gradient.
bool counts_finite(const EngineOptions& options);

}  // namespace sotto
