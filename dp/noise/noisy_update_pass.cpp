#include "dp/noise/noisy_update_pass.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/host_device/optimizer_update.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

void NoisyUpdate::finished(const Parameter* parameter, const Tensor& flat, std::int64_t first,
                           std::int64_t end, bool finite) {
  if (step_) step_->finished(parameter, flat, first, end, finite);
  if (values_ != nullptr && end == flat.numel()) values_->updated(*parameter);
}

void NoisyUpdate::finished(std::size_t k) {
  const auto& [parameter, result] = released_[k];
  finished(parameter, contiguous(result).view_as({-1}).value(), 0, result.numel(), false);
}

std::int64_t NoisyUpdate::own_size(std::size_t k) const {
  const auto& [parameter, total] = sums_[k];
  return total.defined() ? total.numel() : parameter->value.numel();
}

std::int64_t NoisyUpdate::whole_size(std::size_t k) const {
  return shards_ != nullptr ? sums_[k].first->value.numel() : own_size(k);
}

void NoisyUpdate::make_step(nn::Optimizer& optimizer, double noise_variance) {
  std::vector<Parameter*> dropped;
  for (const auto& [parameter, result] : released_) {
    if (!result.defined()) dropped.push_back(parameter);
  }
  if (dropped.empty()) {
    step_.emplace(optimizer, released_, noise_variance);
  } else {
    check(dropped.size() == released_.size(), "release: some gradients are kept and others not");
    step_.emplace(optimizer, dropped, noise_variance);
  }
}

std::int64_t NoisyUpdate::elements() const {
  std::int64_t elements = 0;
  for (std::size_t k = 0; k < sums_.size(); ++k) elements += whole_size(k);
  return elements;
}

std::uint64_t NoisyUpdate::noise_blocks() const {
  std::uint64_t blocks = 0;
  for (std::size_t k = 0; k < sums_.size(); ++k)
    blocks += RoundedGaussian::blocks_for(static_cast<std::size_t>(whole_size(k)));
  return blocks;
}

// The block, within the parameter's keystream, of the first element that is released here.
std::uint64_t NoisyUpdate::first_block(const Parameter* parameter) const {
  if (shards_ == nullptr) return 0;
  return static_cast<std::uint64_t>(shards_->range(*parameter).first) /
         RoundedGaussian::words_in_block;
}

namespace {

// The elements of a sum on the CPU, row-major. Of one that is deferred a chunk of whole rows is
// computed at a time, which ends where a block of noise does, or else all rows.
class SumElements {
 public:
  // `deferred` is null if `sum` is defined.
  SumElements(const Tensor& sum, std::shared_ptr<const DeferredSum> deferred)
      : deferred_(std::move(deferred)) {
    if (!deferred_) {
      flat_ = reshape(contiguous(sum).to(cpu), {sum.numel()});
      return;
    }
    const Shape& shape = deferred_->shape();
    width_ = shape.numel() / shape[0];
    rows_ = shape[0];
    if (deferred_->has_rows()) rows_ = std::min(rows_, std::lcm(width_, noise_block_size) / width_);
  }

  // Returns elements `first` to end - 1, f32 or f64; both rise from call to call.
  Tensor part(std::int64_t first, std::int64_t end) {
    if (!deferred_) return flat_.slice(0, first, end);
    if (!flat_.defined() || first >= first_ + flat_.numel()) compute(first / width_);
    return flat_.slice(0, first - first_, end - first_);
  }

 private:
  void compute(std::int64_t row) {
    const std::int64_t rows = std::min(rows_, deferred_->shape()[0] - row);
    if (!flat_.defined()) room_ = Tensor::empty({rows, width_}, Dtype::f64);
    const Tensor chunk = room_.slice(0, 0, rows);
    backend(cpu).fill(0, chunk.view());
    deferred_->add_rows(row, row + rows, chunk);
    flat_ = reshape(chunk, {rows * width_});
    first_ = row * width_;
  }

  std::shared_ptr<const DeferredSum> deferred_;
  std::int64_t width_ = 0, rows_ = 0;  // of a chunk
  Tensor room_, flat_;                 // of the chunk, or the whole sum
  std::int64_t first_ = 0;             // the element that flat_ begins with
};

}  // namespace

