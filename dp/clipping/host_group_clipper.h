// Clipping by the host: it reads the norms, computes the clip factors, then forms the weighted
// sums. If gradients are on a GPU, the host waits for the GPU.
#pragma once

#include <optional>
#include <vector>

#include "dp/clipping/clip_accumulator.h"
#include "dp/clipping/group_clipper.h"
#include "dp/clipping/unit_norms.h"

namespace sotto {

class HostGroupClipper final : public GroupClipper {
 public:
  // Both arguments must outlive this object.
  HostGroupClipper(const ClipBatch& batch, ClipAccumulator& accumulator)
      : batch_(batch), accumulator_(accumulator), groups_(batch.groups.size()) {}

  void norms(std::size_t group, const Parameter& parameter,
             const std::vector<PerSampleGrad>& uses) override;
  void factors(std::size_t group) override;
  void sums(std::size_t group, Parameter& parameter,
            const std::vector<PerSampleGrad>& uses) override;
  void clip(std::size_t group, ParameterUses gradients) override;

 private:
  struct Factors : ClipFactors {
    Tensor weights;  // `values` / loss scale; 0 for units that are summed separately
  };
  struct Group {
    std::optional<UnitNorms> norms;
    Factors factors;
  };
  Tensor weights_of(std::vector<double> factors) const;
  void add_terms(const RoundedSum& sum, const std::vector<PerSampleGrad>& uses,
                 const Factors& factors, const BlockEnds& ends) const;
  void add_block(Parameter& parameter, const std::vector<PerSampleGrad>& uses,
                 const Factors& factors, std::int64_t begin, std::int64_t end);
  void add_one_by_one(Parameter& parameter, const std::vector<PerSampleGrad>& uses,
                      const std::vector<double>& factors);

  const ClipBatch& batch_;
  ClipAccumulator& accumulator_;
  std::vector<Group> groups_;
};

}  // namespace sotto
