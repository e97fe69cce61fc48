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

#include "autograd/per_sample/per_sample_grad.h"
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
    std::int64_t rows_of_unit = 1;           // Grouping::rows_each()
    bool mean = false;                       // as in Grouping
  };
  // True if all uses live in a CUDA graph's memory (PerSampleGrad::captured).
  static bool made_of(const std::vector<PerSampleGrad>& uses);

  // `gradients` satisfy made_of(), and are in the order in which they are materialized. The groups
  // must outlive this object.
  CapturedClip(const std::vector<ClipGroup>& groups, const Options& options,
               const ParameterUses& gradients);

  // True if the graph clips these gradients: same parameters, same device buffers.
  bool clips(const ParameterUses& gradients) const;
  // True if it does so with these options, of the same clipper: same per-sample-gradient budget,
  // same spacings, same units.
  bool applies(const Options& options) const;
  // Captures the graph, replays it once, and compares the results with those of the same work run
  // without a graph. A failure or a difference is described by reason(), not thrown.
  void capture(double loss_scale, const Tensor& losses);
  // The reason why the graph cannot be replayed; empty if it can.
  const std::string& reason() const { return reason_; }
  // Clips the batch with these losses, those of all rows of its units, and reads the results, which
  // are valid until the next replay.
  const GpuClip& replay(double loss_scale, const Tensor& losses);

 private:
  std::int64_t units_of(std::int64_t rows) const { return rows / options_.rows_of_unit; }
  // A parameter's gradients, with one summand for each unit of the captured batch.
  std::vector<PerSampleGrad> of_units(
      const std::vector<std::shared_ptr<const PerSampleGrad>>& captured) const;
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
