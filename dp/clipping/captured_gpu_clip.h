// Clipping that is captured as a CUDA graph and replayed, for gradients of a captured loss
// (memory/captured_loss.h), which are at the same addresses at each step.
//
// What changes from step to step, bounds, loss scale and the number of valid rows, the graph reads
// from device memory. All rows of the captured batch are computed, and weights select: rows that
// are not valid add exactly nothing.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/cuda/capture.h"
#include "dp/clipping/gpu_clip.h"

namespace sotto {

class CapturedClip {
 public:
  struct Options {
    ClipRule rule;
    NormMethod norm_method = NormMethod::automatic;
    std::size_t per_sample_grad_budget = 0;  // bytes, as in ClipOptions
    std::vector<double> spacings{};          // as in GpuClip::Options
  };
  // Whether all uses are of captured work (PerSampleGrad::captured).
  static bool made_of(const std::vector<PerSampleGrad>& uses);

  // For gradients of that kind, in the order in which they are prepared. The groups outlive it.
  CapturedClip(const std::vector<ClipGroup>& groups, const Options& options,
               const ParameterUses& gradients);

  // Whether the graph applies: gradients at the addresses that it was made for, of any batch, and
  // the same options.
  bool applies_to(const ParameterUses& gradients, const Options& options) const;
  // Captures, replays, and compares with the same work run without a graph; once.
  void capture(double loss_scale, const Tensor& losses);
  // Why it cannot be replayed; empty when it can.
  const std::string& reason() const { return reason_; }
  // Clips the batch whose losses these are, and reads the results, which are valid until the next
  // replay. There are as many valid units as losses.
  const GpuClip& replay(double loss_scale, const Tensor& losses);

 private:
  void clip(GpuClip& on_gpu) const;

  const std::vector<ClipGroup>& groups_;
  Options options_;
  // The gradients of the whole captured batch.
  std::vector<std::pair<Parameter*, std::vector<std::shared_ptr<const PerSampleGrad>>>> gradients_;
  Device device_;
  std::optional<GpuClip> gpu_clip_;
  std::optional<Capture> graph_;
  std::string reason_ = "it has not been captured";
};

}  // namespace sotto
