#include "nn/optim/rank_sink.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "core/ranks/on_rank_0.h"
#include "core/threads/parallel.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::nn {

namespace {

// Elements that are not worth another thread.
constexpr std::int64_t grain = 1 << 14;

// sum[i] = block 0's i-th element + block 1's + ..., in this order; blocks lie one after the other.
template <class T>
void add_blocks(const T* blocks, int count, std::int64_t size, T* sum) {
  parallel_for(size, grain, [=](std::int64_t begin, std::int64_t end) {
    std::copy(blocks + begin, blocks + end, sum + begin);
    for (int k = 1; k < count; ++k) {
      const T* const block = blocks + k * size;
      for (std::int64_t i = begin; i < end; ++i) sum[i] += block[i];
    }
  });
}

// The bytes of each rank's shard of a tensor.
std::vector<std::span<std::byte>> shards_of(const Tensor& values, int ranks) {
  const std::span bytes(static_cast<std::byte*>(values.view().data), values.bytes());
  const std::size_t shard = bytes.size() / static_cast<std::size_t>(ranks);
  std::vector<std::span<std::byte>> shards;
  for (int k = 0; k < ranks; ++k)
    shards.push_back(bytes.subspan(static_cast<std::size_t>(k) * shard, shard));
  return shards;
}

Dtype sum_type(const Parameter& parameter) { return arithmetic_type(parameter.value.dtype()); }

}  // namespace

// Backward reaches the last parameters first.
RankSink::RankSink(Ranks& ranks, const std::vector<Parameter*>& parameters,
                   const BucketSizes& sizes)
    : ranks_(ranks) {
  for (std::size_t k = parameters.size(); k-- > 0;)
    if (parameters[k]->trainable)
      place(*parameters[k], buckets_.size() < 2 ? sizes.first : sizes.others);
  for (Bucket& bucket : buckets_) {
    bucket.offsets.push_back(bucket.elements);
    bucket.elements += std::ssize(bucket.parameters);
    bucket.shard = (bucket.elements + ranks.size() - 1) / ranks.size();
    bucket.missing = bucket.parameters.size();
  }
}

void RankSink::place(Parameter& parameter, std::size_t bytes) {
  const Dtype dtype = sum_type(parameter);
  if (buckets_.empty() || buckets_.back().dtype != dtype ||
      static_cast<std::size_t>(buckets_.back().elements) * size_of(dtype) >= bytes) {
    buckets_.emplace_back();
    buckets_.back().dtype = dtype;
  }
  Bucket& bucket = buckets_.back();
  if (!places_.try_emplace(&parameter, Place{buckets_.size() - 1, bucket.parameters.size()}).second)
    return;
  bucket.parameters.push_back(&parameter);
  bucket.offsets.push_back(bucket.elements);
  bucket.elements += parameter.value.numel();
}

void RankSink::receive(Parameter& parameter, std::vector<PerSampleGrad> uses) {
  SumSink sum;
  sum.receive(parameter, std::move(uses));
  add(parameter, sum.gradients().front().second);
}

bool RankSink::has(const Parameter& parameter) const {
  const auto found = places_.find(&parameter);
  return found != places_.end() && found->second.added;
}

void RankSink::add(Parameter& parameter, const Tensor& gradient) {
  const auto found = places_.find(&parameter);
  check(found != places_.end(), "RankSink: a gradient of a parameter {} that it was not made with",
        parameter.value.shape());
  Place& place = found->second;
  check(!std::exchange(place.added, true),
        "RankSink: a second gradient of a parameter {}: a sink serves one backward",
        parameter.value.shape());
  Bucket& bucket = buckets_[place.bucket];
  if (!bucket.values.defined()) bucket.values = zeros({bucket.shard * ranks_.size()}, bucket.dtype);
  const std::int64_t offset = bucket.offsets[place.index];
  const Tensor part = bucket.values.slice(0, offset, offset + parameter.value.numel());
  copy_into(to_dtype(gradient.to(cpu), bucket.dtype), *part.view_as(parameter.value.shape()));
  const std::int64_t count = bucket.offsets.back() + static_cast<std::int64_t>(place.index);
  copy_into(full({1}, 1, bucket.dtype), bucket.values.slice(0, count, count + 1));
  --bucket.missing;
  begin_full_buckets(false);
}

