// Clipping that is captured once and replayed, where the gradients are those of a captured loss
// (memory/captured_loss.h) and lie at the same addresses at each step.
//
// What moves from step to step, bounds, loss scale and how many rows count, the device reads in its
// memory. All rows of what was captured are computed, and weights select: what lies in rows that do
// not count adds exactly nothing.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/cuda/capture.h"
#include "dp/clipping/gpu_clip.h"

namespace sotto {

class CapturedClip {
 public:
  struct How {
    ClipRule rule;
    NormMethod norm_method = NormMethod::automatic;
    std::size_t per_sample_grad_budget = 0;  // bytes, as in ClipOptions
    std::vector<double> spacings{};          // as in DeviceClip::How
  };
  // Whether all uses are of captured work (PerSampleGrad::whole).
  static bool made_of(const std::vector<PerSampleGrad>& uses);

  // For gradients of that kind, in the order in which they are prepared. The groups outlive it.
  CapturedClip(const std::vector<ClipGroup>& groups, const How& how,
               const ParameterUses& gradients);

  // True for gradients at the addresses that it was made for, of any batch, with the same settings.
  bool of(const ParameterUses& gradients, const How& how) const;
  // Captures, replays, and compares with the same work done at once; once.
  void capture(double loss_scale, const Tensor& losses);
  // Why it cannot be replayed; empty when it can.
  const std::string& reason() const { return reason_; }
  // Clips the batch whose losses these are, and reads what came of it, until the next replay: as
  // many units count as there are losses.
  const DeviceClip& replay(double loss_scale, const Tensor& losses);

 private:
  void clip(DeviceClip& there) const;

  const std::vector<ClipGroup>& groups_;
  How how_;
  std::vector<std::pair<Parameter*, std::vector<std::shared_ptr<const PerSampleGrad>>>> whole_;
  Device device_;
  std::optional<DeviceClip> there_;
  std::optional<Capture> captured_;
  std::string reason_ = "it has not been captured";
};

}  // namespace sotto
