#include "dp/engine/suggest.h"

#include "dp/accounting/calibration.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

// The noise multiplier that batches of this size need, by Renyi accounting.
double noise(const EngineOptions& options, double batch, double population) {
  return calibrate_noise_multiplier(
      {.epsilon = *options.target_epsilon,
       .delta = options.delta,
       .batch = {.sampling = Sampling::poisson, .sampling_rate = batch / population},
       .steps = options.steps},
      accountant_factory(AccountantKind::rdp));
}

}  // namespace

TEST_CASE("for CIFAR-10 at epsilon 8 the suggestion is near what was published") {
  // De et al. 2022: batches of 4096 for 2,500 steps, noise multiplier 3, clip bound 1, rate 2.
  const Suggestion s = suggest({.target_epsilon = 8, .delta = 1e-5, .steps = 2500}, 50'000);
  CHECK(s.logical_batch >= 1024);
  CHECK(s.logical_batch <= 8192);
  CHECK(s.clip_bound == 1);
  CHECK(s.learning_rate == 2);
  const Suggestion published{.logical_batch = 4096, .clip_bound = 1, .learning_rate = 2};
  CHECK(noise({.target_epsilon = 8, .delta = 1e-5, .steps = 2500}, published.logical_batch,
              50'000) == Approx(3).epsilon(0.1));
}

TEST_CASE("the suggested batch is the smallest power of two with nearly the least noise") {
  for (const double epsilon : {0.5, 3.0, 20.0}) {
    for (const std::int64_t steps : {20, 1000}) {
      CAPTURE(epsilon, steps);
      const EngineOptions options{.target_epsilon = epsilon, .delta = 1e-6, .steps = steps};
      const double all = 20'000, min = noise(options, all, all) / all;
      const Suggestion s = suggest(options, 20'000);
      CHECK(s.noise_multiplier == noise(options, s.logical_batch, all));
      CHECK(s.noise_multiplier / s.logical_batch <= 1.25 * min);
      const double half = s.logical_batch / 2;
      if (half >= 16) CHECK(noise(options, half, all) / half > 1.25 * min);
    }
  }
}

TEST_CASE("a small population is a batch of all") {
  const Suggestion s = suggest({.target_epsilon = 1, .delta = 1e-3, .steps = 10}, 10);
  CHECK(s.logical_batch == 10);
  CHECK(s.noise_multiplier > 0);
}

TEST_CASE("without a target there is nothing to suggest") {
  CHECK(throws([] { suggest({.noise_multiplier = 1, .steps = 10}, 100); }, "no target epsilon"));
  CHECK(throws([] { suggest({.target_epsilon = 1}, 100); }, "0 steps"));
  CHECK(throws([] { suggest({.target_epsilon = 1, .steps = 10}, 0); }, "a population of 0"));
}