// Buckets leave in one order on all ranks, full or not; their sums follow two buckets later.
void RankSink::begin_full_buckets(bool all) {
  constexpr std::size_t later = 2;
  while (begun_ < buckets_.size() && (all || buckets_[begun_].missing == 0)) {
    buckets_[begun_++].begin_exchange(ranks_);
    if (begun_ - added_ > later) buckets_[added_++].add_shards(ranks_);
  }
}

void RankSink::Bucket::begin_exchange(Ranks& ranks) {
  if (!values.defined()) values = zeros({shard * ranks.size()}, dtype);
  received = empty_like(values);
  for (const Tensor& each : {values, received}) each.relabel(MemoryKind::gradient);
  const auto blocks = shards_of(values, ranks.size());
  pending = ranks.exchange("gradients: buckets", {blocks.begin(), blocks.end()},
                           shards_of(received, ranks.size()));
}

void RankSink::Bucket::add_shards(Ranks& ranks) {
  pending.wait();
  const auto sum = shards_of(values, ranks.size())[static_cast<std::size_t>(ranks.rank())];
  const auto add = [&](auto* first) {
    add_blocks(received.data<std::remove_pointer_t<decltype(first)>>(), ranks.size(), shard, first);
  };
  if (dtype == Dtype::f64) {
    add(reinterpret_cast<double*>(sum.data()));
  } else {
    add(reinterpret_cast<float*>(sum.data()));
  }
  received = {};
  pending = ranks.gather("gradients: sums", sum, shards_of(values, ranks.size()));
}

Gradients RankSink::gradients() {
  begin_full_buckets(true);
  while (added_ < buckets_.size()) buckets_[added_++].add_shards(ranks_);
  Gradients sums;
  for (Bucket& bucket : buckets_) {
    bucket.pending.wait();
    for (std::size_t k = 0; k < bucket.parameters.size(); ++k) {
      const Parameter& parameter = *bucket.parameters[k];
      const std::int64_t offset = bucket.offsets[k];
      const std::int64_t count = bucket.offsets.back() + static_cast<std::int64_t>(k);
      if (bucket.values.at({count}) == 0) continue;
      const Tensor sum = bucket.values.slice(0, offset, offset + parameter.value.numel());
      sums.emplace_back(bucket.parameters[k],
                        sum.view_as(parameter.value.shape())->to(parameter.value.device()));
    }
  }
  return sums;
}

void tell_values(Ranks& ranks, const std::vector<Parameter*>& parameters) {
  for (Parameter* const parameter : parameters) {
    const Tensor own = contiguous(parameter->value.to(cpu));
    const auto bytes = shards_of(own, 1)[0];
    const std::vector<std::byte> told = ranks.tell("parameters: values of rank 0", bytes);
    check(told.size() == bytes.size(), "tell_values: rank 0 has {} bytes of a parameter {} of {}",
          told.size(), parameter->value.shape(), bytes.size());
    const Tensor value = Tensor::empty(own.shape(), own.dtype());
    std::copy(told.begin(), told.end(), static_cast<std::byte*>(value.view().data));
    copy_into(value.to(parameter->value.device()), parameter->value);
  }
}

std::map<std::string, Tensor> told_tensors(Ranks& ranks,
                                           const std::map<std::string, Tensor>& tensors) {
  PackedValues values;
  values.add(tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const Tensor flat = contiguous(tensor).to(cpu);
    values.add_all(name);
    values.add(flat.dtype());
    values.add_all(std::vector<std::int64_t>(flat.shape().begin(), flat.shape().end()));
    values.add_all(std::span(static_cast<const std::byte*>(flat.view().data), flat.bytes()));
  }
  UnpackedValues from(ranks.tell("tensors of rank 0", std::move(values).take()));
  std::map<std::string, Tensor> all;
  for (auto left = from.take<std::size_t>(); left > 0; --left) {
    const auto name = from.take_all<std::string>();
    const auto dtype = from.take<Dtype>();
    const auto sizes = from.take_all<std::vector<std::int64_t>>();
    const Tensor tensor = all[name] = Tensor::empty(Shape(std::span(sizes)), dtype);
    const auto bytes = from.take_all<std::vector<std::byte>>();
    if (!bytes.empty()) std::memcpy(tensor.view().data, bytes.data(), bytes.size());
  }
  return all;
}

}  // namespace sotto::nn
