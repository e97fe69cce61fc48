// The list of the engine's options: complete, compared between ranks, and validated.
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "dp/engine/option_list.h"
#include "dp/engine/run_facts.h"
#include "dp/engine/validation.h"
#include "tests/support/catch.h"
#include "tests/support/engine_training.h"

namespace sotto {

// Converts to the type of any member.
template <std::size_t>
struct Any {
  template <class T>
  operator T&() const&& noexcept;
  template <class T>
  operator T&() const& noexcept;
};

namespace {

template <class T, std::size_t... K>
constexpr bool made_from(std::index_sequence<K...>) {
  return requires { T{Any<K>()...}; };
}

// The number of members of an aggregate: the most values from which it can be made.
template <class T, std::size_t most = 64>
constexpr std::size_t member_count() {
  if constexpr (made_from<T>(std::make_index_sequence<most>())) {
    return most;
  } else {
    return member_count<T, most - 1>();
  }
}

StrategyMatrix strategy() {
  return optimize_banded_toeplitz({.steps = 4, .participation = {.min_separation = 2}}, 2);
}

using Change = std::function<void(EngineOptions&)>;

// For each option another value that is allowed, or none for those that are a rank's own.
const std::map<std::string, Change>& other_values() {
  using Options = EngineOptions;
  static const std::map<std::string, Change> all{
      {"noise_multiplier", [](Options& o) { o.noise_multiplier = 2; }},
      {"target_epsilon", [](Options& o) { o.target_epsilon = 3; }},
      {"delta", [](Options& o) { o.delta = 1e-6; }},
      {"allow_large_delta", [](Options& o) { o.allow_large_delta = true; }},
      {"steps", [](Options& o) { o.steps = 7; }},
      {"planned_means", [](Options& o) { o.planned_means.emplace_back(); }},
      {"accountant", [](Options& o) { o.accountant = AccountantKind::rdp; }},
      {"sampling", [](Options& o) { o.sampling = Sampling::full_batch; }},
      {"logical_batch", [](Options& o) { o.logical_batch = 5; }},
      {"max_batch_size", [](Options& o) { o.max_batch_size = 9; }},
      {"groups_in_cycle", [](Options& o) { o.groups_in_cycle = 2; }},
      {"memory", [](Options& o) { o.memory.physical_batch = 3; }},
      {"unit", [](Options& o) { o.unit = "one patient"; }},
      {"rows_of_unit",
       [](Options& o) { o.rows_of_unit = [](std::int64_t unit) { return std::vector{unit}; }; }},
      {"mean_of_rows", [](Options& o) { o.mean_of_rows = true; }},
      {"bucket_of_unit",
       [](Options& o) { o.bucket_of_unit = [](std::int64_t unit) { return unit % 2; }; }},
      {"prefetch_rows", {}},
      {"clip_bound", [](Options& o) { o.clip_bound = 2; }},
      {"groups",
       [](Options& o) {
         o.groups = {{{}, 2}};
       }},
      {"clipping", [](Options& o) { o.clipping.rule.kind = ClipRule::Kind::psac; }},
      {"passes", [](Options& o) { o.passes = ClipPasses::two; }},
      {"adaptive_clipping", [](Options& o) { o.adaptive_clipping.emplace(); }},
      {"bound_schedule", [](Options& o) { o.bound_schedule = nn::Schedule::linear(1, 0.5, 9); }},
      {"noise_schedule", [](Options& o) { o.noise_schedule = nn::Schedule::linear(1, 0.5, 9); }},
      {"noise", [](Options& o) { o.noise = GaussianNoise::floating_point; }},
      {"noise_strategy", [](Options& o) { o.noise_strategy = strategy(); }},
      {"loss_scaling", [](Options& o) { o.loss_scaling.max = 4; }},
      {"seed", [](Options& o) { o.seed = 1; }},
      {"ranks", {}},
      {"owner_of_unit",
       [](Options& o) { o.owner_of_unit = [](std::int64_t unit) { return unit; }; }}};
  return all;
}

TEST_CASE("the list of options has every member once") {
  std::set<std::string> names;
  std::size_t visited = 0;
  EngineOptions options;
  std::set<const void*> places;
  visit_options(options, [&](const char* name, const auto& member, auto) {
    names.insert(name);
    places.insert(&member);
    ++visited;
  });
  CHECK(visited == member_count<EngineOptions>());
  CHECK(names.size() == visited);
  CHECK(places.size() == visited);
}

TEST_CASE("ranks and checkpoints see a change of each option that must be equal on all ranks") {
  Training training;
  const auto facts = [&](const EngineOptions& options) {
    std::vector<Fact> all = option_facts(training.model, population, options);
    for (Fact& fact : data_facts(nullptr, population, options)) all.push_back(std::move(fact));
    return all;
  };
  const EngineOptions before;
  visit_options(before, [&](const char* name, const auto&, auto mark) {
    INFO(name);
    const auto found = other_values().find(name);
    REQUIRE(found != other_values().end());
    CHECK(bool(found->second) == std::is_same_v<decltype(mark), EqualOnRanks>);
    if (!found->second) return;
    EngineOptions changed = before;
    found->second(changed);
    CHECK(facts(changed) != facts(before));
  });
}

// For each option a value that is refused whatever the others are, or none if there is no such.
const std::map<std::string, Change>& wrong_values() {
  using Options = EngineOptions;
  static const std::map<std::string, Change> all{
      {"noise_multiplier", [](Options& o) { o.noise_multiplier = -1; }},
      {"target_epsilon", [](Options& o) { o.target_epsilon = 0; }},
      {"delta", [](Options& o) { o.delta = 1; }},
      {"allow_large_delta", {}},
      {"steps", [](Options& o) { o.steps = -1; }},
      {"planned_means", {}},  // refused with their sum, when the engine is made
      {"accountant", {}},
      {"sampling", {}},
      {"logical_batch", [](Options& o) { o.logical_batch = 0; }},
      {"max_batch_size", [](Options& o) { o.max_batch_size = 5; }},
      {"groups_in_cycle", [](Options& o) { o.groups_in_cycle = 2; }},
      {"memory", [](Options& o) { o.memory.physical_batch = 0; }},
      {"unit", [](Options& o) { o.unit = "one patient"; }},
      {"rows_of_unit",
       [](Options& o) {
         o.rows_of_unit = [](std::int64_t) { return std::vector<std::int64_t>{0}; };
       }},
      {"mean_of_rows", [](Options& o) { o.mean_of_rows = true; }},
      {"bucket_of_unit", {}},  // of each batch
      {"prefetch_rows", {}},
      {"clip_bound", [](Options& o) { o.clip_bound = 0; }},
      {"groups",
       [](Options& o) {
         o.groups = {{{}, 1}};
       }},
      {"clipping",
       [](Options& o) { o.clipping.rule = {.kind = ClipRule::Kind::psac, .gamma = 0}; }},
      {"passes", {}},
      {"adaptive_clipping", [](Options& o) { o.adaptive_clipping = {.quantile = 2}; }},
      {"bound_schedule", [](Options& o) { o.bound_schedule = nn::Schedule::constant(0, 9); }},
      {"noise_schedule", [](Options& o) { o.noise_schedule = nn::Schedule::constant(0, 9); }},
      {"noise", {}},
      {"noise_strategy", [](Options& o) { o.noise_strategy = strategy(); }},
      {"loss_scaling", [](Options& o) { o.loss_scaling.first = 3; }},
      {"seed", {}},
      {"ranks", {}},
      {"owner_of_unit", {}}};  // refused where a unit has another owner than one rank
  return all;
}

TEST_CASE("validation refuses wrong values of each option that has any") {
  Training training;
  EngineOptions right;
  right.noise_multiplier = 1;
  right.logical_batch = 4;
  const auto problems = [&](const EngineOptions& options) {
    return engine_problems(training.model, training.optimizer, population, options);
  };
  REQUIRE(problems(right).empty());
  visit_options(right, [&](const char* name, const auto&, auto) {
    INFO(name);
    const auto found = wrong_values().find(name);
    REQUIRE(found != wrong_values().end());
    if (!found->second) return;
    EngineOptions wrong = right;
    found->second(wrong);
    CHECK(!problems(wrong).empty());
  });
}

}  // namespace
}  // namespace sotto
