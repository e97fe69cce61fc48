#include "dp/sampling/poisson_samplers.h"

#include <algorithm>

#include "core/error.h"
#include "dp/numerics/binomial_tail.h"

namespace sotto {

namespace {

Event truncated_event(std::int64_t population, double rate, std::int64_t max_batch_size) {
  constexpr const char* op = "TruncatedPoissonSampler";
  check(population >= 1 && population < std::int64_t{1} << 53, "{}: a population of {}", op,
        population);
  check(max_batch_size >= 1, "{}: at most {} units of {}", op, max_batch_size, population);
  const double exact = IndependentSubset(op, rate).rate();
  return {.sampling = Sampling::truncated_poisson,
          .sampling_rate = exact,
          .truncation_probability = binomial_tail(population + 1, exact, max_batch_size)};
}

Event cyclic_event(std::int64_t population, std::int64_t groups, double rate) {
  constexpr const char* op = "CyclicPoissonSampler";
  check(groups >= 1 && groups <= population, "{}: {} groups of {} units", op, groups, population);
  return {.sampling = Sampling::cyclic_poisson,
          .sampling_rate = IndependentSubset(op, rate).rate(),
          .batches = groups};
}

}  // namespace

PoissonSampler::PoissonSampler(std::int64_t population, double rate, SecretRandom random)
    : Sampler(population, {.sampling = Sampling::poisson,
                           .sampling_rate = IndependentSubset("PoissonSampler", rate).rate()}),
      subset_("PoissonSampler", rate),
      random_(std::move(random)) {}

TruncatedPoissonSampler::TruncatedPoissonSampler(std::int64_t population, double rate,
                                                 std::int64_t max_batch_size, SecretRandom random)
    : Sampler(population, truncated_event(population, rate, max_batch_size)),
      max_batch_size_(max_batch_size),
      subset_("TruncatedPoissonSampler", rate),
      random_(std::move(random)) {}

double TruncatedPoissonSampler::expected_batch_size() const {
  return std::min(Sampler::expected_batch_size(), static_cast<double>(max_batch_size_));
}

std::vector<std::int64_t> TruncatedPoissonSampler::sample(std::int64_t /*index_in_epoch*/) {
  std::vector<std::int64_t> units = subset_.draw(population(), random_);
  const auto drawn = static_cast<std::int64_t>(units.size());
  if (drawn <= max_batch_size_) return units;
  std::vector<std::int64_t> kept = uniform_subset(drawn, max_batch_size_, random_);
  for (std::int64_t& unit : kept) unit = units[static_cast<std::size_t>(unit)];
  return kept;
}

CyclicPoissonSampler::CyclicPoissonSampler(std::int64_t population, std::int64_t groups,
                                           double rate, SecretRandom random)
    : Sampler(population, cyclic_event(population, groups, rate)),
      subset_("CyclicPoissonSampler", rate),
      random_(std::move(random)) {}

std::vector<std::int64_t> CyclicPoissonSampler::sample(std::int64_t index_in_epoch) {
  const std::int64_t members = (population() - index_in_epoch - 1) / groups() + 1;
  std::vector<std::int64_t> units = subset_.draw(members, random_);
  for (std::int64_t& unit : units) unit = index_in_epoch + groups() * unit;
  return units;
}

}  // namespace sotto
