// Options make the sampler they name, or are refused.
#include "dp/sampling/make_sampler.h"

#include <cmath>

#include "core/random/secret_random.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

std::unique_ptr<Sampler> made(const SamplerOptions& options, std::int64_t population = 100) {
  return make_sampler(population, options, SecretRandom::insecure_seeded(1));
}

struct Case {
  SamplerOptions options;
  Event event;
  double expected_batch_size;
  std::int64_t min_separation = 1;
};
const Case cases[] = {
    {{.sampling = Sampling::full_batch}, {.sampling = Sampling::full_batch}, 100},
    {{.expected_batch = 25}, {.sampling = Sampling::poisson, .sampling_rate = 0.25}, 25},
    {{.sampling = Sampling::truncated_poisson, .expected_batch = 25, .max_batch_size = 101},
     {.sampling = Sampling::truncated_poisson, .sampling_rate = 0.25},
     25},
    {{.sampling = Sampling::fixed_size, .expected_batch = 25},
     {.sampling = Sampling::fixed_size, .sampling_rate = 0.25},
     25},
    {{.sampling = Sampling::partition, .expected_batch = 30},
     {.sampling = Sampling::partition, .batches = 4},
     25},
    {{.sampling = Sampling::balls_and_bins, .expected_batch = 27.5},
     {.sampling = Sampling::balls_and_bins, .batches = 4},
     25},
    {{.sampling = Sampling::cyclic_poisson, .expected_batch = 5, .groups = 10},
     {.sampling = Sampling::cyclic_poisson, .sampling_rate = 0.5, .batches = 10},
     5,
     10},
    {{.sampling = Sampling::planned, .expected_batch = 30, .steps = 7},
     {.sampling = Sampling::planned, .batches = 7},
     30,
     3},
};

TEST_CASE("every sampling is made, with the requested batches") {
  for (const auto& [options, event, expected_batch_size, min_separation] : cases) {
    const auto sampler = made(options);
    INFO(name(options.sampling));
    CHECK(sampler->event() == event);
    CHECK(sampler->population() == 100);
    const SampledBatch draw = sampler->draw();
    CHECK(draw.event() == event);
    CHECK(draw.expected_batch_size() == expected_batch_size);
    CHECK(draw.min_separation() == min_separation);
  }
}

TEST_CASE("a state continues in a sampler of the same options, and in no other") {
  for (const Case& one : cases) {
    const auto sampler = made(one.options);
    sampler->draw();
    const SamplerState state = sampler->state();
    for (const Case& other : cases) {
      const auto loaded = made(other.options);
      if (&other != &one) {
        CHECK_THROWS_AS(loaded->load_state(state), std::invalid_argument);
        continue;
      }
      loaded->load_state(state);
      CHECK(loaded->event() == sampler->event());
      CHECK(loaded->draw().number() == 1);
    }
  }
}

TEST_CASE("rates that should be 1 are") {
  CHECK(made({.expected_batch = 100})->rate() == 1);
  // 10 times the double next to 0.1 is 1; three times is above 0.3.
  CHECK(made({.sampling = Sampling::cyclic_poisson, .expected_batch = 10, .groups = 10})->rate() ==
        1);
  CHECK(made({.sampling = Sampling::cyclic_poisson, .expected_batch = 10, .groups = 3})->rate() ==
        0.3);
}

TEST_CASE("the generator keys itself where none is given") {
  CHECK(make_sampler(100, {.expected_batch = 25})->draw().secure());
  CHECK_FALSE(made({.expected_batch = 25})->draw().secure());
}

TEST_CASE("options that disagree are refused") {
  const auto refused = [](const SamplerOptions& options, const char* text) {
    CHECK(throws([&] { made(options); }, text));
  };
  for (const double batch : {0.0, -1.0, 101.0, std::nan("")}) {
    for (const Sampling sampling :
         {Sampling::poisson, Sampling::fixed_size, Sampling::partition, Sampling::balls_and_bins})
      refused({.sampling = sampling, .expected_batch = batch}, "of 100 units");
  }
  refused({.sampling = Sampling::full_batch, .expected_batch = 5}, "batches of 5 of 100 units");
  for (const Sampling sampling : {Sampling::fixed_size, Sampling::partition})
    refused({.sampling = sampling, .expected_batch = 2.5}, "with batches of 2.5 units");
  refused({.sampling = Sampling::planned, .expected_batch = 2.5, .steps = 3}, "of 2.5 units");
  refused({.expected_batch = 5, .max_batch_size = 9}, "9 units per batch at most of poisson");
  refused({.expected_batch = 5, .groups = 9}, "9 groups of poisson");
  refused({.expected_batch = 5, .steps = 9}, "9 steps of poisson");
  refused({.sampling = Sampling::truncated_poisson, .expected_batch = 5}, "at most 0 units");
  refused({.sampling = Sampling::cyclic_poisson, .expected_batch = 5}, "0 groups");
  refused({.sampling = Sampling::cyclic_poisson, .expected_batch = 20, .groups = 6}, "rate 1.2");
  refused({.sampling = Sampling::planned, .expected_batch = 5}, "a plan of 0 steps");
  CHECK(throws([] { made({.sampling = Sampling::full_batch}, 0); }, "a population of 0"));
  CHECK(throws([] { made({.expected_batch = 5}, 0); }, "batches of 5 of 0 units"));
}

}  // namespace
}  // namespace sotto
