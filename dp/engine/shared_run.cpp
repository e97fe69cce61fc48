#include "dp/engine/shared_run.h"

#include <optional>
#include <span>

#include "core/ranks/gpu_link.h"
#include "core/ranks/on_rank_0.h"
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

// Returns rank 0's message about a draw to a rank that computes these of its units.
std::vector<std::byte> packed_order(const StepOrder& order, const SamplerState& before,
                                    const UnitDigest& all, std::span<const std::int64_t> own) {
  PackedValues values;
  values.add(order.steps_made);
  values.add(order.noise_multiplier);
  values.add(order.loss_scale);
  values.add_all(order.bounds);
  values.add(before.index_in_epoch);
  values.add(before.epoch_began);
  values.add(before.number);
  values.add(all);
  values.add_all(packed_units(own));
  return std::move(values).take();
}

// The reverse: tells the sampler the draw.
StepOrder told_order(UnpackedValues told, ToldSampler& sampler) {
  StepOrder order;
  order.steps_made = told.take<std::int64_t>();
  order.noise_multiplier = told.take<double>();
  order.loss_scale = told.take<double>();
  order.bounds = told.take_all<std::vector<double>>();
  const auto index_in_epoch = told.take<std::int64_t>();
  const auto epoch_began = told.take<std::uint64_t>(), number = told.take<std::uint64_t>();
  const auto all = told.take<UnitDigest>();
  const auto own = told.take_all<std::vector<std::byte>>();
  sampler.tell(index_in_epoch, epoch_began, number, unpacked_units(own, sampler.population()), all);
  return order;
}

}  // namespace

std::pair<StepOrder, SampledBatch> SharedRun::draw(std::string_view place, Sampler& sampler,
                                                   const UnitOwners& owners,
                                                   const std::function<StepOrder()>& decide) {
  StepOrder order;
  std::optional<SampledBatch> drawn;
  UnpackedValues told(dealt_by_rank_0(*ranks_, place, [&] {
    order = decide();
    const SamplerState before = sampler.state();
    drawn = sampler.draw();
    const UnitDigest all = drawn->digest();
    std::vector<std::vector<std::byte>> messages;
    for (const auto& own : owners.by_rank(ranks_->size(), drawn->units()))
      messages.push_back(packed_order(order, before, all, own));
    return messages;
  }));
  if (drawn) return {std::move(order), std::move(*drawn)};
  fail_together(*ranks_,
                [&] { order = told_order(std::move(told), dynamic_cast<ToldSampler&>(sampler)); });
  return {std::move(order), sampler.draw()};
}

RunProgress SharedRun::tell(const std::function<RunProgress()>& progress) const {
  UnpackedValues told(on_rank_0(*ranks_, "Engine: progress", [&] {
    const RunProgress here = progress();
    PackedValues values;
    values.add(here.steps_made);
    values.add(here.first_noise);
    values.add(here.may_step);
    return std::move(values).take();
  }));
  RunProgress of_rank_0;
  of_rank_0.steps_made = told.take<std::int64_t>();
  of_rank_0.first_noise = told.take<double>();
  of_rank_0.may_step = told.take<bool>();
  return of_rank_0;
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
  MechanismState state = nn::told_tensors(*ranks_, small);
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
