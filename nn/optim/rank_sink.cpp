#include "nn/optim/rank_sink.h"

#include <algorithm>
#include <span>
#include <utility>

#include "autograd/per_sample/per_sample_grad.h"
#include "core/ranks/collectives.h"
#include "core/ranks/gpu_link.h"
#include "core/ranks/tensor_moves.h"
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

// Each rank's shard of a tensor.
std::vector<Tensor> shards_of(const Tensor& values, int ranks) {
  const std::int64_t shard = values.numel() / ranks;
  std::vector<Tensor> shards;
  for (int k = 0; k < ranks; ++k) shards.push_back(values.slice(0, k * shard, (k + 1) * shard));
  return shards;
}

std::span<std::byte> bytes_of(const Tensor& x) {
  return {static_cast<std::byte*>(x.view().data), x.bytes()};
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
  const Device device = parameter.value.device();
  if (buckets_.empty() || buckets_.back().dtype != dtype || buckets_.back().device != device ||
      static_cast<std::size_t>(buckets_.back().elements) * size_of(dtype) >= bytes) {
    buckets_.emplace_back();
    buckets_.back().dtype = dtype;
    buckets_.back().device = device;
  }
  Bucket& bucket = buckets_.back();
  if (!slots_.try_emplace(&parameter, Slot{buckets_.size() - 1, bucket.parameters.size()}).second)
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
  const auto found = slots_.find(&parameter);
  return found != slots_.end() && found->second.added;
}

void RankSink::add(Parameter& parameter, const Tensor& gradient) {
  const auto found = slots_.find(&parameter);
  check(found != slots_.end(), "RankSink: a gradient of a parameter {} that it was not made with",
        parameter.value.shape());
  Slot& slot = found->second;
  check(!slot.added, "RankSink: a second gradient of a parameter {}: a sink serves one backward",
        parameter.value.shape());
  Bucket& bucket = buckets_[slot.bucket];
  const Tensor& room = bucket.room(ranks_.size());
  const std::int64_t offset = bucket.offsets[slot.index];
  const Tensor part = room.slice(0, offset, offset + parameter.value.numel());
  copy_into(to_dtype(gradient.to(bucket.device), bucket.dtype),
            *part.view_as(parameter.value.shape()));
  const std::int64_t count = bucket.offsets.back() + static_cast<std::int64_t>(slot.index);
  copy_into(full({1}, 1, bucket.dtype, bucket.device), room.slice(0, count, count + 1));
  slot.added = true;
  --bucket.missing;
  begin_full_buckets(false);
}

// Buckets leave in one order on all ranks, full or not; their sums follow two buckets later. Where
// this throws, for lack of memory, the next call goes on.
void RankSink::begin_full_buckets(bool all) {
  constexpr std::size_t later = 2;
  while (true) {
    if (begun_ - added_ > later) {
      buckets_[added_].add_shards(ranks_);
      ++added_;
    } else if (begun_ < buckets_.size() && (all || buckets_[begun_].missing == 0)) {
      buckets_[begun_].begin_exchange(ranks_);
      ++begun_;
    } else {
      return;
    }
  }
}

const Tensor& RankSink::Bucket::room(int ranks) {
  if (!values.defined()) values = zeros({shard * ranks}, dtype, device);
  return values;
}

void RankSink::Bucket::begin_exchange(Ranks& ranks) {
  received = empty_like(room(ranks.size()));
  for (const Tensor& each : {values, received}) each.relabel(MemoryKind::gradient);
  pending = exchange_tensors(ranks, "gradients: buckets", shards_of(values, ranks.size()),
                             shards_of(received, ranks.size()));
}

