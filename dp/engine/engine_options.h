// What private training is told: privacy, batches, clipping and noise, in one struct that is
// checked as a whole (dp/engine/validation.h).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dp/accounting/accountant.h"
#include "dp/clipping/adaptive_clipping.h"
#include "dp/clipping/clip_options.h"
#include "dp/ledger/ledger_contents.h"
#include "dp/noise/correlated/strategy_matrix.h"
#include "dp/noise/mechanism.h"
#include "memory/loss_scale.h"
#include "memory/planning/policy.h"
#include "nn/optim/schedule.h"

namespace sotto {

// Means that are to be released (MeanQuery), for the ledger's plan.
struct PlannedMeans {
  double noise_multiplier = 1;
  double sampling_rate = 1;
  std::int64_t times = 1;
};

struct EngineOptions {
  // Exactly one of the two: a noise multiplier, or an epsilon to which it is calibrated for
  // `steps`, with what the ledger's releases and planned_means leave of it.
  std::optional<double> noise_multiplier = {};
  std::optional<double> target_epsilon = {};
  // Below 1 over the population, unless allow_large_delta.
  double delta = 1e-5;
  bool allow_large_delta = false;
  // Steps that are planned; with a target epsilon no step is made that would go beyond it.
  std::int64_t steps = 0;
  // Releases of release_means() that are written into the ledger's plan beside the steps.
  std::vector<PlannedMeans> planned_means = {};
  // Proves for the relation of the ledger.
  AccountantKind accountant = AccountantKind::pld;

  // How units are drawn, and the expected number of them in a logical batch (SamplerOptions).
  Sampling sampling = Sampling::poisson;
  double logical_batch = 256;
  // Truncated Poisson alone: the most units of a batch. Cyclic Poisson alone: the groups.
  std::int64_t max_batch_size = 0;
  std::int64_t groups_in_cycle = 0;
  // The physical batch and what else decides over memory. The rows of a unit are always in one
  // physical batch. With rows_of_unit a precision that is not set is f32, whatever fits.
  memory::Policy memory = {};
  // The privacy unit, in the words of the ledger's header, which must be the same.
  std::string unit = LedgerHeader{}.unit;
  // The rows of a unit: all records of a user, or one record several times, to be augmented
  // differently. Without it row k is unit k. A unit without rows has a gradient of zero. No row may
  // belong to two units: batches are checked, and populations of up to 2^20 units when the engine
  // is made. Two rows that hold the same record cannot be recognised.
  std::function<std::vector<std::int64_t>(std::int64_t unit)> rows_of_unit = {};
  // A unit's gradient is the mean of its rows' and not their sum (De et al. 2022).
  bool mean_of_rows = false;
  // Called with the rows that the loss will be asked for next, physical batch by physical batch, in
  // this order: for prefetching (BatchLoader::prefetch). They are as SECRET as the batch itself.
  std::function<void(std::span<const std::int64_t> rows)> prefetch_rows = {};

  // The bound of all parameters together, unless there are groups with bounds of their own
  // (layer_groups, named_groups).
  double clip_bound = 1;
  std::vector<ClipGroup> groups = {};
  ClipOptions clipping = {};
  // Unset: one, or two where the memory policy has a limit that one cannot keep.
  std::optional<ClipPasses> passes = {};
  // Starts from the bounds above.
  std::optional<AdaptiveClipping> adaptive_clipping = {};
  // Every bound at step k = 0, 1, ..., from the one above; moves the noise with it.
  std::optional<nn::Schedule> bound_schedule = {};
  // The noise multiplier at step k, from the one above or the one that is found for the target.
  std::optional<nn::Schedule> noise_schedule = {};
  GaussianNoise noise = GaussianNoise::discretized;
  // Noise that is correlated over the steps, for planned and cyclic Poisson batches alone: the
  // noise multiplier is then that of the whole plan or cycle (CorrelatedMechanism). A plan needs
  // it.
  std::optional<StrategyMatrix> noise_strategy = {};
  // Of gradients in the policy's precision (norms, clipping, noise and updates are not in it). One
  // that moves on_release has the number of finite gradients released at each step, beside the
  // gradient and within the same noise multiplier, with the noise on counts of adaptive_clipping,
  // or the default of that.
  LossScaling loss_scaling = {};
  // Public randomness: dropout and the like.
  std::uint64_t seed = 0;
};

}  // namespace sotto
