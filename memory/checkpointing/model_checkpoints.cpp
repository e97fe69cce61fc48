#include "memory/checkpointing/model_checkpoints.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "core/join.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/physical_batches.h"

namespace sotto::memory {

namespace {

void descend(nn::Module& module, const std::function<bool(nn::Module&)>& apply) {
  if (!apply(module)) return;
  module.visit(nn::Visitor([](const std::string&, Parameter&) {},
                           [&](const std::string&, nn::Module& child) { descend(child, apply); }));
}

}  // namespace

std::vector<nn::Sequential*> block_lists(nn::Module& model) {
  std::vector<nn::Sequential*> lists;
  descend(model, [&](nn::Module& module) {
    auto* const list = dynamic_cast<nn::Sequential*>(&module);
    if (list == nullptr || list->size() < 2) return true;
    lists.push_back(list);
    return false;
  });
  return lists;
}

bool has_checkpoints(nn::Module& model) {
  bool any = false;
  descend(model, [&](nn::Module& module) {
    const auto* const list = dynamic_cast<nn::Sequential*>(&module);
    any = any || module.recompute() || (list != nullptr && !list->segments().empty());
    return true;
  });
  return any;
}

void set_checkpoints(nn::Module& model, int n, BackwardPasses backwards) {
  check(n >= 0, "checkpoints: every {} modules", n);
  const std::vector<nn::Sequential*> lists = block_lists(model);
  check(n == 0 || !lists.empty(),
        "checkpoints: the model has no Sequential of several modules to recompute in segments");
  descend(model, [](nn::Module& module) {
    module.set_recomputing(false);
    if (auto* const list = dynamic_cast<nn::Sequential*>(&module)) list->set_segments({});
    return true;
  });
  for (nn::Sequential* list : lists) {
    if (n > 0) checkpoint_every(*list, n, backwards);
  }
}

void apply(const Policy& policy, nn::Module& model) {
  check(!policy.physical_batch && !policy.accumulation && policy.limit == 0,
        "apply: a physical batch, accumulation and a limit are settings of steps, not of a model");
  if (policy.checkpoint) set_checkpoints(model, *policy.checkpoint);
  if (policy.precision) model.set_precision(policy.precision);
}

std::string CheckpointChoice::text() const {
  std::vector<std::string> parts;
  for (const auto& [begin, end] : segments) parts.push_back(fmt::format("{} .. {}", begin, end));
  return fmt::format("recomputes modules {} of {}", join(parts, ", "), list->size());
}

namespace {

// The input of a list's call during a run.
struct Call {
  nn::Sequential* list = nullptr;
  Tensor input;
  int axis = 0;
  std::optional<Dtype> precision;
};

// Returns the first call of each list in a dry run of the minimum batch.
std::vector<Call> calls_of(nn::Module& model, const MemoryRequirement& requirement) {
  std::vector<Call> calls;
  for (nn::Sequential* list : block_lists(model)) calls.push_back({list});
  const nn::ModuleHook watch([&](const nn::Module& module, const Var& x, const Var&) {
    for (Call& call : calls) {
      if (call.list != &module || call.input.defined() || !x.samples().batched()) continue;
      call = {call.list, x.value(), x.samples().axis(), x.tape().precision()};
    }
  });
  requirement.peak_of(requirement.min);
  std::erase_if(calls, [](const Call& call) { return !call.input.defined(); });
  return calls;
}

// Returns the call's input for requirement.useful() rows, by repeating the rows it has.
Tensor repeated(const Call& call, const MemoryRequirement& requirement) {
  const std::int64_t size = call.input.shape()[call.axis];
  const std::int64_t wanted = (size * requirement.useful() + requirement.min - 1) / requirement.min;
  std::vector<std::int64_t> ids(static_cast<std::size_t>(wanted));
  for (std::int64_t i = 0; i < wanted; ++i) ids[static_cast<std::size_t>(i)] = i % size;
  return gather(call.input, Tensor::from(ids, {wanted}).to(call.input.device()), call.axis);
}

struct LargestList {
  nn::Sequential* list = nullptr;
  Chain chain;
};

// Returns the list that keeps the most bytes, with its costs.
LargestList largest(nn::Module& model, const MemoryRequirement& requirement,
                    const CheckpointRun& how) {
  LargestList max;
  std::size_t bytes = 0;
  for (const Call& call : calls_of(model, requirement)) {
    Chain chain = measured_chain(
        *call.list, repeated(call, requirement),
        {.private_data = how.private_data, .sample_axis = call.axis, .precision = call.precision});
    std::size_t kept = 0;
    for (const ChainBlock& block : chain) kept += block.kept;
    if (kept > bytes) max = {call.list, std::move(chain)};
    bytes = std::max(bytes, kept);
  }
  return max;
}

// Searches the plan of a list; dry runs of the whole model measure the bytes needed besides it.
class Search {
 public:
  Search(const LargestList& blocks, const MemoryRequirement& requirement, const CheckpointRun& how)
      : blocks_(blocks), requirement_(requirement), how_(how) {}

