#include "dp/engine/validation.h"

#include <algorithm>
#include <cmath>

#include "core/ranks/launcher.h"
#include "dp/accounting/truncation.h"
#include "dp/clipping/clipper.h"
#include "dp/engine/disjoint_rows.h"
#include "dp/engine/unit_owners.h"
#include "memory/checkpointing/model_checkpoints.h"

namespace sotto {

namespace {

class Problems {
 public:
  template <class... Args>
  void unless(bool ok, fmt::format_string<Args...> text, Args&&... args) {
    if (!ok) found_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  // Calls `attempt`; a std::invalid_argument that it throws is a problem.
  template <class Attempt>
  void from(const Attempt& attempt) {
    try {
      attempt();
    } catch (const std::invalid_argument& error) {
      found_.emplace_back(error.what());
    }
  }
  std::size_t number() const { return found_.size(); }
  std::vector<std::string> all() && { return std::move(found_); }

 private:
  std::vector<std::string> found_;
};

bool positive(double x) { return x > 0 && std::isfinite(x); }

void check_privacy(Problems& problems, std::int64_t population, const EngineOptions& options) {
  const bool noise = options.noise_multiplier.has_value(),
             target = options.target_epsilon.has_value();
  problems.unless(noise != target, "give a noise multiplier or a target epsilon: {} given",
                  noise ? "both" : "neither");
  if (noise) {
    problems.unless(*options.noise_multiplier >= 0 && std::isfinite(*options.noise_multiplier),
                    "noise multiplier {}", *options.noise_multiplier);
  }
  if (target) {
    problems.unless(positive(*options.target_epsilon), "target epsilon {}",
                    *options.target_epsilon);
    problems.unless(options.steps >= 1, "a target epsilon needs the number of steps: {}",
                    options.steps);
  }
  const bool probability = options.delta > 0 && options.delta < 1;
  problems.unless(probability, "delta {} outside (0, 1)", options.delta);
  problems.unless(!probability || population < 1 || options.allow_large_delta ||
                      options.delta * static_cast<double>(population) < 1,
                  "delta {} is not below 1 / {} units: releasing one record as it is would be "
                  "within it (allow_large_delta, if that is meant)",
                  options.delta, population);
}

void check_sizes(Problems& problems, std::int64_t population, const EngineOptions& options) {
  problems.unless(population >= 1, "a population of {}", population);
  problems.unless(
      options.logical_batch > 0 && options.logical_batch <= static_cast<double>(population),
      "a logical batch of {} from {} units", options.logical_batch, population);
  for (const std::string& problem : options.memory.problems())
    problems.unless(false, "{}", problem);
  problems.unless(options.steps >= 0, "{} steps", options.steps);
  problems.unless(positive(options.clip_bound), "clip bound {}", options.clip_bound);
}

bool contains(const auto& all, const Parameter* p) {
  return std::find(all.begin(), all.end(), p) != all.end();
}

void check_groups(Problems& problems, nn::Module& model, const EngineOptions& options) {
  if (options.groups.empty()) return;
  for (const auto& [name, parameter] : model.named_parameters()) {
    const auto in = std::count_if(
        options.groups.begin(), options.groups.end(),
        [p = parameter](const ClipGroup& group) { return contains(group.parameters, p); });
    problems.unless(in == 1 || !parameter->trainable,
                    "parameter {} is trained and in {} clip groups", name, in);
    problems.unless(in == 0 || parameter->trainable, "parameter {} is frozen and in a clip group",
                    name);
  }
  for (std::size_t k = 0; k < options.groups.size(); ++k) {
    problems.unless(positive(options.groups[k].bound), "clip group {} has a bound of {}", k,
                    options.groups[k].bound);
    problems.unless(!options.groups[k].parameters.empty(), "clip group {} has no parameters", k);
  }
}

void check_adaptive(Problems& problems, const EngineOptions& options) {
  if (!options.adaptive_clipping) return;
  problems.from([&] { options.adaptive_clipping->validate(); });
  problems.unless(!options.bound_schedule,
                  "adaptive clipping and a schedule of bounds: both move the clip bounds");
  if (!options.noise_multiplier || !(*options.noise_multiplier > 0)) return;
  const double groups = static_cast<double>(std::max<std::size_t>(1, options.groups.size()));
  const double counts =
      options.adaptive_clipping->unclipped_count_stddev_for(options.logical_batch) /
      (std::sqrt(groups) / 2);
  problems.unless(counts > *options.noise_multiplier,
                  "adaptive clipping: its counts alone, with a noise multiplier of {:.6g}, are "
                  "less private than the noise multiplier {} (raise unclipped_count_stddev)",
                  counts, *options.noise_multiplier);
}

void check_precision_options(Problems& problems, const EngineOptions& options) {
  problems.from([&] {
    memory::LossScale(options.loss_scaling, options.memory.precision.value_or(Dtype::f32));
  });
  using Adjust = memory::LossScaling::Adjust;
  problems.unless(options.loss_scaling.adjust != Adjust::on_overflow,
                  "a loss scale that moves on_overflow: whether a step is left out would tell of "
                  "the data (never, or on_release)");
  problems.unless(options.loss_scaling.adjust != Adjust::on_release || !options.noise_strategy,
                  "a loss scale that moves on_release with a noise_strategy, whose noise is for "
                  "gradients alone");
}

// Finds the first planned step at which a schedule's value is impossible.
void check_schedules(Problems& problems, const EngineOptions& options) {
  const auto check_one = [&](const std::optional<nn::Schedule>& schedule, const char* what) {
    for (std::int64_t step = 0; schedule && step < std::max<std::int64_t>(1, options.steps);
         ++step) {
      const double value = schedule->value(step, 1);
      problems.unless(positive(value), "the schedule of {} is {} times the first at step {}", what,
                      value, step);
      if (!positive(value)) return;
    }
  };
  check_one(options.bound_schedule, "clip bounds");
  check_one(options.noise_schedule, "the noise multiplier");
}

// Checks that the parameters that are clipped and get noise are those that the optimizer updates.
void check_parameters(Problems& problems, nn::Module& model, const nn::Optimizer& optimizer) {
  const std::vector<const Parameter*> updated = optimizer.parameters();
  std::vector<const Parameter*> trained;
  for (const auto& [name, parameter] : model.named_parameters()) {
    if (!parameter->trainable) continue;
    trained.push_back(parameter);
    problems.unless(contains(updated, parameter),
                    "parameter {} is trained, but the optimizer does not have it", name);
  }
  problems.unless(!trained.empty(), "the model has no parameter that is trained");
  for (const Parameter* parameter : updated) {
    problems.unless(contains(trained, parameter),
                    "the optimizer has a parameter of shape {} that the model does not train",
                    parameter->value.shape());
  }
}

void check_checkpoints(Problems& problems, nn::Module& model, const EngineOptions& options) {
  problems.unless(options.memory.checkpoint.value_or(0) <= 0 || !memory::block_lists(model).empty(),
                  "checkpoints at every {} modules of a model without a Sequential of several",
                  options.memory.checkpoint.value_or(0));
}

// Checks that no two units whose rows this rank has share a row. One rank checks each batch, too,
// and leaves out populations above max_population here.
void check_units(Problems& problems, std::int64_t population, const EngineOptions& options) {
  constexpr std::int64_t max_population = 1 << 20;
  problems.unless(!options.mean_of_rows || options.rows_of_unit,
                  "mean_of_rows without rows_of_unit");
  problems.unless(
      !options.bucket_of_unit || options.memory.limit == 0,
      "bucket_of_unit with a memory limit: the rows that fit would depend on the longest "
      "unit (physical_batch instead)");
  if (!options.rows_of_unit || population < 1) return;
  if (population > max_population && rank_of(options).ranks == 1) return;
  problems.from([&] {
    const RankOf rank = options.owner_of_unit ? rank_of(options) : RankOf{};
    std::vector<std::int64_t> units, rows, starts{0};
    for (std::int64_t unit = 0; unit < population; ++unit) {
      if (!rank.is(owner_of(options, unit))) continue;
      const std::vector<std::int64_t> own = options.rows_of_unit(unit);
      rows.insert(rows.end(), own.begin(), own.end());
      starts.push_back(std::ssize(rows));
      units.push_back(unit);
    }
    check_rows_apart(units, rows, starts);
  });
}

// Checks that the batches can be drawn, that the accountant covers them, and that the noise suits
// them.
void check_sampling(Problems& problems, std::int64_t population, const EngineOptions& options,
                    NeighboringRelation relation) {
  const std::string reason = unsupported_reason(options.accountant, options.sampling, relation);
  problems.unless(reason.empty(), "{}", reason);
  if (population >= 1 && options.logical_batch > 0 &&
      options.logical_batch <= static_cast<double>(population))
    problems.from([&] { make_sampler(population, sampler_options(options)); });
  const bool plan = options.sampling == Sampling::planned;
  problems.unless(!plan || options.noise_strategy,
                  "planned batches need a noise_strategy: their noise multiplier is that of the "
                  "whole plan");
  problems.unless(!in_epochs(options.sampling) || !options.noise_schedule,
                  "a schedule of noise with {} batches, of which the first pays for others",
                  name(options.sampling));
  if (!options.noise_strategy) return;
  problems.unless(plan || options.sampling == Sampling::cyclic_poisson,
                  "a noise_strategy with {} batches: it is for planned and cyclic_poisson ones",
                  name(options.sampling));
  problems.unless(options.noise_strategy->steps() == options.steps,
                  "a noise_strategy of {} steps for {} planned ones",
                  options.noise_strategy->steps(), options.steps);
  problems.unless(!options.adaptive_clipping && !options.bound_schedule,
                  "a noise_strategy with clip bounds that move: noise is correlated at one bound");
  problems.unless(options.noise == GaussianNoise::discretized,
                  "a noise_strategy with floating-point noise");
}

// Processes that were launched together, and do not know of each other, would each train alone and
// charge the same ledger.
void check_launcher(Problems& problems, const EngineOptions& options) {
  if (options.ranks) return;
  const std::optional<Launcher> launcher = launcher_of_process();
  problems.unless(!launcher || launcher->size == 1,
                  "one of {} processes of {} would train alone: EngineOptions::ranks is "
                  "launched_ranks(), or a OneRank for a training of its own",
                  launcher ? launcher->size : 1, launcher ? launcher->name : "");
}

}  // namespace

std::vector<ClipGroup> clip_groups(nn::Module& model, const EngineOptions& options) {
  if (!options.groups.empty()) return options.groups;
  return flat_group(model.parameters(), options.clip_bound);
}

SamplerOptions sampler_options(const EngineOptions& options) {
  return {.sampling = options.sampling,
          .expected_batch = options.logical_batch,
          .max_batch_size = options.max_batch_size,
          .groups = options.groups_in_cycle,
          .steps = options.sampling == Sampling::planned ? options.steps : 0};
}

std::string truncation_problem(std::int64_t population, const Event& batch,
                               const EngineOptions& options, NeighboringRelation relation) {
  if (batch.truncation_probability == 0) return "";
  const PrivacyTarget target{.epsilon = options.target_epsilon.value_or(0),
                             .delta = options.delta,
                             .batch = batch,
                             .steps = std::max<std::int64_t>(1, options.steps)};
  if (options.target_epsilon) return truncation_problem(population, target);
  Event release = batch;
  release.truncation_probability = 0;
  release.noise_multiplier = *options.noise_multiplier;
  const auto spent = make_accountant(options.accountant, relation);
  if (!options.noise_schedule) spent->compose(release, target.steps);
  for (std::int64_t step = 0; options.noise_schedule && step < target.steps; ++step) {
    release.noise_multiplier = options.noise_schedule->value(step, *options.noise_multiplier);
    spent->compose(release);
  }
  return truncation_problem(population, target, *spent);
}

std::vector<std::string> engine_problems(nn::Module& model, const nn::Optimizer& optimizer,
                                         std::int64_t population, const EngineOptions& options,
                                         const LedgerHeader& header) {
  Problems problems;
  check_launcher(problems, options);
  check_privacy(problems, population, options);
  check_sizes(problems, population, options);
  check_sampling(problems, population, options, header.relation);
  problems.unless(options.unit == header.unit,
                  "the unit of privacy is \"{}\", and \"{}\" in the ledger", options.unit,
                  header.unit);
  check_units(problems, population, options);
  const std::size_t before = problems.number();
  check_parameters(problems, model, optimizer);
  check_checkpoints(problems, model, options);
  check_groups(problems, model, options);
  if (problems.number() == before && positive(options.clip_bound))
    problems.from([&] { Clipper(clip_groups(model, options), options.clipping); });
  check_adaptive(problems, options);
  check_precision_options(problems, options);
  check_schedules(problems, options);
  if (problems.number() == 0) {
    const Event batch = make_sampler(population, sampler_options(options))->event();
    const std::string cut = truncation_problem(population, batch, options, header.relation);
    problems.unless(cut.empty(), "max_batch_size {}: {}", options.max_batch_size, cut);
  }
  return std::move(problems).all();
}

}  // namespace sotto
