#include "dp/noise/gpu_release.h"

#include <algorithm>
#include <vector>

#include "kernels/host_device/optimizer_update.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// Collects arrays until they need `max_draws` draws, and then launches them.
class Batches {
 public:
  Batches(Device device, const DeviceRelease& how)
      : device_(device), how_(how), faults_(zeros({update_faults}, Dtype::i32, device)) {}

  // Splits an array at whole groups of draws, so that splitting does not change the draws.
  void add(const UpdateArray& array) {
    for (std::int64_t at = 0; at < array.count;) {
      const std::int64_t part = std::min(array.count - at, how_.max_draws);
      if (elements_ + part > how_.max_draws) run();
      arrays_.push_back(array.slice(at, part));
      elements_ += part;
      at += part;
    }
  }
  void run() {
    if (arrays_.empty()) return;
    std::vector<std::int64_t> counts, first;
    std::uint64_t blocks = 0;
    for (const UpdateArray& array : arrays_) {
      counts.push_back(array.count);
      first.push_back(static_cast<std::int64_t>(blocks * RoundedGaussian::words_in_block));
      blocks += RoundedGaussian::blocks_for(static_cast<std::size_t>(array.count));
    }
    const auto room = static_cast<std::int64_t>(blocks * RoundedGaussian::words_in_block);
    const Tensor draws = Tensor::empty({room}, Dtype::i64, device_);
    Backend& here = backend(device_);
    here.rounded_gaussian(how_.gaussian, how_.random.reserve(blocks), counts, draws.view());
    for (std::size_t k = 0; k < arrays_.size(); ++k)
      arrays_[k].noise = draws.view().as<std::int64_t>() + first[k];
    here.update(arrays_, faults_.view());
    arrays_.clear();
    elements_ = 0;
  }
  // Synchronizes with the device: whether there was a fault of each kind.
  std::vector<std::int32_t> faults() const { return faults_.to_vector<std::int32_t>(); }

 private:
  Device device_;
  const DeviceRelease& how_;
  Tensor faults_;
  std::vector<UpdateArray> arrays_;
  std::int64_t elements_ = 0;
};

// Sums that are updated as a whole, as row-major copies.
struct Whole {
  const Parameter* parameter;
  Tensor flat, total;
};

}  // namespace

bool on_one_gpu(const Gradients& sums) {
  return !sums.empty() && sums[0].second.device() != cpu &&
         std::all_of(sums.begin(), sums.end(), [&](const auto& sum) {
           return sum.second.device() == sums[0].second.device();
         });
}

void release_on_device(const Gradients& sums, const Gradients& released, const DeviceRelease& how) {
  Batches batches(sums[0].second.device(), how);
  std::vector<Whole> whole;
  std::vector<Tensor> wide;
  for (std::size_t k = 0; k < sums.size(); ++k) {
    const auto& [parameter, total] = released[k];
    const Tensor flat = contiguous(total);  // draws are numbered in row-major order
    const bool in_place = flat.shares_storage(total);
    std::optional<UpdateArray> array;
    if (how.step && in_place) array = how.step->array(parameter, total);
    if (!array) {
      array =
          UpdateArray{.dtype = total.dtype(), .count = total.numel(), .gradient = flat.view().data};
      whole.push_back({parameter, flat, total});
    }
    if (!sums[k].second.shares_storage(total)) {
      wide.push_back(contiguous(to_dtype(sums[k].second, Dtype::f64)));
      array->sum = wide.back().view().as<const double>();
    }
    array->spacing = how.grid.spacing;
    array->divisor = how.divisor;
    batches.add(*array);
  }
  batches.run();
  const std::vector<std::int32_t> faults = batches.faults();
  const auto found = [&](UpdateFault fault) {
    return faults[static_cast<std::size_t>(fault) - 1] != 0;
  };
  check(!found(UpdateFault::not_a_number), "release: a sum is not a number");
  for (const Whole& one : whole) {
    if (!one.flat.shares_storage(one.total)) copy_into(one.flat, one.total);
    if (how.step)
      how.step->finished(one.parameter, one.flat.view_as({-1}).value(), 0, one.flat.numel());
  }
  check(!how.step || !found(UpdateFault::not_finite), "step: a gradient is not finite");
}

}  // namespace sotto
