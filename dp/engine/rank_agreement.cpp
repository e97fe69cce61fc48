#include "dp/engine/rank_agreement.h"

#include <algorithm>
#include <map>

#include "autograd/ops/conv_pool.h"
#include "autograd/ops/elementwise.h"
#include "core/devices.h"
#include "core/join.h"
#include "core/library_version.h"
#include "core/ranks/collectives.h"
#include "dp/engine/run_facts.h"
#include "dp/engine/unit_owners.h"
#include "dp/engine/validation.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/planning/planner.h"

namespace sotto {

namespace {

std::string hash_of(const Tensor& value) {
  const Tensor flat = contiguous(value).to(cpu);
  return hash_text({static_cast<const std::byte*>(flat.view().data), flat.bytes()});
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

// Device type without its index, which differs between ranks.
std::string device_text(Device device) {
  if (device == cpu) return "the CPU";
  const std::vector<DeviceInfo> all = devices();
  const auto info = std::ranges::find(all, device, &DeviceInfo::device);
  return fmt::format("a GPU, {}, {}", info->name, info->detail);
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
}

// One rank's run.
struct RankRun {
  static auto fields(auto& self) { return std::tie(self.facts, self.problems, self.owned); }
  std::vector<Fact> facts;
  std::vector<std::string> problems;
  std::vector<std::byte> owned;  // owned_units()
};

// Appends the facts in which a rank differs from rank 0.
void compare(const RankRun& rank_0, const RankRun& other, std::size_t rank,
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
std::vector<Fact> facts_of_run(const RunParts& run) {
  const auto& [model, optimizer, population, data, options, ledger] = run;
  const Device device = memory::device_of(optimizer);
  std::vector<Fact> facts{{"library's version", library_version},
                          {"ledger's run", ledger.run_id()},
                          {"device", device_text(device)},
                          {"arithmetic", arithmetic(device)}};
  for (const std::vector<Fact>& more :
       {data_facts(data, population, options), option_facts(model, population, options),
        optimizer_facts(optimizer)})
    facts.insert(facts.end(), more.begin(), more.end());
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

void check_agreement(const RunParts& run, std::vector<std::string> problems) {
  const auto& [model, optimizer, population, data, options, ledger] = run;
  Ranks& ranks = *options.ranks;
  if (ranks.size() == 1) return check(problems.empty(), "Engine: {}", join(problems, "\nEngine: "));
  const std::vector<std::string> more = rank_problems(optimizer, options, ledger);
  problems.insert(problems.end(), more.begin(), more.end());
  RankRun own{{}, std::move(problems), {}};
  try {
    own.facts = facts_of_run(run);
    own.owned = owned_units(population, options);
  } catch (const std::exception& error) {
    own.problems.emplace_back(error.what());  // of a function of the user's
  }
  const auto all = gather(ranks, "Engine: options", own);
  on_rank_0(ranks, "Engine: agreement", [&, &population = population, &options = options] {
    std::vector<std::string> found = own.problems;
    std::vector<std::vector<std::byte>> owned{own.owned};
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      compare(own, all[rank], rank, found);
      owned.push_back(all[rank].owned);
    }
    check(found.empty(), "Engine: {}", join(found, "\nEngine: "));
    const std::string problem =
        options.owner_of_unit ? owner_problem(population, options, owned) : "";
    check(problem.empty(), "Engine: {}", problem);
  });
}

}  // namespace sotto
