#include "dp/clipping/gpu_group_clipper.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "autograd/per_sample/per_sample_grad.h"
#include "dp/clipping/host_group_clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

bool all_on_gpu(const std::vector<ClipGroup>& groups, const Tensor& losses) {
  const Device device = losses.device();
  bool on_gpu = device != cpu && losses.numel() > 0;
  for (const ClipGroup& group : groups) {
    for (const Parameter* parameter : group.parameters)
      on_gpu = on_gpu && parameter->value.device() == device;
  }
  return on_gpu;
}

void record_result(ClipAccumulator& accumulator, std::size_t group, const GpuClip& clip,
                   std::int64_t units, Gradients& sums) {
  accumulator.record_norms(group, clip.norms(group, units), clip.factors(group, units));
  std::ranges::copy(clip.sums(group), std::back_inserter(sums));
}

struct GpuGroupClipper::UnreadBatch {
  const ClipBatch& batch;
  const Tensor& losses;
  const Grouping* grouping;
  ClipAccumulator& accumulator;
  HostGroupClipper host{batch, accumulator};
  std::optional<GpuClip> on_gpu = {};
  std::vector<std::pair<std::size_t, ParameterUses>> unread = {};
  std::size_t unread_bytes = 0;
  bool counted = false;  // the losses were added

  GpuClip& gpu();
  void read_report();
  void read();
};

// Allocates device memory when the first group arrives.
GpuClip& GpuGroupClipper::UnreadBatch::gpu() {
  if (on_gpu) return *on_gpu;
  const GpuClip::Options options{batch.options.rule, batch.options.norm_method, batch.units,
                                 losses.numel(),     accumulator.spacings(),    batch.ends};
  on_gpu.emplace(batch.groups, options, losses.device());
  on_gpu->write_settings(batch.loss_scale, batch.units);
  on_gpu->add_losses(losses);
  return *on_gpu;
}

void GpuGroupClipper::UnreadBatch::read_report() {
  gpu().read();
  if (!counted) accumulator.add_losses(gpu().losses(), grouping);
  counted = true;
}

// Reads the results and adds the groups; the host clips groups that are not reliable again.
void GpuGroupClipper::UnreadBatch::read() {
  read_report();
  Gradients sums;
  for (auto& [group, gradients] : unread) {
    if (!gpu().reliable(group)) {
      gpu().drop_sums(group);
      continue;
    }
    record_result(accumulator, group, gpu(), batch.units, sums);
    gradients.clear();
  }
  accumulator.add_sums(sums);
  for (auto& [group, gradients] : unread) {
    if (!gradients.empty()) host.clip(group, std::exchange(gradients, {}));
  }
  unread.clear();
  unread_bytes = 0;
  gpu().start();
}

GpuGroupClipper::GpuGroupClipper(const ClipBatch& batch, const Tensor& losses,
                                 const Grouping* grouping, ClipAccumulator& accumulator)
    : batch_(new UnreadBatch{batch, losses, grouping, accumulator}) {}
GpuGroupClipper::~GpuGroupClipper() = default;

void GpuGroupClipper::norms(std::size_t group, const Parameter& parameter,
                            const std::vector<PerSampleGrad>& uses) {
  batch_->gpu().add_norm(group, parameter, uses);
}

void GpuGroupClipper::factors(std::size_t group) { batch_->gpu().find_factors(group); }

void GpuGroupClipper::sums(std::size_t group, Parameter& parameter,
                           const std::vector<PerSampleGrad>& uses) {
  batch_->gpu().add_sum(group, parameter, uses);
}

void GpuGroupClipper::clip(std::size_t group, ParameterUses gradients) {
  if (gradients.empty()) return batch_->host.clip(group, {});
  batch_->gpu().clip(group, gradients);
  for (const auto& [parameter, uses] : gradients) {
    for (const PerSampleGrad& use : uses) batch_->unread_bytes += use.bytes();
  }
  batch_->unread.emplace_back(group, std::move(gradients));
  if (batch_->unread_bytes > batch_->batch.per_sample_grad_budget) batch_->read();
}

void GpuGroupClipper::finish() { batch_->read(); }

bool GpuGroupClipper::finish_all() {
  batch_->read_report();
  const ClipBatch& batch = batch_->batch;
  for (std::size_t group = 0; group < batch.groups.size(); ++group) {
    if (!batch_->gpu().reliable(group)) return false;
  }
  Gradients sums;
  for (std::size_t group = 0; group < batch.groups.size(); ++group)
    record_result(batch_->accumulator, group, batch_->gpu(), batch.units, sums);
  batch_->accumulator.add_sums(sums);
  return true;
}

}  // namespace sotto
