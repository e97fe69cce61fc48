#include "dp/clipping/gpu_group_clipper.h"

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

void add_result(ClipAccumulator& accumulator, std::size_t group, const GpuClip& clip,
                std::int64_t units, bool copy_sums) {
  accumulator.record_norms(group, clip.norms(group, units), clip.factors(group, units));
  for (const auto& [parameter, total] : clip.sums(group))
    accumulator.add_sum(*parameter, copy_sums ? clone(total) : total);
}

GpuGroupClipper::GpuGroupClipper(const ClipBatch& batch, const Tensor& losses,
                                 const Grouping* grouping, ClipAccumulator& accumulator)
    : batch_(batch),
      losses_(losses),
      grouping_(grouping),
      accumulator_(accumulator),
      host_(batch, accumulator) {}

// Allocates device memory when the first group arrives.
GpuClip& GpuGroupClipper::gpu() {
  if (gpu_) return *gpu_;
  const GpuClip::Options options{batch_.options.rule, batch_.options.norm_method, batch_.units,
                                 losses_.numel(),     accumulator_.spacings(),    batch_.ends};
  gpu_.emplace(batch_.groups, options, losses_.device());
  gpu_->write_settings(batch_.loss_scale, batch_.units);
  gpu_->add_losses(losses_);
  return *gpu_;
}

void GpuGroupClipper::norms(std::size_t group, const Parameter& parameter,
                            const std::vector<PerSampleGrad>& uses) {
  gpu().add_norm(group, parameter, uses);
}

void GpuGroupClipper::factors(std::size_t group) { gpu().find_factors(group); }

void GpuGroupClipper::sums(std::size_t group, Parameter& parameter,
                           const std::vector<PerSampleGrad>& uses) {
  gpu().add_sum(group, parameter, uses);
}

void GpuGroupClipper::clip(std::size_t group, ParameterUses gradients) {
  if (gradients.empty()) return host_.clip(group, {});
  gpu().clip(group, gradients);
  for (const auto& [parameter, uses] : gradients) {
    for (const PerSampleGrad& use : uses) unread_bytes_ += use.bytes();
  }
  unread_.emplace_back(group, std::move(gradients));
  if (unread_bytes_ > batch_.options.per_sample_grad_budget) read();
}

void GpuGroupClipper::read_report() {
  gpu().read();
  if (!counted_) accumulator_.add_losses(gpu_->losses(), grouping_);
  counted_ = true;
}

// Reads the results and adds the groups; the host clips groups that are not reliable again.
void GpuGroupClipper::read() {
  read_report();
  for (auto& [group, gradients] : unread_) {
    if (gpu_->reliable(group)) {
      add_result(accumulator_, group, *gpu_, batch_.units);
    } else {
      gpu_->drop_sums(group);
      host_.clip(group, std::move(gradients));
    }
    gradients.clear();
  }
  unread_.clear();
  unread_bytes_ = 0;
  gpu_->start();
}

bool GpuGroupClipper::finish_all() {
  read_report();
  for (std::size_t group = 0; group < batch_.groups.size(); ++group) {
    if (!gpu_->reliable(group)) return false;
  }
  for (std::size_t group = 0; group < batch_.groups.size(); ++group)
    add_result(accumulator_, group, *gpu_, batch_.units);
  return true;
}

}  // namespace sotto
