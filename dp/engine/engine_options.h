// The options of private training: privacy, batches, clipping and noise, in one struct that is
// checked as a whole (dp/engine/validation.h).
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dp/accounting/accountant.h"
#include "dp/clipping/adaptive_clipping.h"
#include "dp/clipping/clip_options.h"
#include "dp/ledger/ledger_contents.h"
#include "dp/noise/correlated/strategy_matrix.h"
#include "dp/noise/gaussian_noise.h"
#include "memory/loss_scale.h"
#include "memory/planning/policy.h"
#include "nn/optim/schedule.h"

namespace sotto {
class Ranks;
}  // namespace sotto

namespace sotto {

// A planned number of releases of means (MeanQuery), for the ledger's plan.
struct PlannedMeans {
  double noise_multiplier = 1;  // of each release
  double sampling_rate = 1;     // of each release
  std::int64_t times = 1;       // number of releases
};

// The settings of private training. Those that contradict each other are refused when an Engine is
// made.
struct EngineOptions {
  // Set exactly one of the two: the noise multiplier, or an epsilon for which it is calibrated,
  // given `steps`, planned_means and the releases that the ledger already holds.
  std::optional<double> noise_multiplier = {};
  std::optional<double> target_epsilon = {};  // finite and > 0
  // Must be below 1 / population, unless allow_large_delta.
  double delta = 1e-5;
  bool allow_large_delta = false;  // accepts larger ones
  // The planned number of steps (0: unlimited). No step that would exceed a target epsilon is made.
  std::int64_t steps = 0;
  // Planned calls of release_means(), which are written into the ledger's plan beside the steps.
  std::vector<PlannedMeans> planned_means = {};
  // The accountant, which proves epsilon for the neighboring relation in the ledger's header.
  AccountantKind accountant = AccountantKind::pld;

  // The sampling of units, and the expected number of units in a logical batch (SamplerOptions).
  Sampling sampling = Sampling::poisson;
  double logical_batch = 256;  // > 0
  // max_batch_size: maximum units of a batch, for truncated Poisson only. groups_in_cycle: for
  // cyclic Poisson only.
  std::int64_t max_batch_size = 0;
  std::int64_t groups_in_cycle = 0;  // 0: not cyclic
  // Physical batch size, memory limit, checkpoints and precision. All rows of a unit are in one
  // physical batch. With rows_of_unit the default precision is always f32, even if only 16 bits
  // would fit the limit.
  memory::Policy memory = {};
  // The privacy unit in words; must equal that of the ledger's header.
  std::string unit = LedgerHeader{}.unit;
  // Returns the rows of a unit: all records of a user, or one record several times, to be augmented
  // differently. Unset: unit k is row k. A unit without rows has a gradient of zero. A row must not
  // belong to two units: each batch is checked (on several ranks each rank's part of it), and when
  // the engine is made all units, of up to 2^20 units or on several ranks. Two rows that hold equal
  // records are not detected.
  std::function<std::vector<std::int64_t>(std::int64_t unit)> rows_of_unit = {};
  // A unit's gradient is the mean of its rows' gradients instead of their sum (De et al. 2022).
  bool mean_of_rows = false;
  // The bucket of a unit, a number from 0: units of different buckets are never in one physical
  // batch, so that texts of about one length can be cut to it (cut_to_length). It must depend on
  // the unit's own data alone, and may be private. Unset: one bucket. Refused with a memory limit:
  // what fits would depend on others' longest unit.
  std::function<std::int64_t(std::int64_t unit)> bucket_of_unit = {};
  // Called at the start of a step with the rows of all its physical batches, in order, so that a
  // loader can prefetch them (BatchLoader::prefetch). They are as SECRET as the batch itself.
  std::function<void(std::span<const std::int64_t> rows)> prefetch_rows = {};

  // The clip bound of all parameters together. It is unused if there are groups, which have bounds
  // of their own (layer_groups, named_groups).
  double clip_bound = 1;
  // Bounds for groups of parameters; empty: one group of all with clip_bound.
  std::vector<ClipGroup> groups = {};
  // Clip rule, norm method and budget.
  ClipOptions clipping = {};
  // Unset: one pass, or two if one pass cannot keep the memory policy's limit; one with rows_of_unit.
  std::optional<ClipPasses> passes = {};
  // Adapts the bounds, which start from those above.
  std::optional<AdaptiveClipping> adaptive_clipping = {};
  // The schedule of every clip bound over steps 0, 1, ..., starting from the one above. The noise
  // is scaled with the bound.
  std::optional<nn::Schedule> bound_schedule = {};
  // The schedule of the noise multiplier, starting from the one above or the calibrated one.
  std::optional<nn::Schedule> noise_schedule = {};
  // Exact noise on a grid, or noise in floating point.
  GaussianNoise noise = GaussianNoise::discretized;
  // Noise correlated over the steps (matrix factorization), for planned and cyclic Poisson sampling
  // only; planned sampling requires it. The noise multiplier is then that of the whole plan or
  // cycle (CorrelatedMechanism).
  std::optional<StrategyMatrix> noise_strategy = {};
  // Loss scaling for gradients in the policy's 16-bit precision (norms, clipping, noise and updates
  // are in f32 or f64). Adjust::on_release releases the number of finite gradients at each step,
  // within the step's noise multiplier, with the standard deviation that adaptive_clipping (or its
  // default) sets for counts.
  memory::LossScaling loss_scaling = {};
  // The seed of public randomness, such as dropout.
  std::uint64_t seed = 0;
  // The ranks of a distributed run. Null: the ledger's ranks if it has any, else a single process
  // (an error under mpirun or srun with several). Every rank runs the same program with the same
  // options, on a ledger by Ledger::on_rank_0. Rank 0 draws the batches; each rank computes the
  // units that it owns, and draws the noise and keeps the optimizer's state for some of the
  // elements. f32 weights have the same bits for every number of ranks; sums for f64 parameters are
  // added in the order of ranks, and the same up to rounding. Throws if ranks differ in: options,
  // parameter values, the Dataset, floating-point results. With several ranks also refuses:
  // floating-point noise; a memory limit with owner_of_unit. A memory limit is each process's,
  // without the buffers of messages, and not for threads.
  std::shared_ptr<Ranks> ranks = nullptr;
  // Returns the owner of a unit, a number from 0: rank `owner` modulo the number of ranks alone
  // asks for the unit's rows, and calls the loss with them. It must be PUBLIC, a function of the
  // unit's number, and the same on all ranks. Unset: pieces of the population, for which every rank
  // has the data. When the engine is made, several ranks check that each unit has one owner. The
  // bits depend on the owners, not on the number of ranks. Give units the numbers that they have in
  // the whole data, which key dropout.
  std::function<std::int64_t(std::int64_t unit)> owner_of_unit = {};
};

}  // namespace sotto
