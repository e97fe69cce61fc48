#include "memory/outputs_of.h"

#include <algorithm>
#include <vector>

#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/physical_batches.h"

namespace sotto::memory {

namespace {

constexpr std::int64_t max_part = 500;  // samples

// The first sample of a rank's parts. All ranks have as many, and rank 0 has one if there are any.
std::int64_t first_sample(std::int64_t samples, int rank, int ranks) {
  const std::int64_t parts = (samples + max_part - 1) / max_part;
  return std::min(samples, (parts * rank + ranks - 1) / ranks * max_part);
}

// The outputs of samples begin .. end - 1; undefined for none.
Tensor outputs_between(nn::Module& model, const Dataset& data, const nn::Forward& forward,
                       std::int64_t begin, std::int64_t end) {
  std::vector<Tensor> parts;
  const auto run = [&](std::int64_t first, std::int64_t last) {
    parts.push_back(
        nn::predict(model, data.slice(begin + first, begin + last), forward, last - first));
  };
  const std::vector<std::int64_t> rows(static_cast<std::size_t>(end - begin), 1);
  PhysicalBatches(max_part).over(rows, run, [] { return false; });
  return parts.empty() ? Tensor() : contiguous(concat(parts, 0));
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
