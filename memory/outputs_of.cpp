#include "memory/outputs_of.h"

#include <algorithm>
#include <vector>

#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/physical_batches.h"
#include "memory/profiling/peak_memory.h"
#include "nn/frozen.h"

namespace sotto::memory {

namespace {

constexpr std::int64_t max_part = 500;              // samples
constexpr std::size_t max_part_bytes = 256u << 20;  // of tensors, as the first sample needs them

// The first sample of a rank's parts. All ranks have as many, and rank 0 has one if there are any.
std::int64_t first_sample(std::int64_t samples, int rank, int ranks) {
  const std::int64_t parts = (samples + max_part - 1) / max_part;
  return std::min(samples, (parts * rank + ranks - 1) / ranks * max_part);
}

// The number of samples whose tensors keep max_part_bytes, by those of the first one.
std::int64_t samples_at_once(nn::Module& model, const Dataset& data, const nn::Forward& forward) {
  PeakMemoryTracker tracker(device_of(model));
  const std::size_t before = tracker.peak();
  nn::predict(model, data.slice(0, 1), forward, 1);
  const std::size_t bytes = std::max<std::size_t>(1, tracker.peak() - before);
  return std::clamp(static_cast<std::int64_t>(max_part_bytes / bytes), std::int64_t{1}, max_part);
}

// The outputs of samples begin .. end - 1; undefined for none.
Tensor outputs_between(nn::Module& model, const Dataset& data, const nn::Forward& forward,
                       std::int64_t begin, std::int64_t end) {
  if (begin == end) return {};
  std::vector<Tensor> parts;
  const auto run = [&](std::int64_t first, std::int64_t last) {
    parts.push_back(
        nn::predict(model, data.slice(begin + first, begin + last), forward, last - first));
  };
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(end - begin), 1);
  PhysicalBatches(samples_at_once(model, data, forward)).over(rows, run, [] { return false; });
  return contiguous(concat(parts, 0));
}

// Rank 0's tensor of all ranks' outputs, which lie one after the other.
Tensor joined_on_rank_0(const Tensor& own, std::int64_t samples, Ranks& ranks) {
  std::vector<Ranks::Bytes> sent(static_cast<std::size_t>(ranks.size()));
  std::vector<Ranks::Room> received(sent.size());
  if (own.defined()) sent[0] = {own.view().as<const std::byte>(), own.bytes()};
  Tensor all;
  if (ranks.rank() == 0) {
    Shape shape = own.shape();
    shape[0] = samples;
    all = Tensor::empty(shape, own.dtype());
    const std::size_t row = own.bytes() / static_cast<std::size_t>(own.size(0));
    std::byte* to = all.view().as<std::byte>();
    for (int k = 0; k < ranks.size(); ++k) {
      const std::int64_t count =
          first_sample(samples, k + 1, ranks.size()) - first_sample(samples, k, ranks.size());
      received[static_cast<std::size_t>(k)] = {to, static_cast<std::size_t>(count) * row};
      to += static_cast<std::size_t>(count) * row;
    }
  }
  ranks.exchange("outputs_of", std::move(sent), std::move(received)).wait();
  return all;
}

}  // namespace

Tensor outputs_of(nn::Module& model, const Dataset& data, const nn::Forward& forward,
                  Ranks* ranks) {
  const std::int64_t samples = data.size();
  if (ranks == nullptr || ranks->size() == 1)
    return outputs_between(model, data, forward, 0, samples);
  const std::int64_t begin = first_sample(samples, ranks->rank(), ranks->size());
  const std::int64_t end = first_sample(samples, ranks->rank() + 1, ranks->size());
  return joined_on_rank_0(outputs_between(model, data, forward, begin, end), samples, *ranks);
}

Tensor outputs_of(nn::Module& model, const Dataset& data) {
  return outputs_of(
      model, data, [&](Tape& tape, const Dataset& part) { return model(tape.input(part.inputs)); });
}

}  // namespace sotto::memory
