#include "nn/optim/shards.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "autograd/memory_labels.h"
#include "core/error.h"
#include "core/random/rounded_gaussian.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::nn {

namespace {

// Small parameters travel together: the elements of one message, at least, if there are as many.
constexpr std::int64_t elements_together = std::int64_t{1} << 20;

using Buffer = std::vector<std::byte>;

std::vector<Ranks::Bytes> bytes_of(const std::vector<Buffer>& buffers) {
  return {buffers.begin(), buffers.end()};
}

std::vector<Ranks::Room> room_of(std::vector<Buffer>& buffers) {
  return {buffers.begin(), buffers.end()};
}

std::byte* at(const Tensor& tensor, std::int64_t element) {
  return static_cast<std::byte*>(tensor.view().data) +
         static_cast<std::size_t>(element) * size_of(tensor.dtype());
}

std::size_t bytes_in(const Tensor& tensor, ElementRange range) {
  return static_cast<std::size_t>(range.size()) * size_of(tensor.dtype());
}

void append(Buffer& to, const Tensor& from, ElementRange range) {
  const std::byte* const first = at(from, range.first);
  to.insert(to.end(), first, first + bytes_in(from, range));
}

// Returns the end of the tensors from `begin` on that travel together.
template <class SizeOf>
std::size_t end_of_message(std::size_t begin, std::size_t count, const SizeOf& size_of_tensor) {
  std::int64_t elements = 0;
  while (begin < count && elements < elements_together) elements += size_of_tensor(begin++);
  return begin;
}

// Adds up the ranks' f64 numbers that begin at byte `first`, in the order of ranks.
void add_in_order(std::span<const Buffer> received, std::size_t first, const Tensor& total) {
  const std::span<double> to(total.data<double>(), static_cast<std::size_t>(total.numel()));
  if (to.empty()) return;
  std::memcpy(to.data(), received[0].data() + first, to.size_bytes());
  for (const Buffer& from : received.subspan(1)) {
    for (std::size_t i = 0; i < to.size(); ++i) {
      double more = 0;
      std::memcpy(&more, from.data() + first + i * sizeof more, sizeof more);
      to[i] += more;
    }
  }
}

}  // namespace

ElementRange part_of(std::int64_t elements, int k, int owners) {
  constexpr auto group = static_cast<std::int64_t>(RoundedGaussian::group_values);
  const std::int64_t groups = (elements + group - 1) / group;
  const auto cut = [&](std::int64_t owner) {
    return std::min(elements, groups * owner / owners * group);
  };
  return {cut(k), cut(k + 1)};
}

Shards::Shards(std::shared_ptr<Ranks> ranks, const std::vector<const Parameter*>& parameters)
    : ranks_(std::move(ranks)), parameters_(parameters) {
  for (const Parameter* parameter : parameters_) {
    check(parameter->value.device() == cpu && parameter->value.contiguous(),
          "several ranks: a parameter {} that is not row-major on the CPU",
          parameter->value.shape());
    places_.emplace(parameter, static_cast<int>(places_.size()));
  }
}

// A parameter of few groups is not owned by the same rank as all others of that kind.
ElementRange Shards::range(const Parameter& parameter, int rank) const {
  const int place = places_.at(&parameter), owners = ranks_->size();
  return part_of(parameter.value.numel(), (rank + place) % owners, owners);
}

Gradients Shards::add_up(Gradients sums) const {
  const auto ranks = static_cast<std::size_t>(ranks_->size());
  Gradients totals;
  for (std::size_t begin = 0; begin < sums.size();) {
    const std::size_t end =
        end_of_message(begin, sums.size(), [&](std::size_t k) { return sums[k].second.numel(); });
    std::vector<Buffer> sent(ranks), received(ranks);
    for (std::size_t k = begin; k < end; ++k) {
      const Tensor sum = contiguous(std::exchange(sums[k].second, Tensor()));
      for (std::size_t rank = 0; rank < ranks; ++rank)
        append(sent[rank], sum, range(*sums[k].first, static_cast<int>(rank)));
    }
    const std::size_t own = sent[static_cast<std::size_t>(ranks_->rank())].size();
    for (Buffer& from : received) from.resize(own);
    ranks_->exchange("clipped sums", bytes_of(sent), room_of(received)).wait();
    for (std::size_t first = 0; begin < end; ++begin) {
      Parameter* const parameter = sums[begin].first;
      const Tensor total = Tensor::empty({range(*parameter).size()}, Dtype::f64);
      label_for(*parameter, MemoryKind::gradient, total);
      add_in_order(received, first, total);
      first += total.bytes();
      totals.emplace_back(parameter, total);
    }
  }
  return totals;
}

void Shards::gather_values() const {
  const auto ranks = static_cast<std::size_t>(ranks_->size());
  for (std::size_t begin = 0; begin < parameters_.size();) {
    const std::size_t end = end_of_message(
        begin, parameters_.size(), [&](std::size_t k) { return parameters_[k]->value.numel(); });
    Buffer sent;
    std::vector<Buffer> received(ranks);
    for (std::size_t k = begin; k < end; ++k) {
      const Parameter& parameter = *parameters_[k];
      append(sent, parameter.value, range(parameter));
      for (std::size_t rank = 0; rank < ranks; ++rank)
        received[rank].resize(received[rank].size() +
                              bytes_in(parameter.value, range(parameter, static_cast<int>(rank))));
    }
    ranks_->gather("new parameters", sent, room_of(received)).wait();
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::byte* from = received[rank].data();
      for (std::size_t k = begin; k < end; ++k) {
        const Tensor& value = parameters_[k]->value;
        const ElementRange theirs = range(*parameters_[k], static_cast<int>(rank));
        if (theirs.size() > 0) std::memcpy(at(value, theirs.first), from, bytes_in(value, theirs));
        from += bytes_in(value, theirs);
      }
    }
    begin = end;
  }
}

Tensor Shards::whole(const Parameter& parameter, const Tensor& own) const {
  const bool here = ranks_->rank() == 0;
  const auto ranks = static_cast<std::size_t>(ranks_->size());
  const Tensor all = here ? Tensor::empty(parameter.value.shape(), own.dtype()) : Tensor();
  std::vector<Ranks::Bytes> sent(ranks);
  std::vector<Ranks::Room> received(ranks);
  sent[0] = {at(own, 0), own.bytes()};
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
  const Tensor all = whole.defined() ? contiguous(whole) : Tensor();
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
