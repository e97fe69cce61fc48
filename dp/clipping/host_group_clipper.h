// Clipping by the host: it reads the norms, computes the clip factors, then forms the weighted
// sums. If gradients are on a GPU, the host waits for the GPU.
#pragma once

#include <vector>

#include "autograd/per_sample/per_sample_grad.h"
#include "dp/clipping/clip_accumulator.h"
#include "dp/clipping/group_clipper.h"

namespace sotto {

class HostGroupClipper final : public GroupClipper {
 public:
  // Both arguments must outlive this object.
  HostGroupClipper(const ClipBatch& batch, ClipAccumulator& accumulator);
  ~HostGroupClipper() override;

  void norms(std::size_t group, const Parameter& parameter,
             const std::vector<PerSampleGrad>& uses) override;
  void factors(std::size_t group) override;
  void sums(std::size_t group, Parameter& parameter,
            const std::vector<PerSampleGrad>& uses) override;
  void clip(std::size_t group, ParameterUses gradients) override;

 private:
  void weight(std::size_t group);

  struct Group;  // the norms of a clip group, then its factors

  const ClipBatch& batch_;
  ClipAccumulator& accumulator_;
  std::vector<Group> groups_;
};

}  // namespace sotto
