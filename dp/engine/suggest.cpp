#include "dp/engine/suggest.h"

#include <algorithm>

#include "dp/accounting/calibration.h"

namespace sotto {

namespace {

constexpr std::int64_t smallest_batch = 16;
constexpr double more_noise = 1.25;
// From De et al. 2022, for a wide residual network on CIFAR-10.
constexpr double published_rate = 2, published_bound = 1;

double noise_for(const EngineOptions& options, double batch, std::int64_t population) {
  const double rate = batch / static_cast<double>(population);
  return calibrate_noise_multiplier(
      {.epsilon = *options.target_epsilon,
       .delta = options.delta,
       .batch = {.sampling = Sampling::poisson, .sampling_rate = rate},
       .steps = options.steps},
      accountant_factory(AccountantKind::rdp));
}

}  // namespace

Suggestion suggest(const EngineOptions& options, std::int64_t population) {
  check(options.target_epsilon && options.steps >= 1 && population >= 1,
        "suggest: a population of {}, {} steps, and {} target epsilon", population, options.steps,
        options.target_epsilon ? "a" : "no");
  const auto all = static_cast<double>(population);
  const double max = more_noise * noise_for(options, all, population) / all;
  double batch = std::min<double>(smallest_batch, all),
         noise = noise_for(options, batch, population);
  while (batch < all && noise / batch > max) {
    batch = std::min(2 * batch, all);
    noise = noise_for(options, batch, population);
  }
  return {.logical_batch = batch,
          .clip_bound = published_bound,
          .learning_rate = published_rate / published_bound,
          .noise_multiplier = noise};
}

}  // namespace sotto
