#include "nn/optim/shards.h"

#include <algorithm>
#include <utility>

#include "core/devices.h"
#include "core/error.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::nn {

namespace {

std::byte* at(const Tensor& tensor, std::int64_t element) {
  return static_cast<std::byte*>(tensor.view().data) +
         static_cast<std::size_t>(element) * size_of(tensor.dtype());
}

std::size_t bytes_in(const Tensor& tensor, ElementRange range) {
  return static_cast<std::size_t>(range.size()) * size_of(tensor.dtype());
}

}  // namespace

ElementRange part_of(std::int64_t elements, int k, int owners) {
  constexpr std::int64_t group = Shards::group_elements;
  const std::int64_t groups = (elements + group - 1) / group;
  const auto cut = [&](std::int64_t owner) {
    return std::min(elements, groups * owner / owners * group);
  };
  return {cut(k), cut(k + 1)};
}

Shards::Shards(std::shared_ptr<Ranks> ranks, const std::vector<const Parameter*>& parameters)
    : ranks_(std::move(ranks)) {
  for (const Parameter* parameter : parameters) {
    const Tensor& value = parameter->value;
    if (places_.empty()) device_ = value.device();
    check(value.contiguous(), "several ranks: a parameter {} that is not row-major", value.shape());
    check(value.device() == device_, "several ranks: parameters on {} and {}", name(device_),
          name(value.device()));
    places_.emplace(parameter, static_cast<int>(places_.size()));
  }
}

// The rotation by the parameter's index spreads parameters of few groups over the ranks.
ElementRange Shards::range(const Parameter& parameter, int rank) const {
  const int place = places_.at(&parameter), owners = ranks_->size();
  return part_of(parameter.value.numel(), (rank + place) % owners, owners);
}

std::vector<double> Shards::of_all_groups(const Parameter& parameter, std::span<const double> own,
                                          std::int64_t each) const {
  const auto numbers_before = [&](std::int64_t element) {
    return static_cast<std::size_t>((element + group_elements - 1) / group_elements * each);
  };
  std::vector<double> all(numbers_before(parameter.value.numel()));
  std::vector<Ranks::Room> room;
  for (int rank = 0; rank < ranks_->size(); ++rank) {
    const ElementRange theirs = range(parameter, rank);
    const std::size_t first = numbers_before(theirs.first);
    room.push_back(
        std::as_writable_bytes(std::span(all).subspan(first, numbers_before(theirs.end) - first)));
  }
  ranks_->all_gather("parts of norms", std::as_bytes(own), std::move(room)).wait();
  return all;
}

Tensor Shards::whole(const Parameter& parameter, const Tensor& own) const {
  const bool here = ranks_->rank() == 0;
  const Tensor on_host = own.to(cpu);
  const auto ranks = static_cast<std::size_t>(ranks_->size());
  const Tensor all = here ? Tensor::empty(parameter.value.shape(), own.dtype()) : Tensor();
  std::vector<Ranks::Bytes> sent(ranks);
  std::vector<Ranks::Room> received(ranks);
  sent[0] = {at(on_host, 0), on_host.bytes()};
  for (std::size_t rank = 0; here && rank < ranks; ++rank) {
    const ElementRange theirs = range(parameter, static_cast<int>(rank));
    received[rank] = {at(all, theirs.first), bytes_in(all, theirs)};
  }
  ranks_->exchange("state of the optimizer", std::move(sent), std::move(received)).wait();
  return all;
}

Tensor Shards::part(const Parameter& parameter, const Tensor& whole, Dtype dtype) const {
  const auto ranks = static_cast<std::size_t>(ranks_->size());
  const Tensor own = Tensor::empty({range(parameter).size()}, dtype);
  const Tensor all = whole.defined() ? contiguous(whole.to(cpu)) : Tensor();
  std::vector<Ranks::Bytes> sent(ranks);
  std::vector<Ranks::Room> received(ranks);
  for (std::size_t rank = 0; ranks_->rank() == 0 && rank < ranks; ++rank) {
    const ElementRange theirs = range(parameter, static_cast<int>(rank));
    sent[rank] = {at(all, theirs.first), bytes_in(all, theirs)};
  }
  received[0] = {at(own, 0), own.bytes()};
  ranks_->exchange("parts of a state", std::move(sent), std::move(received)).wait();
  return own;
}

}  // namespace sotto::nn
