#include "dp/engine/rank_agreement.h"

#include <algorithm>
#include <map>
#include <span>

#include "autograd/ops/conv_pool.h"
#include "autograd/ops/elementwise.h"
#include "core/devices.h"
#include "core/io/xxh64.h"
#include "core/join.h"
#include "core/library_version.h"
#include "core/ranks/on_rank_0.h"
#include "dp/clipping/clip_rule.h"
#include "dp/engine/unit_owners.h"
#include "dp/engine/validation.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/planning/planner.h"

namespace sotto {

namespace {

// A name for people, and a value as text.
using Fact = std::pair<std::string, std::string>;

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

std::string hash(std::span<const std::byte> bytes) { return fmt::format("{:016x}", xxh64(bytes)); }

std::string hash_of(const Tensor& value) {
  const Tensor flat = contiguous(value).to(cpu);
  return hash({static_cast<const std::byte*>(flat.view().data), flat.bytes()});
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
  return hash(std::as_bytes(std::span(all)));
}

// A unit may be computed by any rank: its samples must be the same on each.
std::string data_text(const Dataset* data, const EngineOptions& options) {
  if (data == nullptr) return "unset";
  return options.owner_of_unit ? "of owned units" : fmt::format("{:016x}", data->hash());
}

// The bits of products, convolutions and exponentials, which differ between kinds of processors and
// between libraries. A unit may be computed by one rank or by another, so they must be equal.
std::string arithmetic(Device device) {
  std::vector<float> numbers(4 * 3 * 16 * 16);
  for (std::size_t k = 0; k < numbers.size(); ++k)
    numbers[k] = static_cast<float>(k * 7919 % 1009) / 997;
  const Tensor pictures = Tensor::from(numbers, {4, 3, 16, 16});
  const Tensor filters = Tensor::from(
      std::vector<float>(numbers.begin(), numbers.begin() + 8 * 3 * 3 * 3), {8, 3, 3, 3});
  const Tensor matrix = Tensor::from(numbers, {64, 48}).to(device);
  Tape tape;
  const Var filtered =
      tanh(conv(tape.input(pictures.to(device)), tape.constant(filters.to(device))));
  return hash_of(filtered.value()) + " " +
         hash_of(gemm(matrix, contiguous(matrix.transpose(0, 1))));
}

// The kind of the device: a rank's number of its GPU is its own.
std::string device_text(Device device) {
  if (device == cpu) return "the CPU";
  const std::vector<DeviceInfo> all = devices();
  const auto info = std::ranges::find(all, device, &DeviceInfo::device);
  return fmt::format("a GPU, {}, {}", info->name, info->detail);
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
  facts.emplace_back("rows_of_unit", rows_text(population, options));
  facts.emplace_back("owner_of_unit", options.owner_of_unit ? "set" : "unset");
  facts.emplace_back("mean_of_rows", fmt::format("{}", options.mean_of_rows));
  facts.emplace_back("seed", fmt::format("{}", options.seed));
}

void add_clipping(std::vector<Fact>& facts, nn::Module& model, const EngineOptions& options) {
  for (const ClipGroup& group : clip_groups(model, options)) {
    std::string members;
    for (const Parameter* member : group.parameters) {
      for (const auto& [parameter_name, parameter] : model.named_parameters())
        if (parameter == member) members += " " + parameter_name;
    }
    facts.emplace_back("clip bound", fmt::format("{} for{}", group.bound, members));
  }
  const ClipOptions& clipping = options.clipping;
  facts.emplace_back("clipping rule",
                     fmt::format("{} gamma {}", name(clipping.rule.kind), clipping.rule.gamma));
  facts.emplace_back("norm_method", fmt::format("{}", static_cast<int>(clipping.norm_method)));
  facts.emplace_back("per_sample_grad_budget", fmt::format("{}", clipping.per_sample_grad_budget));
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

void add_model(std::vector<Fact>& facts, nn::Module& model, const nn::Optimizer& optimizer) {
  for (const auto& [name, parameter] : model.named_parameters()) {
    const Tensor& value = parameter->value;
    facts.emplace_back(
        "parameter " + name,
        fmt::format("{} {} {}, values of hash {}", sotto::name(value.dtype()), value.shape(),
                    parameter->trainable ? "trained" : "frozen", hash_of(value)));
  }
  std::string order;
  for (const Parameter* trained : optimizer.parameters()) {
    for (const auto& [name, parameter] : model.named_parameters())
      if (parameter == trained) order += name + " ";
  }
  facts.emplace_back("optimizer's order", order);
  for (const std::string& group : optimizer.group_descriptions())
    facts.emplace_back("optimizer's group", group);
}

// All that a rank says about itself.
struct Said {
  std::vector<Fact> facts;
  std::vector<std::string> problems;
  std::vector<std::byte> owned;  // owned_units()
};

std::vector<std::byte> packed(const Said& said) {
  PackedValues values;
  values.add(said.facts.size());
  for (const auto& [name, value] : said.facts) {
    values.add_all(name);
    values.add_all(value);
  }
  values.add(said.problems.size());
  for (const std::string& problem : said.problems) values.add_all(problem);
  values.add_all(said.owned);
  return std::move(values).take();
}

Said unpacked(const std::vector<std::byte>& bytes) {
  UnpackedValues values(bytes);
  Said said;
  said.facts.resize(values.take<std::size_t>());
  for (auto& [name, value] : said.facts) {
    name = values.take_all<std::string>();
    value = values.take_all<std::string>();
  }
  said.problems.resize(values.take<std::size_t>());
  for (std::string& problem : said.problems) problem = values.take_all<std::string>();
  said.owned = values.take_all<std::vector<std::byte>>();
  return said;
}

// Appends the facts in which a rank differs from rank 0.
void compare(const Said& rank_0, const Said& other, std::size_t rank,
             std::vector<std::string>& found) {
  const std::size_t common = std::min(rank_0.facts.size(), other.facts.size());
  if (rank_0.facts.size() != other.facts.size())
    found.push_back(fmt::format("{} options, parameters and groups on rank {}, {} on rank 0",
                                other.facts.size(), rank, rank_0.facts.size()));
  for (std::size_t k = 0; k < common; ++k) {
    const auto& [name, here] = rank_0.facts[k];
    const auto& [other_name, there] = other.facts[k];
    if (name != other_name) {
      found.push_back(
          fmt::format("{} on rank {} in the place of {} on rank 0", other_name, rank, name));
      return;
    }
    if (here != there)
      found.push_back(fmt::format("{} is {} on rank {} and {} on rank 0", name, there, rank, here));
  }
  for (const std::string& problem : other.problems) {
    if (std::ranges::find(rank_0.problems, problem) == rank_0.problems.end())
      found.push_back(fmt::format("rank {}: {}", rank, problem));
  }
}

// The facts that all ranks must have in common.
std::vector<Fact> facts_of_run(nn::Module& model, const nn::Optimizer& optimizer,
                               std::int64_t population, const Dataset* data,
                               const EngineOptions& options, const Ledger& ledger) {
  const Device device = memory::device_of(optimizer);
  std::vector<Fact> facts{{"library's version", library_version},
                          {"ledger's run", ledger.run_id()},
                          {"hash of the data set", data_text(data, options)},
                          {"device", device_text(device)},
                          {"arithmetic", arithmetic(device)}};
  add_privacy(facts, options);
  add_batches(facts, population, options);
  add_clipping(facts, model, options);
  add_model(facts, model, optimizer);
  return facts;
}

// Problems of several ranks alone.
std::vector<std::string> rank_problems(const nn::Optimizer& optimizer, const EngineOptions& options,
                                       const Ledger& ledger) {
  std::vector<std::string> problems;
  const auto refuse = [&](bool wrong, const char* what) {
    if (wrong) problems.emplace_back(what);
  };
  refuse(ledger.ranks() != options.ranks,
         "the ledger is not one for these ranks: make it by Ledger::on_rank_0(ranks, ...)");
  const Device device = memory::device_of(optimizer);
  for (const Parameter* parameter : optimizer.parameters()) {
    const Tensor& value = parameter->value;
    if (value.contiguous() && value.device() == device) continue;
    problems.push_back(fmt::format(
        "a parameter {} on several ranks that is not row-major, or not on the {} as others",
        value.shape(), name(device)));
  }
  refuse(options.noise != GaussianNoise::discretized, "floating-point noise on several ranks");
  refuse(options.owner_of_unit && options.memory.limit > 0,
         "a memory limit where each unit has an owner: rows of other ranks' units would be tried "
         "(physical_batch instead)");
  refuse(options.rows_of_unit && options.memory.accumulation,
         "accumulation of units of several rows on several ranks (physical_batch instead)");
  return problems;
}

}  // namespace

void check_agreement(nn::Module& model, const nn::Optimizer& optimizer, std::int64_t population,
                     const Dataset* data, const EngineOptions& options, const Ledger& ledger,
                     std::vector<std::string> problems) {
  const std::vector<std::string> more = rank_problems(optimizer, options, ledger);
  problems.insert(problems.end(), more.begin(), more.end());
  Said own{{}, problems, {}};
  try {
    own.facts = facts_of_run(model, optimizer, population, data, options, ledger);
    own.owned = owned_units(population, options);
  } catch (const std::exception& error) {
    own.problems.emplace_back(error.what());  // of a function of the user's
  }
  const auto all = options.ranks->collect("Engine: options", packed(own));
  by_rank_0(options.ranks, "Engine: agreement", [&] {
    std::vector<std::string> found = own.problems;
    std::vector<std::vector<std::byte>> owned{own.owned};
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      Said other = unpacked(all[rank]);
      compare(own, other, rank, found);
      owned.push_back(std::move(other.owned));
    }
    check(found.empty(), "Engine: {}", join(found, "\nEngine: "));
    const std::string problem =
        options.owner_of_unit ? owner_problem(population, options, owned) : "";
    check(problem.empty(), "Engine: {}", problem);
  });
}

}  // namespace sotto