void NoisyUpdate::on_cpu(const NoiseGrid& grid, const WholeNoise& draw) {
  std::int64_t first = 0, room = 0;
  std::uint64_t block = 0;
  for (std::size_t k = 0; k < sums_.size(); ++k)
    room = std::max(room, std::min(own_size(k), noise_block_size));
  const auto draws = std::make_unique_for_overwrite<std::int64_t[]>(static_cast<std::size_t>(room));
  for (std::size_t k = 0; k < sums_.size(); ++k) {
    const std::uint64_t begin = block + first_block(sums_[k].first);
    const auto noise = [&](std::int64_t at, std::int64_t count) {
      const NoisePlace place{
          first + at, begin + static_cast<std::uint64_t>(at) / RoundedGaussian::words_in_block};
      return draw(place, std::span(draws.get(), static_cast<std::size_t>(count)));
    };
    if (released_[k].second.defined())
      one_on_cpu(k, grid, noise);
    else
      drop_on_cpu(k, grid, noise);
    first += own_size(k);
    block += RoundedGaussian::blocks_for(static_cast<std::size_t>(whole_size(k)));
  }
}

// A sum on a GPU is copied to the CPU, gets its noise there, and is copied back as a whole.
void NoisyUpdate::one_on_cpu(std::size_t k, const NoiseGrid& grid, const PartNoise& noise) {
  const auto& [parameter, total] = sums_[k];
  const Tensor& result = released_[k].second;
  const bool on_host = result.device() == cpu, in_place = on_host && result.contiguous();
  const Tensor from = contiguous(total).to(cpu);
  const Tensor to = in_place ? result : Tensor::empty(total.shape(), result.dtype());
  if (total.numel() == 0 && on_host) finished(parameter, to, 0, 0, true);
  for (std::int64_t at = 0; at < total.numel(); at += noise_block_size) {
    const std::int64_t count = std::min(total.numel() - at, noise_block_size);
    const bool finite = add_on_grid(from, to, at, noise(at, count), grid, divisor_);
    if (on_host) finished(parameter, to.view_as({-1}).value(), at, at + count, finite);
  }
  if (!in_place) copy_into(to, result);
  if (!on_host) finished(k);
}

// Releases a gradient for the step alone: only a block of it exists at a time, where the optimizer
// takes blocks.
void NoisyUpdate::drop_on_cpu(std::size_t k, const NoiseGrid& grid, const PartNoise& noise) {
  const auto& [parameter, total] = sums_[k];
  const std::int64_t size = own_size(k);
  const bool by_blocks = step_->takes_blocks(parameter);
  const std::int64_t kept = by_blocks ? std::min(size, noise_block_size) : size;
  const Tensor to = Tensor::empty({kept}, parameter->value.dtype());
  SumElements from(total, deferred_ != nullptr ? std::exchange((*deferred_)[k], nullptr) : nullptr);
  if (size == 0) finished(parameter, to, 0, 0, true);
  for (std::int64_t at = 0; at < size; at += noise_block_size) {
    const std::int64_t count = std::min(size - at, noise_block_size), place = by_blocks ? 0 : at;
    const Tensor block = to.slice(0, place, place + count);
    const bool finite =
        add_on_grid(from.part(at, at + count), block, 0, noise(at, count), grid, divisor_);
    if (by_blocks)
      step_->finished_block(parameter, block, at, finite);
    else
      finished(parameter, to, at, at + count, finite);
  }
}

namespace {

// Collects arrays until their draws fill the memory for draws, then runs the kernels for them.
class GpuBatches {
 public:
  // `stream` begins where the release's noise does.
  GpuBatches(Device device, const GpuNoise& noise, const ChaChaStream& stream)
      : device_(device),
        noise_(noise),
        stream_(stream),
        faults_(zeros({update_faults}, Dtype::i32, device)) {}

  // Arrays are split at whole groups of draws, so that splitting does not change the draws. `block`
  // is the place of the first in the release's keystream.
  void add(const UpdateArray& array, std::uint64_t block) {
    for (std::int64_t at = 0; at < array.count;) {
      const std::int64_t count = std::min(array.count - at, noise_.max_draws);
      if (elements_ + count > noise_.max_draws) run();
      const auto blocks_before = static_cast<std::uint64_t>(at) / RoundedGaussian::words_in_block;
      arrays_.push_back(array.slice(at, count));
      blocks_.push_back(block + blocks_before);
      elements_ += count;
      at += count;
    }
  }
  void run() {
    if (arrays_.empty()) return;
    std::vector<std::uint64_t> first;
    std::uint64_t blocks = 0;
    for (const UpdateArray& array : arrays_) {
      first.push_back(blocks);
      blocks += blocks_of(array);
    }
    const Tensor draws = Tensor::empty({places(blocks)}, Dtype::i64, device_);
    for (std::size_t k = 0; k < arrays_.size();) k = draw_from(k, first[k], draws);
    for (std::size_t k = 0; k < arrays_.size(); ++k)
      arrays_[k].noise = draws.view().as<std::int64_t>() + places(first[k]);
    backend(device_).update(arrays_, faults_.view());
    arrays_.clear();
    blocks_.clear();
    elements_ = 0;
  }
  // Synchronizes with the device. Returns, for each kind of fault, whether it occurred.
  std::vector<std::int32_t> faults() const { return faults_.to_vector<std::int32_t>(); }

