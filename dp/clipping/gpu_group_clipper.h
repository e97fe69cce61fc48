// Clipping on a GPU: groups are clipped there without waiting for the host (GpuClip). The results
// that the host reads at the end say which groups it must clip again itself.
#pragma once

#include <memory>
#include <vector>

#include "autograd/per_sample/per_sample_grad.h"
#include "dp/clipping/clip_accumulator.h"
#include "dp/clipping/gpu_clip.h"
#include "dp/clipping/group_clipper.h"

namespace sotto {

// True if the losses and all parameters are on one GPU. False without losses.
bool all_on_gpu(const std::vector<ClipGroup>& groups, const Tensor& losses);

// Records the norms and factors of a reliable group of a GpuClip whose results were read, and
// appends its sums.
void record_result(ClipAccumulator& accumulator, std::size_t group, const GpuClip& clip,
                   std::int64_t units, Gradients& sums);

class GpuGroupClipper final : public GroupClipper {
 public:
  // The losses are added to the statistics when the results are read. All arguments must outlive
  // this object.
  GpuGroupClipper(const ClipBatch& batch, const Tensor& losses, const Grouping* grouping,
                  ClipAccumulator& accumulator);
  ~GpuGroupClipper() override;

  void norms(std::size_t group, const Parameter& parameter,
             const std::vector<PerSampleGrad>& uses) override;
  void factors(std::size_t group) override;
  void sums(std::size_t group, Parameter& parameter,
            const std::vector<PerSampleGrad>& uses) override;
  // Keeps the gradients until the results show that the group is reliable; reads the results when
  // the kept gradients exceed the budget.
  void clip(std::size_t group, ParameterUses gradients) override;
  void finish() override;
  // Replaces finish() after norms(), factors() and sums() of all groups. Adds all groups if all are
  // reliable. Otherwise returns false, with only the losses added: the host has to clip.
  bool finish_all();

 private:
  struct UnreadBatch;  // the physical batch, until the GPU's results are read
  std::unique_ptr<UnreadBatch> batch_;
};

}  // namespace sotto
