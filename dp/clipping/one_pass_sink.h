// Backward's sink for one pass (book-keeping): the gradients of a group are kept until the last of
// its parameters has arrived, and the group is clipped then.
#pragma once

#include <vector>

#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"
#include "dp/clipping/group_clipper.h"

namespace sotto {

class OnePassSink final : public GradSink {
 public:
  // All arguments must outlive this object.
  OnePassSink(const ClipBatch& batch, const Grouping* grouping, GroupClipper& clipper);
  bool bounds_influence() const override { return true; }
  bool keeps() const override { return true; }
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override;
  // receive() for gradients that already have one summand per unit.
  void enqueue(Parameter& parameter, std::vector<PerSampleGrad> uses);
  // True if no gradient has arrived.
  bool empty() const;
  // Clips all remaining groups with `clipper`, which must outlive this object.
  void clip_with(GroupClipper& clipper) { clipper_ = &clipper; }
  // Clips the incomplete groups: the loss did not use some or all of their parameters.
  void finish();

 private:
  void clip(std::size_t group);

  const ClipBatch& batch_;
  const Grouping* grouping_;
  GroupClipper* clipper_;
  std::vector<ParameterUses> pending_;
  std::vector<char> clipped_;  // for each group
  std::size_t budget_;
};

}  // namespace sotto
