#include "nn/optim/shard_buckets.h"

#include <algorithm>
#include <utility>

#include "autograd/memory_labels.h"
#include "core/error.h"
#include "core/ranks/tensor_moves.h"
#include "core/threads/parallel.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::nn {

namespace {

// Elements that are not worth another thread.
constexpr std::int64_t grain = 1 << 14;

// The elements of a row-major tensor, [elements].
Tensor part(const Tensor& tensor, ElementRange range) {
  return tensor.view_as({-1}).value().slice(0, range.first, range.end);
}

// sum += block.
void add_block(const Tensor& block, const Tensor& sum) {
  if (sum.device() != cpu) return axpby(1, block, 1, sum);
  const auto* const from = block.data<double>();
  auto* const to = sum.data<double>();
  parallel_for(sum.numel(), grain, [=](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) to[i] += from[i];
  });
}

// The ranges of a bucket's elements: of each parameter, within the buffer in which the parts of one
// rank lie one after the other.
std::vector<ElementRange> places_in_buffer(const Shards& shards,
                                           std::span<Parameter* const> parameters, int rank) {
  std::vector<ElementRange> places;
  std::int64_t end = 0;
  for (const Parameter* parameter : parameters) {
    const std::int64_t first = std::exchange(end, end + shards.range(*parameter, rank).size());
    places.push_back({first, end});
  }
  return places;
}

std::int64_t size_of_parts(const std::vector<ElementRange>& places) {
  return places.empty() ? 0 : places.back().end;
}

Tensor buffer(std::int64_t elements, Dtype dtype, const Shards& shards) {
  const Tensor made = Tensor::empty({elements}, dtype, shards.device());
  made.relabel(MemoryKind::gradient);
  return made;
}

// Calls f(value, place of its part of the rank in the buffer, range of the part) for each tensor.
template <class F>
void each_part(const Shards& shards, std::span<Parameter* const> parameters, int rank, F&& f) {
  const std::vector<ElementRange> places = places_in_buffer(shards, parameters, rank);
  for (std::size_t k = 0; k < parameters.size(); ++k)
    f(k, places[k], shards.range(*parameters[k], rank));
}

}  // namespace

std::vector<std::vector<Parameter*>> in_buckets(std::span<Parameter* const> parameters) {
  std::vector<std::vector<Parameter*>> buckets;
  std::vector<Parameter*> together;
  std::int64_t elements = 0;  // of these
  for (Parameter* const parameter : parameters) {
    if (parameter->value.numel() >= bucket_elements) {
      buckets.push_back({parameter});
      continue;
    }
    together.push_back(parameter);
    elements += parameter->value.numel();
    if (elements < bucket_elements) continue;
    buckets.push_back(std::exchange(together, {}));
    elements = 0;
  }
  if (!together.empty()) buckets.push_back(std::move(together));
  return buckets;
}

struct SumsToOwners::Bucket {
  std::vector<Parameter*> parameters;
  std::vector<Tensor> sums;  // of this rank, f64; undefined: not given yet
  std::size_t missing = 0;
  std::vector<Tensor> received;  // by rank
  Pending pending{};

  void begin(const Shards& shards);
};

SumsToOwners::SumsToOwners(std::shared_ptr<const Shards> shards,
                           std::span<Parameter* const> parameters)
    : shards_(std::move(shards)) {
  for (const std::vector<Parameter*>& some : in_buckets(parameters)) {
    buckets_.push_back(std::make_unique<Bucket>());
    Bucket& bucket = *buckets_.back();
    bucket.parameters = some;
    bucket.sums.resize(some.size());
    bucket.missing = some.size();
    for (const Parameter* parameter : some) bucket_of_.emplace(parameter, &bucket);
  }
}

SumsToOwners::~SumsToOwners() = default;

bool SumsToOwners::has(const Parameter& parameter) const { return given_.contains(&parameter); }

void SumsToOwners::give(Parameter& parameter, const Tensor& sum) {
  Bucket& bucket = *bucket_of_.at(&parameter);
  check(given_.insert(&parameter).second, "SumsToOwners: a second sum of a parameter {}",
        parameter.value.shape());
  const auto at = std::find(bucket.parameters.begin(), bucket.parameters.end(), &parameter);
  bucket.sums[static_cast<std::size_t>(at - bucket.parameters.begin())] = contiguous(sum);
  --bucket.missing;
  begin_full_buckets();
}

void SumsToOwners::begin_full_buckets() {
  constexpr std::size_t under_way = 2;
  while (begun_ < buckets_.size() && buckets_[begun_]->missing == 0) {
    if (begun_ - ended_ == under_way) end_next();
    buckets_[begun_]->begin(*shards_);
    ++begun_;
  }
}

// A parameter that travels alone is sent from where it lies. When memory runs out it may be called
// again.
void SumsToOwners::Bucket::begin(const Shards& shards) {
  const int ranks = shards.ranks().size(), own = shards.ranks().rank();
  received.clear();
  std::vector<Tensor> sent;
  const std::int64_t owned = size_of_parts(places_in_buffer(shards, parameters, own));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t count = size_of_parts(places_in_buffer(shards, parameters, rank));
    if (parameters.size() == 1) {
      sent.push_back(part(sums[0], shards.range(*parameters[0], rank)));
    } else {
      sent.push_back(buffer(count, Dtype::f64, shards));
      each_part(shards, parameters, rank,
                [&](std::size_t k, ElementRange place, ElementRange range) {
                  copy_elements(part(sums[k], range), part(sent.back(), place));
                });
    }
    received.push_back(buffer(owned, Dtype::f64, shards));
  }
  if (parameters.size() > 1) std::fill(sums.begin(), sums.end(), Tensor());
  pending = exchange_tensors(shards.ranks(), "clipped sums", std::move(sent), received);
}

