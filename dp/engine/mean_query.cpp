// Engine::release_means().
#include <algorithm>
#include <memory>
#include <utility>

#include "core/ranks/collectives.h"
#include "dp/engine/engine_parts.h"
#include "dp/noise/bounded_statistics.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/numerics/directed_rounding.h"
#include "dp/sampling/poisson_samplers.h"

namespace sotto {

namespace {

// Refuses, on every rank, a query in which one differs from rank 0.
void check_same_query(Ranks& ranks, const MeanQuery& query) {
  std::string own = fmt::format("noise multiplier {}, sampling rate {}", query.noise_multiplier,
                                query.sampling_rate);
  for (const auto& [low, high] : query.ranges) own += fmt::format(", {} to {}", low, high);
  const auto all = gather(ranks, "release_means: query", own);
  on_rank_0(ranks, "release_means: agreement", [&] {
    for (std::size_t rank = 1; rank < all.size(); ++rank)
      check(all[rank] == own, "release_means: {} on rank {} and {} on rank 0", all[rank], rank,
            own);
  });
}

// Adds the values of the units that have rows, one physical batch at a time, and 0 for the others.
void add_values(StatisticSum& sum, const MeanQuery& query, const UnitBatches& batches,
                const std::vector<std::int64_t>& drawn) {
  std::vector<std::int64_t> with_rows;
  for (const std::int64_t unit : drawn) {
    if (batches.rows_of_unit(unit).empty()) {
      sum.add_unit_without_data();
    } else {
      with_rows.push_back(unit);
    }
  }
  const auto together =
      static_cast<std::size_t>(batches.rows().value_or(memory::usual_physical_batch));
  for (std::span<const std::int64_t> units = with_rows; !units.empty();) {
    const auto next = units.first(std::min(units.size(), together));
    const auto values = query.values(next);
    check(values.size() == next.size(), "release_means: values of {} units for {}", values.size(),
          next.size());
    for (const std::vector<double>& of_unit : values) sum.add(of_unit);
    units = units.subspan(next.size());
  }
}

}  // namespace

std::vector<double> Engine::Parts::release_means(const MeanQuery& query) {
  check(!options.noise_strategy,
        "release_means: a plan of correlated noise allows no other releases in between");
  if (shared) check_same_query(*options.ranks, query);
  check(query.noise_multiplier > 0, "release_means: noise multiplier {}", query.noise_multiplier);
  claim_run();
  GaussianMechanism gaussian(query.noise_multiplier, options.noise);
  StatisticSum sum(query.ranges);
  std::unique_ptr<Sampler> drawing =
      std::make_unique<PoissonSampler>(sampler->population(), query.sampling_rate);
  if (shared) drawing = shared->sampler_for(std::move(drawing));
  const auto begin = [&] {
    drawing->resume_from(ledger.next_draw());
    if (!budget.allows_after({{gaussian.event(drawing->event()), 1}}))
      fail(fmt::format("release_means: epsilon would pass {} from {}",
                       options.target_epsilon.value_or(0), epsilon_text(budget.epsilon())));
    return StepOrder();
  };
  if (!shared) {
    begin();
    return release_means(query, drawing->draw(), std::move(sum), gaussian);
  }
  SampledBatch draw =
      shared->draw("Engine::release_means", *drawing, batches.owners(), begin).second;
  std::vector<double> means;
  abort_on_error(shared->ranks(), [&] {
    means = release_means(query, std::move(draw), std::move(sum), gaussian);
    if (options.target_epsilon) share_progress();
  });
  return means;
}

// Adds up the values of the drawn units, on several ranks each its own, and releases them.
std::vector<double> Engine::Parts::release_means(const MeanQuery& query, SampledBatch draw,
                                                 StatisticSum sum, Mechanism& gaussian) {
  add_values(sum, query, batches, batches.owners().of(rank_of(options), draw.units()).units);
  std::vector<double> means = gaussian.release(
      sum.finish(std::move(draw), shared ? options.ranks : nullptr), ledger, budget.admission());
  ++means_released;
  if (!leads()) return means;
  // The steps' sampler skips this draw's number and keeps its position in its epoch.
  SamplerState state = sampler->state();
  state.number = ledger.next_draw();
  sampler->load_state(state);
  return means;
}

}  // namespace sotto
