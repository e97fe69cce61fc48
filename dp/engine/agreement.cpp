#include "dp/engine/shared_run.h"

#include <optional>
#include <span>

#include "core/ranks/collectives.h"
#include "core/ranks/gpu_link.h"
#include "dp/noise/correlated/correlated_mechanism.h"
#include "dp/sampling/packed_units.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/rank_sink.h"

namespace sotto {

SharedRun::SharedRun(std::shared_ptr<Ranks> ranks, nn::Optimizer& optimizer)
    : ranks_(std::move(ranks)),
      shards_(std::make_shared<nn::Shards>(ranks_, optimizer.parameters())) {
  optimizer.divide(shards_);
  const auto& parameters = optimizer.parameters();
  connect_gpus(*ranks_, parameters.empty() ? cpu : parameters.front()->value.device());
}

std::unique_ptr<Sampler> SharedRun::sampler_for(std::unique_ptr<Sampler> sampler) const {
  if (leads()) return sampler;
  return std::make_unique<ToldSampler>(std::move(sampler));
}

namespace {

// Rank 0's message to one rank about a draw.
struct Drawn {
  static auto fields(auto& self) {
    return std::tie(self.order, self.index_in_epoch, self.epoch_began, self.number, self.all,
                    self.own);
  }
  StepOrder order;
  std::int64_t index_in_epoch = 0;  // the sampler's position before it
  std::uint64_t epoch_began = 0, number = 0;
  UnitDigest all;              // of all its units
  std::vector<std::byte> own;  // packed_units() of those that the rank computes
};

}  // namespace

std::pair<StepOrder, SampledBatch> SharedRun::draw(std::string_view place, Sampler& sampler,
                                                   const UnitOwners& owners,
                                                   const std::function<StepOrder()>& decide) {
  std::optional<SampledBatch> here;
  Drawn drawn = scatter(*ranks_, place, [&] {
    StepOrder order = decide();
    const SamplerState before = sampler.state();
    here = sampler.draw();
    std::vector<Drawn> messages;
    for (const auto& own : owners.by_rank(ranks_->size(), here->units()))
      messages.push_back({order, before.index_in_epoch, before.epoch_began, before.number,
                          here->digest(), packed_units(own)});
    return messages;
  });
  if (here) return {std::move(drawn.order), std::move(*here)};
  abort_on_error(*ranks_, [&] {
    dynamic_cast<ToldSampler&>(sampler).tell(drawn.index_in_epoch, drawn.epoch_began, drawn.number,
                                             unpacked_units(drawn.own, sampler.population()),
                                             drawn.all);
  });
  return {std::move(drawn.order), sampler.draw()};
}

RunProgress SharedRun::tell(const std::function<RunProgress()>& progress) const {
  return broadcast(*ranks_, "Engine: progress", progress);
}

void SharedRun::check_whole(const MechanismState& whole,
                            const std::vector<const Parameter*>& parameters) {
  const auto found = whole.find(CorrelatedMechanism::memory_entry);
  if (found == whole.end()) return;
  std::int64_t elements = 0;
  for (const Parameter* parameter : parameters) elements += parameter->value.numel();
  const Tensor& memory = found->second;
  check(memory.dtype() == Dtype::i64 && memory.rank() == 2 && memory.size(1) == elements,
        "engine state: a memory of correlated noise of {} {} for {} elements", name(memory.dtype()),
        memory.shape(), elements);
}

// The memory of correlated noise, [slots, elements], has the elements of all parameters in turn.
MechanismState SharedRun::whole(MechanismState own,
                                const std::vector<const Parameter*>& parameters) const {
  const auto found = own.find(CorrelatedMechanism::memory_entry);
  if (found != own.end()) {
    std::vector<Tensor> slots;
    for (std::int64_t slot = 0; slot < found->second.size(0); ++slot) {
      const Tensor row = contiguous(found->second.select(0, slot));
      std::vector<Tensor> wholes;
      std::int64_t first = 0;
      for (const Parameter* parameter : parameters) {
        const std::int64_t end = first + shards_->range(*parameter).size();
        const Tensor whole = shards_->whole(*parameter, row.slice(0, first, end));
        if (leads()) wholes.push_back(whole.view_as({-1}).value());
        first = end;
      }
      if (leads()) slots.push_back(concat(wholes, 0).unsqueeze(0));
    }
    std::int64_t elements = 0;
    for (const Parameter* parameter : parameters) elements += parameter->value.numel();
    found->second = slots.empty() ? Tensor::empty({0, elements}, Dtype::i64) : concat(slots, 0);
  }
  return leads() ? own : MechanismState();
}

MechanismState SharedRun::own(const MechanismState& whole,
                              const std::vector<const Parameter*>& parameters) const {
  const auto found = whole.find(CorrelatedMechanism::memory_entry);
  MechanismState small = whole;
  small.erase(CorrelatedMechanism::memory_entry);
  constexpr const char* slots_entry = "slots";  // -1 without memory
  const std::int64_t own_slots = found == whole.end() ? -1 : found->second.size(0);
  small[slots_entry] = Tensor::from(std::vector{own_slots}, {});
  MechanismState state = nn::broadcast_tensors(*ranks_, small);
  const std::int64_t slots = state.at(slots_entry).to_vector<std::int64_t>()[0];
  state.erase(slots_entry);
  if (slots < 0) return state;
  std::int64_t elements = 0;
  for (const Parameter* parameter : parameters) elements += shards_->range(*parameter).size();
  const Tensor memory = Tensor::empty({slots, elements}, Dtype::i64);
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    std::int64_t first = 0, first_whole = 0;
    for (const Parameter* parameter : parameters) {
      const std::int64_t end = first + shards_->range(*parameter).size(),
                         end_whole = first_whole + parameter->value.numel();
      const Tensor all =
          leads() ? found->second.select(0, slot).slice(0, first_whole, end_whole) : Tensor();
      copy_into(shards_->part(*parameter, all, Dtype::i64),
                memory.select(0, slot).slice(0, first, end));
      first = end;
      first_whole = end_whole;
    }
  }
  state[CorrelatedMechanism::memory_entry] = memory;
  state[CorrelatedMechanism::own_elements_entry] = Tensor::from(std::vector{elements}, {});
  return state;
}

}  // namespace sotto
