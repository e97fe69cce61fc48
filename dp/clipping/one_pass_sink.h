// Backward's sink for one pass (book-keeping): the gradients of a group wait until the last of its
// parameters has come, and are clipped then.
#pragma once

#include <vector>

#include "autograd/sink.h"
#include "dp/clipping/group_clipper.h"

namespace sotto {

class OnePassSink final : public GradSink {
 public:
  // All of them outlive it.
  OnePassSink(const ClipBatch& batch, const Grouping* grouping, GroupClipper& clipper);
  bool bounds_influence() const override { return true; }
  bool keeps() const override { return true; }
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override;
  // Takes gradients with one summand for each unit.
  void enqueue(Parameter& parameter, std::vector<PerSampleGrad> uses);
  // Whether no gradient has come.
  bool empty() const;
  // Clips all further groups by another clipper, which outlives it, too.
  void clip_with(GroupClipper& clipper) { clipper_ = &clipper; }
  // Clips the groups that are not complete, some of whose parameters were not used.
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
