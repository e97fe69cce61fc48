#include "dp/engine/agreement.h"

#include <span>
#include <utility>

#include "core/ranks/gpu_link.h"
#include "dp/noise/correlated/correlated_mechanism.h"
#include "dp/sampling/packed_units.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/rank_sink.h"

namespace sotto {

Agreement::Agreement(std::shared_ptr<Ranks> ranks, nn::Optimizer& optimizer)
    : ranks_(std::move(ranks)) {
  if (alone()) return;
  const auto& parameters = optimizer.parameters();
  shards_ = std::make_shared<nn::Shards>(ranks_, parameters);
  optimizer.divide(shards_);
  connect_gpus(*ranks_, parameters.empty() ? cpu : parameters.front()->value.device());
}

std::unique_ptr<Sampler> Agreement::sampler_for(std::unique_ptr<Sampler> sampler) const {
  if (leads()) return sampler;
  return std::make_unique<RemoteSampler>(std::move(sampler));
}

namespace {

// Rank 0's message to one rank about a draw.
struct Drawn {
  static auto fields(auto& self) {
    return std::tie(self.order, self.index_in_epoch, self.epoch_began, self.number, self.all,
                    self.own);
  }
  StepOrder order;
  std::int64_t index_in_epoch = 0;  // its position
  std::uint64_t epoch_began = 0, number = 0;
  UnitDigest all;              // of all its units
  std::vector<std::byte> own;  // packed_units() of those that the rank computes
};

std::int64_t elements_of(const std::vector<const Parameter*>& parameters) {
  std::int64_t elements = 0;
  for (const Parameter* parameter : parameters) elements += parameter->value.numel();
  return elements;
}

}  // namespace

SampledBatch Agreement::draw(const Draw& draw, Sampler& sampler, const UnitOwners& owners) const {
  std::optional<SampledBatch> batch;
  Drawn common;
  const auto decide = [&] {
    common.order = draw.decide();
    batch = sampler.draw();
  };
  const auto messages = [&] {
    common.index_in_epoch = batch->index_in_epoch();
    common.epoch_began = batch->epoch_began();
    common.number = batch->number();
    common.all = batch->digest();
    std::vector<Drawn> of_ranks;
    for (const auto& own : owners.by_rank(ranks_->size(), batch->units())) {
      of_ranks.push_back(common);
      of_ranks.back().own = packed_units(own);
    }
    return of_ranks;
  };
  const std::optional<Drawn> order = scatter(*ranks_, draw.place, decide, messages);
  if (batch) return std::move(*batch);
  abort_on_error(*ranks_, [&] {
    draw.follow(order->order);
    dynamic_cast<RemoteSampler&>(sampler).receive(
        order->index_in_epoch, order->epoch_began, order->number,
        unpacked_units(order->own, sampler.population()), order->all);
  });
  return sampler.draw();
}

void Agreement::check_whole(const MechanismState& whole,
                            const std::vector<const Parameter*>& parameters) {
  const auto found = whole.find(CorrelatedMechanism::memory_entry);
  if (found == whole.end()) return;
  const std::int64_t elements = elements_of(parameters);
  const Tensor& memory = found->second;
  check(memory.dtype() == Dtype::i64 && memory.rank() == 2 && memory.size(1) == elements,
        "engine state: a memory of correlated noise of {} {} for {} elements", name(memory.dtype()),
        memory.shape(), elements);
}

// The memory of correlated noise, [slots, elements], has the elements of all parameters in turn.
MechanismState Agreement::whole(MechanismState own,
                                const std::vector<const Parameter*>& parameters) const {
  const auto found = own.find(CorrelatedMechanism::memory_entry);
  if (alone() || found == own.end()) return own;
  std::vector<Tensor> slots;
  for (std::int64_t slot = 0; slot < found->second.size(0); ++slot) {
    const Tensor row = contiguous(found->second.select(0, slot));
    std::vector<Tensor> wholes;  // on rank 0
    std::int64_t first = 0;
    for (const Parameter* parameter : parameters) {
      const std::int64_t end = first + shards_->range(*parameter).size();
      const Tensor whole = shards_->whole(*parameter, row.slice(0, first, end));
      if (whole.defined()) wholes.push_back(whole.view_as({-1}).value());
      first = end;
    }
    if (!wholes.empty()) slots.push_back(concat(wholes, 0).unsqueeze(0));
  }
  found->second =
      slots.empty() ? Tensor::empty({0, elements_of(parameters)}, Dtype::i64) : concat(slots, 0);
  return own;
}

MechanismState Agreement::own(const MechanismState& whole,
                              const std::vector<const Parameter*>& parameters) const {
  return alone() ? whole : own_of_several(whole, parameters);
}

MechanismState Agreement::own_of_several(const MechanismState& whole,
                                         const std::vector<const Parameter*>& parameters) const {
  const auto found = whole.find(CorrelatedMechanism::memory_entry);
  MechanismState small = whole;
  small.erase(CorrelatedMechanism::memory_entry);
  const std::int64_t slots = broadcast(*ranks_, "state of noise", [&] {  // -1 without memory
    return found == whole.end() ? -1 : found->second.size(0);
  });
  MechanismState state = nn::broadcast_tensors(*ranks_, small);
  if (slots < 0) return state;
  std::int64_t elements = 0;
  for (const Parameter* parameter : parameters) elements += shards_->range(*parameter).size();
  const Tensor memory = Tensor::empty({slots, elements}, Dtype::i64);
  for (std::int64_t slot = 0; slot < slots; ++slot) {
    std::int64_t first = 0, first_whole = 0;
    for (const Parameter* parameter : parameters) {
      const std::int64_t end = first + shards_->range(*parameter).size(),
                         end_whole = first_whole + parameter->value.numel();
      // Rank 0 alone has the whole state.
      const Tensor all = found == whole.end()
                             ? Tensor()
                             : found->second.select(0, slot).slice(0, first_whole, end_whole);
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
