#include "dp/clipping/captured_gpu_clip.h"

#include <algorithm>

#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

std::vector<std::shared_ptr<const PerSampleGrad>> wholes(const std::vector<PerSampleGrad>& uses) {
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

CapturedClip::CapturedClip(const std::vector<ClipGroup>& groups, const How& how,
                           const ParameterUses& gradients)
    : groups_(groups), how_(how), device_(groups[0].parameters[0]->value.device()) {
  for (const auto& [parameter, uses] : gradients) whole_.emplace_back(parameter, wholes(uses));
}

bool CapturedClip::of(const ParameterUses& gradients, const How& how) const {
  return how.per_sample_grad_budget == how_.per_sample_grad_budget &&
         how.spacings == how_.spacings &&
         std::equal(gradients.begin(), gradients.end(), whole_.begin(), whole_.end(),
                    [](const auto& given, const auto& known) {
                      return given.first == known.first && wholes(given.second) == known.second;
                    });
}

// As Clipper's sink does, group by group in the order in which they are complete.
void CapturedClip::clip(DeviceClip& there) const {
  there.start();
  std::vector<ParameterUses> groups(groups_.size());
  std::size_t budget = how_.per_sample_grad_budget;
  for (const auto& [parameter, whole] : whole_) {
    const auto has = [parameter = parameter](const ClipGroup& g) {
      return std::find(g.parameters.begin(), g.parameters.end(), parameter) != g.parameters.end();
    };
    const auto group = std::find_if(groups_.begin(), groups_.end(), has);
    std::vector<PerSampleGrad> uses;
    for (const auto& use : whole) uses.push_back(*use);
    groups[static_cast<std::size_t>(group - groups_.begin())].emplace_back(
        parameter, materialize_if_cheaper(std::move(uses), how_.norm_method, budget));
  }
  for (std::size_t group = 0; group < groups.size(); ++group) there.clip(group, groups[group]);
}

void CapturedClip::capture(double loss_scale, const Tensor& losses) {
  const std::int64_t rows = whole_[0].second[0]->samples();
  // Every row is a term: which units are in a block is another thing at each step.
  const DeviceClip::How how{how_.rule, how_.norm_method, rows, rows, how_.spacings};
  try {
    DeviceClip expected(groups_, how, device_);
    expected.set(loss_scale, losses.numel());
    expected.add_losses(losses);
    clip(expected);
    expected.read();
    there_.emplace(groups_, how, device_);
    captured_.emplace(device_);
    captured_->add([&] { clip(*there_); });
    if (!replay(loss_scale, losses).same_as(expected))
      throw CannotCapture("a replay of the clipping gives other values than the run before it");
    reason_.clear();
  } catch (const std::exception& error) {
    captured_.reset();
    there_.reset();
    reason_ = error.what();
  }
}

const DeviceClip& CapturedClip::replay(double loss_scale, const Tensor& losses) {
  there_->set(loss_scale, losses.numel());
  there_->add_losses(losses);
  captured_->replay(0);
  there_->read();
  return *there_;
}

}  // namespace sotto
