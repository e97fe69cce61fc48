#include "dp/engine/run_facts.h"

#include <algorithm>
#include <map>

#include "core/io/xxh64.h"
#include "core/join.h"
#include "dp/clipping/clip_rule.h"
#include "dp/engine/validation.h"

namespace sotto {

namespace {

std::string text(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "unset";
}

// The schedule's factors at step 0 and at every power of two: a sample of them, since rank 0 tells
// the others the bounds and the noise of each step.
std::string text(const std::optional<nn::Schedule>& schedule, std::int64_t steps) {
  std::string factors = schedule ? "" : "unset";
  for (std::int64_t step = 0; schedule && step <= steps; step = std::max(step + 1, 2 * step))
    factors += fmt::format("{} ", schedule->value(step, 1));
  return factors;
}

// A hash of the rows of the first units: the functions themselves cannot be compared. Where each
// unit has an owner, the others do not know its rows.
std::string rows_text(std::int64_t population, const EngineOptions& options) {
  if (!options.rows_of_unit) return "unset";
  if (options.owner_of_unit) return "of owned units";
  constexpr std::int64_t compared = std::int64_t{1} << 20;
  std::vector<std::int64_t> all;
  for (std::int64_t unit = 0; unit < std::min(population, compared); ++unit) {
    const std::vector<std::int64_t> rows = options.rows_of_unit(unit);
    all.push_back(std::ssize(rows));
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return hash_text(std::as_bytes(std::span(all)));
}

// A unit may be computed by any rank: its samples must be the same on each.
std::string data_text(const Dataset& data, const EngineOptions& options) {
  return options.owner_of_unit ? "of owned units" : fmt::format("{:016x}", data.hash());
}

void add_privacy(std::vector<Fact>& facts, const EngineOptions& options) {
  facts.emplace_back("noise_multiplier", text(options.noise_multiplier));
  facts.emplace_back("target_epsilon", text(options.target_epsilon));
  facts.emplace_back("delta", fmt::format("{}", options.delta));
  facts.emplace_back("steps", fmt::format("{}", options.steps));
  facts.emplace_back("accountant", std::string(name(options.accountant)));
  for (const PlannedMeans& means : options.planned_means)
    facts.emplace_back("planned_means", fmt::format("{} {} {}", means.noise_multiplier,
                                                    means.sampling_rate, means.times));
  facts.emplace_back("noise", fmt::format("{}", static_cast<int>(options.noise)));
  facts.emplace_back("noise_schedule", text(options.noise_schedule, options.steps));
  if (const auto& strategy = options.noise_strategy) {
    std::string variances = fmt::format("{} steps, {} bands", strategy->steps(), strategy->bands());
    for (std::int64_t step = 0; step < strategy->steps(); step = std::max(step + 1, 2 * step))
      variances += fmt::format(" {}", strategy->noise_variance(step));
    facts.emplace_back("noise_strategy", variances);
  }
  facts.emplace_back("unit", options.unit);
}

void add_batches(std::vector<Fact>& facts, std::int64_t population, const EngineOptions& options) {
  facts.emplace_back("population", fmt::format("{}", population));
  facts.emplace_back("sampling", name(options.sampling));
  facts.emplace_back("logical_batch", fmt::format("{}", options.logical_batch));
  facts.emplace_back("max_batch_size", fmt::format("{}", options.max_batch_size));
  facts.emplace_back("groups_in_cycle", fmt::format("{}", options.groups_in_cycle));
  facts.emplace_back("physical_batch", fmt::format("{}", options.memory.rows()));
  facts.emplace_back("accumulation", fmt::format("{}", options.memory.accumulation.value_or(0)));
  facts.emplace_back("checkpoint", memory::checkpoint_text(options.memory.checkpoint));
  facts.emplace_back("memory limit", fmt::format("{}", options.memory.limit));
  facts.emplace_back("precision", memory::precision_text(options.memory.precision));
  facts.emplace_back("owner_of_unit", options.owner_of_unit ? "set" : "unset");
  facts.emplace_back("mean_of_rows", fmt::format("{}", options.mean_of_rows));
  facts.emplace_back("seed", fmt::format("{}", options.seed));
}

void add_clipping(std::vector<Fact>& facts, nn::Module& model, const EngineOptions& options) {
  std::map<const Parameter*, std::string> names;
  for (const auto& [parameter_name, parameter] : model.named_parameters())
    names[parameter] += " " + parameter_name;
  for (const ClipGroup& group : clip_groups(model, options)) {
    std::string members;
    for (const Parameter* member : group.parameters) members += names[member];
    facts.emplace_back("clip bound", fmt::format("{} for{}", group.bound, members));
  }
  const ClipOptions& clipping = options.clipping;
  facts.emplace_back("clipping rule",
                     fmt::format("{} gamma {}", name(clipping.rule.kind), clipping.rule.gamma));
  facts.emplace_back("norm_method", fmt::format("{}", static_cast<int>(clipping.norm_method)));
  facts.emplace_back("per_sample_grad_budget",
                     clipping.per_sample_grad_budget
                         ? fmt::format("{}", *clipping.per_sample_grad_budget)
                         : "unset");
  facts.emplace_back(
      "passes", options.passes ? fmt::format("{}", static_cast<int>(*options.passes)) : "unset");
  if (const auto& adaptive = options.adaptive_clipping)
    facts.emplace_back("adaptive_clipping",
                       fmt::format("{} {} {} {} {}", adaptive->quantile, adaptive->learning_rate,
                                   text(adaptive->unclipped_count_stddev), adaptive->min_bound,
                                   adaptive->max_bound));
  facts.emplace_back("bound_schedule", text(options.bound_schedule, options.steps));
  const memory::LossScaling& scaling = options.loss_scaling;
  facts.emplace_back(
      "loss_scaling",
      fmt::format("{} {} {} {} {} {}", static_cast<int>(scaling.adjust), text(scaling.first),
                  scaling.min, scaling.max, scaling.growth_interval, scaling.tolerated));
}

// The values of each name, which groups of parameters repeat.
std::map<std::string, std::string> by_name(const std::vector<Fact>& facts) {
  std::map<std::string, std::string> all;
  for (const auto& [name, value] : facts) {
    std::string& text = all[name];
    text += (text.empty() ? "" : ", ") + value;
  }
  return all;
}

// An optimizer's constants follow the part for people, behind a semicolon.
std::string difference(const std::string& name, const std::string& now, const std::string& before) {
  const auto shown = [](const std::string& value) { return value.substr(0, value.find(';')); };
  if (shown(now) == shown(before)) return name + " has other constants";
  return fmt::format("{} is {} instead of {}", name, shown(now), shown(before));
}

}  // namespace

std::string hash_text(std::span<const std::byte> bytes) {
  return fmt::format("{:016x}", xxh64(bytes));
}

std::vector<Fact> option_facts(nn::Module& model, std::int64_t population,
                               const EngineOptions& options) {
  std::vector<Fact> facts;
  add_privacy(facts, options);
  add_batches(facts, population, options);
  add_clipping(facts, model, options);
  return facts;
}

std::vector<Fact> optimizer_facts(const nn::Optimizer& optimizer) {
  std::vector<Fact> facts;
  for (const std::string& group : optimizer.group_descriptions())
    facts.emplace_back("optimizer's group", group);
  return facts;
}

std::vector<Fact> data_facts(const Dataset* data, std::int64_t population,
                             const EngineOptions& options) {
  std::vector<Fact> facts{{"rows_of_unit", rows_text(population, options)}};
  if (data != nullptr) facts.emplace_back("hash of the data set", data_text(*data, options));
  return facts;
}

bool same_data(const std::vector<Fact>& one, const std::vector<Fact>& other) {
  return std::ranges::all_of(one, [&](const Fact& fact) {
    const auto found = std::ranges::find(other, fact.first, &Fact::first);
    return found == other.end() || found->second == fact.second;
  });
}

std::vector<std::string> differences(const std::vector<Fact>& now,
                                     const std::vector<Fact>& before) {
  std::map<std::string, std::pair<std::string, std::string>> both;
  for (const auto& [name, value] : by_name(now)) both[name] = {value, "unset"};
  for (const auto& [name, value] : by_name(before)) {
    both.try_emplace(name, "unset", "");
    both[name].second = value;
  }
  std::vector<std::string> all;
  for (const auto& [name, values] : both) {
    if (values.first != values.second) all.push_back(difference(name, values.first, values.second));
  }
  return all;
}

}  // namespace sotto