 private:
  static std::uint64_t blocks_of(const UpdateArray& array) {
    return RoundedGaussian::blocks_for(static_cast<std::size_t>(array.count));
  }
  static std::int64_t places(std::uint64_t blocks) {
    return static_cast<std::int64_t>(blocks * RoundedGaussian::words_in_block);
  }
  // Draws for the arrays from the k-th on whose blocks of keystream follow each other: all of them,
  // if other ranks have none. `first` is the block of the draws where they begin. Returns the next
  // array.
  std::size_t draw_from(std::size_t k, std::uint64_t first, const Tensor& draws) {
    ChaChaStream stream = stream_;
    stream.block += blocks_[k];
    std::vector<std::int64_t> counts;
    std::uint64_t block = blocks_[k], end = first;
    for (; k < arrays_.size() && blocks_[k] == block; ++k) {
      counts.push_back(arrays_[k].count);
      block += blocks_of(arrays_[k]);
      end += blocks_of(arrays_[k]);
    }
    const Tensor room = draws.slice(0, places(first), places(end));
    backend(device_).rounded_gaussian(noise_.gaussian, stream, counts, room.view());
    return k;
  }

  Device device_;
  const GpuNoise& noise_;
  ChaChaStream stream_;
  Tensor faults_;
  std::vector<UpdateArray> arrays_;
  std::vector<std::uint64_t> blocks_;  // of keystream, where each begins
  std::int64_t elements_ = 0;
};

}  // namespace

bool NoisyUpdate::on_one_gpu() const {
  return !sums_.empty() && sums_[0].second.defined() && sums_[0].second.device() != cpu &&
         std::all_of(sums_.begin(), sums_.end(), [&](const auto& sum) {
           return sum.second.device() == sums_[0].second.device();
         });
}

// Returns the k-th parameter's update for the pass that adds noise, or nullopt if the optimizer's
// rule needs another pass. `flat` is its gradient in row-major order.
std::optional<UpdateArray> NoisyUpdate::update_in_place(std::size_t k, const Tensor& flat) {
  const auto& [parameter, total] = released_[k];
  if (!step_ || !flat.shares_storage(total)) return std::nullopt;
  return step_->array(parameter, total);
}

void NoisyUpdate::on_gpu(const NoiseGrid& grid, const GpuNoise& noise) {
  GpuBatches batches(sums_[0].second.device(), noise, noise.random.reserve(noise_blocks()));
  std::vector<Tensor> later(sums_.size());  // gradients that are updated afterwards
  std::vector<Tensor> wide;
  std::uint64_t block = 0;
  for (std::size_t k = 0; k < sums_.size(); ++k) {
    const auto& [parameter, total] = released_[k];
    const Tensor flat = contiguous(total);  // draws are numbered in this order
    std::optional<UpdateArray> array = update_in_place(k, flat);
    if (!array) {
      array =
          UpdateArray{.dtype = total.dtype(), .count = total.numel(), .gradient = flat.view().data};
      later[k] = flat;
    }
    if (!sums_[k].second.shares_storage(total)) {
      wide.push_back(contiguous(to_dtype(sums_[k].second, Dtype::f64)));
      array->sum = wide.back().view().as<const double>();
    }
    array->spacing = grid.spacing;
    array->divisor = divisor_;
    batches.add(*array, block + first_block(parameter));
    block += RoundedGaussian::blocks_for(static_cast<std::size_t>(whole_size(k)));
  }
  batches.run();
  const std::vector<std::int32_t> faults = batches.faults();
  const auto found = [&](UpdateFault fault) {
    return faults[static_cast<std::size_t>(fault) - 1] != 0;
  };
  check(!found(UpdateFault::not_a_number), "release: a sum is not a number");
  for (std::size_t k = 0; k < sums_.size(); ++k) {
    const auto& [parameter, total] = released_[k];
    if (!later[k].defined()) {
      if (values_ != nullptr) values_->updated(*parameter);
      continue;
    }
    if (!later[k].shares_storage(total)) copy_into(later[k], total);
    finished(parameter, later[k].view_as({-1}).value(), 0, later[k].numel(), false);
  }
  check(!step_ || !found(UpdateFault::not_finite), "step: a gradient is not finite");
}

}  // namespace sotto
