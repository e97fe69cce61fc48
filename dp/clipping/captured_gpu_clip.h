// Clipping captured as a CUDA graph and replayed, for gradients of a captured loss
// (memory/captured_loss.h), which lie at the same addresses at each step.
//
// The graph reads bounds, loss scale and the number of valid rows, which change from step to step,
// from device memory. It always computes all rows of the captured batch; rows that are not valid
// get weight 0 and add exactly nothing.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "core/cuda/capture.h"
#include "dp/clipping/gpu_clip.h"

namespace sotto::inline dp {

class CapturedClip {
 public:
  struct Options {
    ClipRule rule;
    NormMethod norm_method = NormMethod::automatic;
    std::size_t per_sample_grad_budget = 0;  // bytes, as in ClipOptions
    std::vector<double> spacings{};          // as in GpuClip::Options
  };
  // True if all uses live in a CUDA graph's memory (PerSampleGrad::captured).
  static bool made_of(const std::vector<PerSampleGrad>& uses);

  // `gradients` satisfy made_of(), and are in the order in which they are materialized. The groups
  // must outlive this object.
  CapturedClip(const std::vector<ClipGroup>& groups, const Options& options,
               const ParameterUses& gradients);

  // True if the graph applies: same parameters, same device buffers, same per-sample-gradient
  // budget, same spacings.
  bool applies_to(const ParameterUses& gradients, const Options& options) const;
  // Captures the graph, replays it once, and compares the results with those of the same work run
  // without a graph. A failure or a difference is described by reason(), not thrown.
  void capture(double loss_scale, const Tensor& losses);
  // The reason why the graph cannot be replayed; empty if it can.
  const std::string& reason() const { return reason_; }
  // Clips the batch with these losses and reads the results, which are valid until the next replay.
  // The number of valid units is the number of losses.
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

}  // namespace sotto::inline dp
