#include "dp/engine/private_selection.h"

#include <cmath>
#include <exception>
#include <optional>
#include <stdexcept>

#include "core/error.h"
#include "core/random/secret_random.h"
#include "dp/accounting/calibration.h"
#include "dp/engine/noise_schedule.h"
#include "dp/engine/validation.h"
#include "dp/numerics/root_search.h"
#include "dp/sampling/make_sampler.h"

namespace sotto {

namespace {

bool better(const Candidate& one, const std::optional<Selected>& best) {
  if (!best) return true;
  const double score = best->candidate.score;
  return one.score > score || (std::isnan(score) && !std::isnan(one.score));
}

// Takes over what a run's ledger knows besides its releases.
void follow(const Ledger& run, Ledger& ledger) {
  for (const std::string& reason : run.reasons()) ledger.mark_not_private(reason);
  if (run.population()) ledger.set_population(*run.population());
}

// A plan is local: no collective of the options' ranks.
EngineOptions of_one_process(EngineOptions options) {
  options.ranks = nullptr;
  return options;
}

}  // namespace

EventCounts planned_releases(std::int64_t population, const EngineOptions& engine_options,
                             NeighboringRelation relation) {
  const EngineOptions options = of_one_process(engine_options);
  const auto sampler = make_sampler(population, sampler_options(options));
  const Ledger empty({.unit = options.unit, .relation = relation});
  return NoiseSchedule(options, *sampler, empty).whole_plan();
}

double first_noise_multiplier(std::int64_t population, const EngineOptions& engine_options,
                              const Ledger& ledger) {
  const EngineOptions options = of_one_process(engine_options);
  const auto sampler = make_sampler(population, sampler_options(options));
  return NoiseSchedule(options, *sampler, ledger).initial();
}

EngineOptions options_of_run(std::int64_t population, EngineOptions options,
                             const TruncatedNegativeBinomial& runs, NeighboringRelation relation) {
  check(options.target_epsilon.has_value(), "options_of_run: no target epsilon");
  constexpr double max_noise = 1e6, tolerance = 1e-4;
  const double target = *options.target_epsilon;
  const AccountantFactory accountant = accountant_factory(options.accountant, relation);
  options.noise_multiplier = calibrate_noise_multiplier(
      {.epsilon = target,
       .delta = options.delta,
       .batch = make_sampler(population, sampler_options(options))->event(),
       .steps = options.steps},
      accountant);
  options.target_epsilon.reset();
  const auto excess = [&](double noise_multiplier) {
    options.noise_multiplier = noise_multiplier;
    const PrivateSelection selection{runs, planned_releases(population, options, relation)};
    return selection_epsilon(selection, options.delta, accountant) - target;
  };
  double unsafe = *options.noise_multiplier, safe = 2 * unsafe;
  while (excess(safe) > 0) {
    check(safe < max_noise, "options_of_run: no noise multiplier up to {} meets epsilon {}",
          max_noise, target);
    unsafe = safe;
    safe *= 2;
  }
  options.noise_multiplier = safe_root(unsafe, safe, tolerance, excess);
  return options;
}

Selected select_privately(
    Ledger& ledger, std::int64_t settings, const PrivateSelection& selection,
    const std::function<Candidate(std::int64_t setting, const Ledger& run)>& candidate) {
  return select_privately(ledger, settings, selection, candidate, SecretRandom());
}

Selected select_privately(
    Ledger& ledger, std::int64_t settings, const PrivateSelection& selection,
    const std::function<Candidate(std::int64_t setting, const Ledger& run)>& candidate,
    SecretRandom random) {
  check(settings >= 1, "select_privately: {} settings", settings);
  ledger.select(selection);
  if (!random.secure()) ledger.mark_not_private("a private selection with a seeded generator");
  std::optional<Selected> best;
  std::exception_ptr failure;  // the first
  for (std::int64_t left = selection.runs.draw(random); left > 0; --left) {
    const std::int64_t setting = random.below(settings);
    Ledger run = Ledger::of_candidate(ledger.header(), selection);
    if (ledger.population()) run.set_population(*ledger.population());
    try {
      Candidate result = candidate(setting, run);
      if (better(result, best)) best = {setting, std::move(result)};
    } catch (const std::invalid_argument&) {
      if (!failure) failure = std::current_exception();
    }
    follow(run, ledger);
  }
  if (!best) std::rethrow_exception(failure);
  return std::move(*best);
}

}  // namespace sotto
