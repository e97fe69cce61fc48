// Physical batches of a captured loss through one clipper, for the tests of captured clipping.
#pragma once

#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/captured_setup.h"
#include "tests/support/kernel_cases.h"

namespace sotto {

inline constexpr std::int64_t rows = 6;
inline constexpr TapeOptions private_tape{.private_data = true};

inline std::vector<Tensor> first_rows(const Batch& batch, std::int64_t count) {
  return {batch.images.slice(0, 0, count), batch.targets.slice(0, 0, count)};
}

// Runs physical batches through one clipper and holds its sums, norms and clip factors.
class Steps {
 public:
  Steps(Device device, const ClipOptions& options, bool by_parameter)
      : s(device, rows), clipper(groups(by_parameter), options) {}

  std::vector<double> part(const std::vector<Tensor>& batch, bool capture = true,
                           const Grouping* grouping = nullptr) {
    const Device device = s.model.parameters()[0]->value.device();
    clipper.discard();
    Tape tape(private_tape);
    clipper.add(tape, capture ? s.captured(tape, batch) : s.plain(tape, on_device(device, batch)),
                grouping);
    std::vector<double> all = flat(clipper.clipped_sums());
    const ClipStatistics& statistics = clipper.statistics();
    for (const auto* of : {&statistics.norms, &statistics.factors}) {
      for (const auto& values : *of) all.insert(all.end(), values.begin(), values.end());
    }
    all.push_back(statistics.loss_sum);
    all.push_back(static_cast<double>(statistics.not_finite));
    return all;
  }

  Setup s;
  Clipper clipper;

 private:
  std::vector<ClipGroup> groups(bool by_parameter) {
    if (!by_parameter) return flat_group(s.model.parameters(), 0.3);
    std::vector<ClipGroup> all;
    for (Parameter* parameter : s.model.parameters()) all.push_back({{parameter}, 0.2});
    return all;
  }
};

inline void spoil(const Tensor& images, std::int64_t row, double value) {
  copy_into(full({}, value), images.select(0, row));
}

}  // namespace sotto
