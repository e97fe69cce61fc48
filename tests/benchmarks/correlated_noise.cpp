// Prints, as one JSON object a line, the errors of prefix sums by strategy (the table of
// docs/appendix/proofs-correlated-noise.md), and the time of a step's noise: the fastest of several
// steps.
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "core/random/rounded_gaussian.h"
#include "core/random/secret_random.h"
#include "core/threads/parallel.h"
#include "dp/noise/correlated/noise_stream.h"
#include "dp/noise/correlated/strategy_optimization.h"
#include "tests/benchmarks/timing.h"

using namespace sotto;

namespace {

std::string name(const TreeFactor& /*factor*/) { return "tree"; }
std::string name(const BandedToeplitz& factor) {
  return fmt::format("bands {}", factor.coefficients.size());
}
std::string name(const BufferedToeplitz& factor) {
  return fmt::format("buffers {}", factor.decays.size());
}
std::string name(const StrategyMatrix& strategy) {
  return std::visit([](const auto& factor) { return name(factor); }, strategy.factor());
}

double root_error(const StrategyMatrix& strategy, Participation record, PrefixError error) {
  return std::sqrt(squared_error(strategy, record, error));
}

void report(const std::string& what, const StrategyMatrix& strategy, Participation record,
            double seconds) {
  fmt::print(
      "{{\"strategy\": \"{}\", \"steps\": {}, \"separation\": {}, \"sensitivity\": {:.3f}, "
      "\"mean_error\": {:.2f}, \"max_error\": {:.2f}, \"seconds\": {:.3f}}}\n",
      what, strategy.steps(), record.min_separation, strategy.sensitivity(record),
      root_error(strategy, record, PrefixError::mean),
      root_error(strategy, record, PrefixError::max), seconds);
}

void report_errors(std::int64_t steps, std::int64_t min_separation) {
  const ErrorObjective goal{.steps = steps, .participation = {.min_separation = min_separation}};
  report("independent", {BandedToeplitz{{1}}, steps}, goal.participation, 0);
  report("tree", {TreeFactor{}, steps}, goal.participation, 0);
  report("square root", {square_root_factor(steps), steps}, goal.participation, 0);
  const auto timed = [&](const auto& find) {
    std::optional<StrategyMatrix> found;
    const double seconds = seconds_of([&] { found.emplace(find()); });
    report(name(*found), *found, goal.participation, seconds);
  };
  for (const std::int64_t bands : {8, 32, 100})
    timed([&] { return optimize_banded_toeplitz(goal, bands); });
  for (const int buffers : {1, 2, 4})
    timed([&] { return optimize_buffered_toeplitz(goal, buffers); });
}

void report_step(const StrategyMatrix& strategy) {
  constexpr std::int64_t elements = 1'000'000;
  const RoundedGaussian gaussian(0x1p38);
  SecretRandom random;
  std::vector<std::int64_t> noise(elements);
  CorrelatedNoiseStream stream(strategy, elements);
  double draw = 1e9, correlate = 1e9;
  for (std::int64_t t = 0; t < strategy.steps(); ++t) {
    draw = std::min(draw, seconds_of([&] { gaussian.fill(random, noise); }));
    const double seconds = seconds_of([&] { stream.correlate(0, noise); });
    stream.advance();
    if (2 * t >= strategy.steps()) correlate = std::min(correlate, seconds);
  }
  fmt::print(
      "{{\"strategy\": \"{}\", \"threads\": {}, \"elements\": {}, \"draw_milliseconds\": {:.1f}, "
      "\"correlate_milliseconds\": {:.1f}, \"memory_megabytes\": {:.0f}}}\n",
      name(strategy), thread_count(), elements, draw * 1e3, correlate * 1e3,
      static_cast<double>(stream.memory().bytes()) * 1e-6);
}

}  // namespace

int main() {
  for (const std::int64_t steps : {1000, 2000}) {
    for (const std::int64_t min_separation : {steps, std::int64_t{100}})
      report_errors(steps, min_separation);
  }
  constexpr std::int64_t steps = 64;
  report_step({TreeFactor{}, steps});
  for (const std::int64_t bands : {2, 8, 32}) report_step({square_root_factor(bands), steps});
  for (const int buffers : {1, 2, 4})
    report_step(optimize_buffered_toeplitz({.steps = steps}, buffers));
}