  ChainPlan find() {
    constexpr int rounds = 6;
    ChainPlan plan = each_again();
    for (int round = 0; round < rounds; ++round) {
      blocks_.list->set_segments(segments_of(plan));
      const double measured = peak();
      see(plan, measured);
      // The list's budget if everything else takes as much as in this run.
      const double budget =
          static_cast<double>(plan.peak) + static_cast<double>(requirement_.limit) - measured;
      try {
        ChainPlan next = plan_chain(blocks_.chain, static_cast<std::size_t>(std::max(0.0, budget)),
                                    how_.backwards);
        if (segments_of(next) == segments_of(plan)) break;
        plan = std::move(next);
      } catch (const std::invalid_argument&) {
        break;  // no plan needs so little
      }
    }
    return best_;
  }

 private:
  ChainPlan each_again() const {
    std::vector<ChainPart> parts;
    for (int k = 0; k < blocks_.list->size(); ++k) parts.push_back({k, k + 1, true, {{k, k + 1}}});
    return evaluated(blocks_.chain, std::move(parts), how_.backwards);
  }
  double peak() const {
    try {
      return static_cast<double>(requirement_.peak_of(requirement_.useful()));
    } catch (const std::exception& error) {
      if (!out_of_memory(error)) throw;
      return std::numeric_limits<double>::infinity();
    }
  }
  // Keeps, of plans within the limit, the one with the least work; else the one with the smallest
  // peak.
  void see(const ChainPlan& plan, double measured) {
    const auto limit = static_cast<double>(requirement_.limit);
    const bool better =
        measured <= limit ? (peak_ > limit || plan.work < best_.work) : measured < peak_;
    if (!better) return;
    best_ = plan;
    peak_ = measured;
  }

  const LargestList& blocks_;
  const MemoryRequirement& requirement_;
  const CheckpointRun& how_;
  ChainPlan best_;
  double peak_ = std::numeric_limits<double>::infinity();
};

}  // namespace

std::optional<CheckpointChoice> choose_checkpoints(nn::Module& model,
                                                   const MemoryRequirement& requirement,
                                                   const CheckpointRun& how) {
  LargestList blocks;
  try {
    set_checkpoints(model, 1);
    blocks = largest(model, requirement, how);
  } catch (const std::exception& error) {
    if (!out_of_memory(error)) throw;
  }
  set_checkpoints(model, 0);
  if (blocks.list == nullptr) return std::nullopt;
  const ChainPlan plan = Search(blocks, requirement, how).find();
  CheckpointChoice cut{.list = blocks.list, .segments = segments_of(plan)};
  blocks.list->set_segments(cut.segments);
  double all = 0;
  for (const ChainBlock& block : blocks.chain) all += block.work;
  if (all > 0) cut.recomputation = plan.work / all * (how.backwards == BackwardPasses::two ? 2 : 1);
  return cut;
}

bool can_checkpoint(const Policy& policy, nn::Module& model) {
  return !policy.checkpoint && !block_lists(model).empty() && !has_checkpoints(model);
}

Strategy with_checkpoints(const Strategy& strategy, nn::Module& model,
                          const MemoryRequirement& requirement, const CheckpointRun& how) {
  const auto apply = [=, &model, cut = std::optional<CheckpointChoice>(),
                      sought = false]() mutable -> StrategyCost {
    const StrategyCost plain = strategy.apply();
    if (!sought) cut = choose_checkpoints(model, requirement, how);
    sought = true;
    if (!cut) return plain;
    cut->list->set_segments(cut->segments);
    return {plain.recomputation + cut->recomputation, cut->text()};
  };
  return {strategy.name + ", checkpoints", apply};
}

}  // namespace sotto::memory