void RankSink::Bucket::add_shards(Ranks& ranks) {
  pending.wait();
  const Tensor sum = shards_of(values, ranks.size())[static_cast<std::size_t>(ranks.rank())];
  if (!received.defined()) {
    // They were added by a call that threw.
  } else if (device != cpu) {
    const std::vector<Tensor> blocks = shards_of(received, ranks.size());
    copy_elements(blocks[0], sum);
    for (std::size_t k = 1; k < blocks.size(); ++k) axpby(1, blocks[k], 1, sum);
  } else if (dtype == Dtype::f64) {
    add_blocks(received.data<double>(), ranks.size(), shard, sum.data<double>());
  } else {
    add_blocks(received.data<float>(), ranks.size(), shard, sum.data<float>());
  }
  received = {};
  pending = all_gather_tensors(ranks, "gradients: sums", sum, shards_of(values, ranks.size()));
}

Gradients RankSink::gradients() {
  begin_full_buckets(true);
  for (; added_ < buckets_.size(); ++added_) buckets_[added_].add_shards(ranks_);
  for (Bucket& bucket : buckets_) bucket.pending.wait();
  Gradients sums;
  for (const Bucket& bucket : buckets_) {
    const std::int64_t first = bucket.offsets.back();
    const std::vector<double> counts =
        to_dtype(bucket.values.slice(0, first, first + std::ssize(bucket.parameters)), Dtype::f64)
            .to_vector<double>();
    for (std::size_t k = 0; k < bucket.parameters.size(); ++k) {
      const Parameter& parameter = *bucket.parameters[k];
      const std::int64_t offset = bucket.offsets[k];
      if (counts[k] == 0) continue;
      const Tensor sum = bucket.values.slice(0, offset, offset + parameter.value.numel());
      sums.emplace_back(bucket.parameters[k],
                        sum.view_as(parameter.value.shape())->to(parameter.value.device()));
    }
  }
  return sums;
}

void broadcast_values(Ranks& ranks, const std::vector<Parameter*>& parameters) {
  connect_gpus(ranks, parameters.empty() ? cpu : parameters.front()->value.device());
  for (Parameter* const parameter : parameters) {
    const Tensor own = contiguous(parameter->value.to(cpu));
    const auto bytes = bytes_of(own);
    const std::vector<std::byte> values = ranks.broadcast("parameters: values of rank 0", bytes);
    check(values.size() == bytes.size(),
          "broadcast_values: rank 0 has {} bytes of a parameter {} of {}", values.size(),
          parameter->value.shape(), bytes.size());
    const Tensor value = Tensor::empty(own.shape(), own.dtype());
    std::copy(values.begin(), values.end(), static_cast<std::byte*>(value.view().data));
    copy_into(value.to(parameter->value.device()), parameter->value);
  }
}

namespace {

// A tensor in a message.
struct PackedTensor {
  static auto fields(auto& self) { return std::tie(self.name, self.dtype, self.sizes, self.bytes); }
  std::string name;
  Dtype dtype;
  std::vector<std::int64_t> sizes;
  std::vector<std::byte> bytes;
};

PackedTensor packed(const std::string& name, const Tensor& tensor) {
  const Tensor flat = contiguous(tensor).to(cpu);
  const auto bytes = bytes_of(flat);
  return {
      name, flat.dtype(), {flat.shape().begin(), flat.shape().end()}, {bytes.begin(), bytes.end()}};
}

Tensor unpacked(const PackedTensor& from) {
  const Tensor tensor = Tensor::empty(Shape(std::span(from.sizes)), from.dtype);
  std::ranges::copy(from.bytes, bytes_of(tensor).begin());
  return tensor;
}

}  // namespace

std::map<std::string, Tensor> broadcast_tensors(Ranks& ranks,
                                                const std::map<std::string, Tensor>& tensors) {
  if (ranks.size() == 1) return tensors;
  const auto from_rank_0 = broadcast(ranks, "tensors of rank 0", [&] {
    std::vector<PackedTensor> all;
    for (const auto& [name, tensor] : tensors) all.push_back(packed(name, tensor));
    return all;
  });
  std::map<std::string, Tensor> all;
  for (const PackedTensor& each : from_rank_0) all[each.name] = unpacked(each);
  return all;
}

}  // namespace sotto::nn