// Adds up the next bucket, when it has arrived. It may be called again, too.
void SumsToOwners::end_next() {
  Bucket& bucket = *buckets_[ended_];
  bucket.pending.wait();
  bucket.sums.clear();
  const Tensor& total = bucket.received[0];
  for (std::size_t rank = 1; rank < bucket.received.size(); ++rank) {
    if (bucket.received[rank].defined()) add_block(bucket.received[rank], total);
    bucket.received[rank] = {};
  }
  each_part(*shards_, bucket.parameters, shards_->ranks().rank(),
            [&](std::size_t k, ElementRange place, ElementRange) {
              const Tensor own = bucket.parameters.size() == 1
                                     ? total
                                     : clone(total.slice(0, place.first, place.end));
              label_for(*bucket.parameters[k], MemoryKind::gradient, own);
              totals_.emplace(bucket.parameters[k], own);
            });
  bucket.received.clear();
  ++ended_;
}

Gradients SumsToOwners::totals(const std::vector<Parameter*>& order) {
  begin_full_buckets();
  check(begun_ == buckets_.size(), "SumsToOwners: a sum was not given");
  while (ended_ < buckets_.size()) end_next();
  Gradients totals;
  for (Parameter* const parameter : order)
    totals.emplace_back(parameter, std::move(totals_.at(parameter)));
  return totals;
}

struct ValuesFromOwners::Bucket {
  std::vector<Parameter*> parameters;
  std::size_t missing = 0;
  std::vector<Tensor> received{};  // by rank
  Pending pending{};

  bool alone() const { return parameters.size() == 1; }
  void begin(const Shards& shards);
  void end(const Shards& shards);
};

ValuesFromOwners::ValuesFromOwners(const Shards& shards, std::span<Parameter* const> parameters)
    : shards_(shards) {
  for (const std::vector<Parameter*>& some : in_buckets(parameters)) {
    buckets_.push_back(std::make_unique<Bucket>());
    Bucket& bucket = *buckets_.back();
    bucket.parameters = some;
    bucket.missing = some.size();
    for (const Parameter* parameter : some) bucket_of_.emplace(parameter, &bucket);
  }
}

ValuesFromOwners::~ValuesFromOwners() = default;

void ValuesFromOwners::updated(const Parameter& parameter) {
  --bucket_of_.at(&parameter)->missing;
  begin_full_buckets(false);
}

void ValuesFromOwners::begin_full_buckets(bool all) {
  while (begun_ < buckets_.size() && (all || buckets_[begun_]->missing == 0))
    buckets_[begun_++]->begin(shards_);
}

namespace {

// Calls f(a rank's part of a value, where its bytes lie in the buffer of that rank) for each value.
template <class F>
void each_value(const Shards& shards, std::span<Parameter* const> parameters, int rank,
                const Tensor& buffer, F&& f) {
  std::int64_t at = 0;
  for (const Parameter* parameter : parameters) {
    const Tensor value = part(parameter->value, shards.range(*parameter, rank));
    const std::int64_t first = std::exchange(at, at + static_cast<std::int64_t>(value.bytes()));
    f(value, buffer.slice(0, first, at));
  }
}

}  // namespace

// The values of a parameter with its own bucket are received in place. In a shared bucket values
// are copied as bytes, because their types may differ.
void ValuesFromOwners::Bucket::begin(const Shards& shards) {
  const int ranks = shards.ranks().size(), own = shards.ranks().rank();
  const auto bytes_of_rank = [&](int rank) {
    std::int64_t bytes = 0;
    for (const Parameter* parameter : parameters)
      bytes += shards.range(*parameter, rank).size() *
               static_cast<std::int64_t>(size_of(parameter->value.dtype()));
    return bytes;
  };
  Tensor sent;
  std::vector<Tensor> room;
  if (alone()) {
    const Tensor& value = parameters[0]->value;
    sent = part(value, shards.range(*parameters[0], own));
    for (int rank = 0; rank < ranks; ++rank)
      room.push_back(part(value, shards.range(*parameters[0], rank)));
  } else {
    sent = buffer(bytes_of_rank(own), Dtype::u8, shards);
    each_value(shards, parameters, own, sent, copy_elements);
    for (int rank = 0; rank < ranks; ++rank)
      received.push_back(buffer(bytes_of_rank(rank), Dtype::u8, shards));
    room = received;
  }
  pending = all_gather_tensors(shards.ranks(), "new parameters", std::move(sent), std::move(room));
}

void ValuesFromOwners::Bucket::end(const Shards& shards) {
  pending.wait();
  for (std::size_t rank = 0; rank < received.size(); ++rank)
    each_value(shards, parameters, static_cast<int>(rank), received[rank],
               [](const Tensor& value, const Tensor& from) { copy_elements(from, value); });
  received.clear();
}

void ValuesFromOwners::wait() {
  begin_full_buckets(true);
  for (const auto& bucket : buckets_) bucket->end(shards_);
}

}  // namespace sotto::nn
