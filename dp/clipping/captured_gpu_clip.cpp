#include "dp/clipping/captured_gpu_clip.h"

#include <algorithm>

#include "autograd/per_sample/per_sample_grad.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

std::vector<std::shared_ptr<const PerSampleGrad>> captured_uses(
    const std::vector<PerSampleGrad>& uses) {
  std::vector<std::shared_ptr<const PerSampleGrad>> all;
  all.reserve(uses.size());
  for (const PerSampleGrad& use : uses) all.push_back(use.captured());
  return all;
}

}  // namespace

bool CapturedClip::made_of(const std::vector<PerSampleGrad>& uses) {
  return std::all_of(uses.begin(), uses.end(),
                     [](const PerSampleGrad& use) { return use.captured() != nullptr; });
}

CapturedClip::CapturedClip(const std::vector<ClipGroup>& groups, const Options& options,
                           const ParameterUses& gradients)
    : groups_(groups), options_(options), device_(groups[0].parameters[0]->value.device()) {
  for (const auto& [parameter, uses] : gradients)
    gradients_.emplace_back(parameter, captured_uses(uses));
}

bool CapturedClip::applies(const Options& options) const {
  return options.per_sample_grad_budget == options_.per_sample_grad_budget &&
         options.spacings == options_.spacings && options.rows_of_unit == options_.rows_of_unit &&
         options.mean == options_.mean;
}

bool CapturedClip::clips(const ParameterUses& gradients) const {
  return std::equal(gradients.begin(), gradients.end(), gradients_.begin(), gradients_.end(),
                    [](const auto& given, const auto& known) {
                      return given.first == known.first &&
                             captured_uses(given.second) == known.second;
                    });
}

std::vector<PerSampleGrad> CapturedClip::of_units(
    const std::vector<std::shared_ptr<const PerSampleGrad>>& captured) const {
  std::vector<PerSampleGrad> uses;
  for (const auto& use : captured) uses.push_back(*use);
  if (options_.rows_of_unit == 1) return uses;
  const std::int64_t rows = uses[0].samples(), units = units_of(rows);
  Grouping all{.unit_of_row = {}, .units = units, .mean = options_.mean};
  for (std::int64_t row = 0; row < rows; ++row)
    all.unit_of_row.push_back(row / options_.rows_of_unit);
  return grouped(std::move(uses), &all, units);
}

// Clips group by group, as OnePassSink does; gradients are materialized in the order of their
// arrival.
void CapturedClip::clip(GpuClip& on_gpu) const {
  on_gpu.start();
  std::vector<ParameterUses> groups(groups_.size());
  std::size_t budget = options_.per_sample_grad_budget;
  for (const auto& [parameter, captured] : gradients_) {
    groups[group_of(groups_, *parameter)].emplace_back(
        parameter, materialize_if_cheaper(of_units(captured), options_.norm_method, budget));
  }
  for (std::size_t group = 0; group < groups.size(); ++group) on_gpu.clip(group, groups[group]);
  on_gpu.check_sums();
}

void CapturedClip::capture(double loss_scale, const Tensor& losses) {
  const std::int64_t rows = gradients_[0].second[0]->samples();
  // Every unit is a term of its own: the units of a block differ from step to step, a graph's do
  // not.
  const GpuClip::Options options{options_.rule, options_.norm_method, units_of(rows), rows,
                                 options_.spacings};
  try {
    GpuClip expected(groups_, options, device_);
    expected.write_settings(loss_scale, units_of(losses.numel()));
    expected.add_losses(losses);
    clip(expected);
    expected.read();
    gpu_clip_.emplace(groups_, options, device_);
    graph_.emplace(device_);
    graph_->add([&] { clip(*gpu_clip_); });
    if (!replay(loss_scale, losses).same_as(expected))
      throw CannotCapture("a replay of the clipping gives other values than the run before it");
    reason_.clear();
  } catch (const std::exception& error) {
    graph_.reset();
    gpu_clip_.reset();
    reason_ = error.what();
  }
}

const GpuClip& CapturedClip::replay(double loss_scale, const Tensor& losses) {
  gpu_clip_->write_settings(loss_scale, units_of(losses.numel()));
  gpu_clip_->add_losses(losses);
  graph_->replay(0);
  gpu_clip_->read();
  return *gpu_clip_;
}

}  // namespace sotto
