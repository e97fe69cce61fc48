#include "dp/engine/run_facts.h"

#include <algorithm>
#include <functional>
#include <map>
#include <type_traits>

#include "core/io/xxh64.h"
#include "core/join.h"
#include "dp/clipping/clip_rule.h"
#include "dp/engine/option_list.h"
#include "dp/engine/validation.h"

namespace sotto {

namespace {

std::string text(const std::optional<double>& value) {
  return value ? fmt::format("{}", *value) : "unset";
}

// The schedule's factors at step 0 and at every power of two: a sample of them, since rank 0's
// bounds and noise hold for each step.
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

// Collects the facts of the options that all ranks have in common.
class OptionFacts {
 public:
  OptionFacts(nn::Module& model, const EngineOptions& options) : model_(model), options_(options) {}

  template <class T>
  void operator()(const char* name, const T& option, EqualOnRanks) {
    add(name, option);
  }
  template <class T>
  void operator()(const char*, const T&, OwnOfRank) {}
  std::vector<Fact> take() && { return std::move(facts_); }

 private:
  void put(const char* name, std::string value) { facts_.emplace_back(name, std::move(value)); }

  template <class Number>
  requires std::is_arithmetic_v<Number>
  void add(const char* name, Number value) { put(name, fmt::format("{}", value)); }
  void add(const char* name, const std::string& value) { put(name, value); }
  void add(const char* name, const std::optional<double>& value) { put(name, text(value)); }
  void add(const char* name, AccountantKind kind) { put(name, std::string(sotto::name(kind))); }
  void add(const char* name, Sampling sampling) { put(name, sotto::name(sampling)); }
  void add(const char* name, GaussianNoise noise) { add(name, static_cast<int>(noise)); }
  void add(const char* name, const std::optional<ClipPasses>& passes) {
    put(name, passes ? fmt::format("{}", static_cast<int>(*passes)) : "unset");
  }
  void add(const char* name, const std::optional<nn::Schedule>& schedule) {
    put(name, text(schedule, options_.steps));
  }
  void add(const char* name, const std::vector<PlannedMeans>& planned) {
    for (const PlannedMeans& means : planned)
      put(name, fmt::format("{} {} {}", means.noise_multiplier, means.sampling_rate, means.times));
  }
  void add(const char* name, const std::optional<StrategyMatrix>& strategy);
  void add(const char* name, const memory::Policy& policy);
  // Clip bounds: clip_bound is that of the only group if there are no others.
  void add(const char* name, const std::vector<ClipGroup>& groups);
  void add(const char* name, const ClipOptions& clipping);
  void add(const char* name, const std::optional<AdaptiveClipping>& adaptive);
  void add(const char* name, const memory::LossScaling& scaling);
  // The functions cannot be compared: data_facts() compares the rows, and check_agreement() the
  // owners.
  void add(const char*, const std::function<std::vector<std::int64_t>(std::int64_t)>&) {}
  void add(const char* name, const std::function<std::int64_t(std::int64_t)>& owner) {
    put(name, owner ? "set" : "unset");
  }

  nn::Module& model_;
  const EngineOptions& options_;
  std::vector<Fact> facts_;
};

void OptionFacts::add(const char* name, const std::optional<StrategyMatrix>& strategy) {
  if (!strategy) return;
  std::string variances = fmt::format("{} steps, {} bands", strategy->steps(), strategy->bands());
  for (std::int64_t step = 0; step < strategy->steps(); step = std::max(step + 1, 2 * step))
    variances += fmt::format(" {}", strategy->noise_variance(step));
  put(name, std::move(variances));
}

void OptionFacts::add(const char* name, const memory::Policy& policy) {
  add("physical_batch", policy.rows());
  add("accumulation", policy.accumulation.value_or(0));
  put("checkpoint", memory::checkpoint_text(policy.checkpoint));
  put(fmt::format("{} limit", name).c_str(), fmt::format("{}", policy.limit));
  put("precision", memory::precision_text(policy.precision));
}

void OptionFacts::add(const char*, const std::vector<ClipGroup>&) {
  std::map<const Parameter*, std::string> names;
  for (const auto& [parameter_name, parameter] : model_.named_parameters())
    names[parameter] += " " + parameter_name;
  for (const ClipGroup& group : clip_groups(model_, options_)) {
    std::string members;
    for (const Parameter* member : group.parameters) members += names[member];
    put("clip bound", fmt::format("{} for{}", group.bound, members));
  }
}

void OptionFacts::add(const char* name, const ClipOptions& clipping) {
  put(fmt::format("{} rule", name).c_str(),
      fmt::format("{} gamma {}", sotto::name(clipping.rule.kind), clipping.rule.gamma));
  add("norm_method", static_cast<int>(clipping.norm_method));
  put("per_sample_grad_budget", clipping.per_sample_grad_budget
                                    ? fmt::format("{}", *clipping.per_sample_grad_budget)
                                    : "unset");
}

void OptionFacts::add(const char* name, const std::optional<AdaptiveClipping>& adaptive) {
  if (!adaptive) return;
  put(name, fmt::format("{} {} {} {} {}", adaptive->quantile, adaptive->learning_rate,
                        text(adaptive->unclipped_count_stddev), adaptive->min_bound,
                        adaptive->max_bound));
}

void OptionFacts::add(const char* name, const memory::LossScaling& scaling) {
  put(name, fmt::format("{} {} {} {} {} {}", static_cast<int>(scaling.adjust), text(scaling.first),
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
  OptionFacts facts(model, options);
  visit_options(options, std::ref(facts));
  std::vector<Fact> all = std::move(facts).take();
  all.emplace_back("population", fmt::format("{}", population));
  return all;
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
