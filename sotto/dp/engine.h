// Private training, tied together: the sampler draws, the loss is computed in physical batches, the
// clipper bounds each unit, the mechanism adds noise and writes the ledger, the optimizer steps.
// One state holds the clip bound, the noise multiplier and the sampling rate, so that they cannot
// disagree.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "sotto/dp/mechanism.h"
#include "sotto/dp/rdp_accountant.h"
#include "sotto/memory/phases.h"
#include "sotto/nn/optimizer.h"

namespace sotto {

struct EngineOptions {
  // Exactly one of the two: a noise multiplier, or an epsilon to which it is calibrated for
  // `steps`.
  std::optional<double> noise_multiplier;
  std::optional<double> target_epsilon;
  // Below 1 over the population, unless allow_large_delta.
  double delta = 1e-5;
  bool allow_large_delta = false;
  // Steps that are planned; with a target epsilon no step is made that would go beyond it.
  std::int64_t steps = 0;
  // The expected number of units in a logical batch; the sampling rate is this over the population.
  double logical_batch = 256;
  // The most rows that are computed at once; a unit's are never parted.
  std::int64_t physical_batch = 512;
  // The rows of a unit: all records of a user, or one record several times, to be augmented
  // differently. Without it row k is unit k. A unit without rows has a gradient of zero.
  std::function<std::vector<std::int64_t>(std::int64_t unit)> rows_of_unit;
  // A unit's gradient is the mean of its rows' and not their sum (De et al. 2022).
  bool mean_of_rows = false;
  double clip_bound = 1;
  GaussianNoise noise = GaussianNoise::rounded;
  ClipOptions clipping;
  ClipPasses passes = ClipPasses::one;
  // Public randomness: dropout and the like.
  std::uint64_t seed = 0;
};

// One noisy step happened. The statistics are NOT private.
struct StepReport {
  std::int64_t step = 0;  // how many have been made, this one included
  double epsilon = 0;     // spent so far
  const ClipStatistics* statistics = nullptr;
};

class Engine {
 public:
  // One loss for each row, [rows], on the given private tape. A row may come twice.
  using Loss = std::function<Var(Tape& tape, std::span<const std::int64_t> rows)>;

  // Trains the parameters of `model` that are not frozen now. The model, the optimizer and the
  // ledger must outlive the engine. Steps and privacy continue from what the ledger holds. Throws
  // std::invalid_argument, with all problems at once (dp/validation.h), for options that are out of
  // range or disagree, and for an optimizer that has other parameters than the model trains.
  Engine(nn::Module& model, nn::Optimizer& optimizer, std::int64_t population, Ledger& ledger,
         const EngineOptions& options);

  // Whether another step is planned and within the target epsilon.
  bool can_step() const;
  // One logical step; an empty batch is an ordinary step, with noise added and charged. When the
  // loss throws, nothing is released or charged. Throws std::invalid_argument when can_step() is
  // false.
  StepReport step(const Loss& loss);

  // Spent so far, by the ledger; infinite when the ledger is marked as not private.
  double epsilon() const;
  double delta() const { return options_.delta; }
  double noise_multiplier() const { return mechanism_.noise_multiplier(); }
  const Sampler& sampler() const { return sampler_; }
  const Mechanism& mechanism() const { return mechanism_; }
  const Clipper& clipper() const { return clipper_; }
  // Steps made by this engine's model; set when training is resumed from a checkpoint.
  std::int64_t steps_made() const { return steps_made_; }
  void resume_at(std::int64_t steps_made);
  const PhaseClock& phases() const { return phases_; }

 private:
  // Rows that are computed together, and whose they are.
  struct Part {
    std::vector<std::int64_t> rows;
    Grouping grouping;
  };
  std::vector<Part> parts_of(const Draw& draw) const;
  void add_part(const Loss& loss, Part part, std::int64_t first_row);

  EngineOptions options_;
  nn::Optimizer& optimizer_;
  Ledger& ledger_;
  PoissonSampler sampler_;
  Clipper clipper_;
  GaussianMechanism mechanism_;
  RdpAccountant spent_;
  RdpAccountant next_;  // what will be spent after one more step
  std::int64_t steps_made_ = 0;
  PhaseClock phases_;
};

}  // namespace sotto
