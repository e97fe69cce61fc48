#include "dp/clipping/one_pass_sink.h"

#include <algorithm>

#include "autograd/per_sample/per_sample_grad.h"

namespace sotto {

OnePassSink::OnePassSink(const ClipBatch& batch, const Grouping* grouping, GroupClipper& clipper)
    : batch_(batch),
      grouping_(grouping),
      clipper_(&clipper),
      pending_(batch.groups.size()),
      clipped_(batch.groups.size(), false),
      budget_(batch.budget_for(batch.units)) {}

void OnePassSink::receive(Parameter& parameter, std::vector<PerSampleGrad> uses) {
  const LabelScope scope = LabelScope::phase("clip");
  enqueue(parameter, grouped(std::move(uses), grouping_, batch_.units));
}

void OnePassSink::enqueue(Parameter& parameter, std::vector<PerSampleGrad> uses) {
  const std::size_t group = group_of(batch_.groups, parameter);
  uses = materialize_if_cheaper(std::move(uses), batch_.options.norm_method, budget_);
  pending_[group].emplace_back(&parameter, std::move(uses));
  if (pending_[group].size() == batch_.groups[group].parameters.size()) clip(group);
}

bool OnePassSink::empty() const {
  return std::none_of(clipped_.begin(), clipped_.end(), [](char clipped) { return clipped; }) &&
         std::all_of(pending_.begin(), pending_.end(),
                     [](const ParameterUses& gradients) { return gradients.empty(); });
}

void OnePassSink::finish() {
  for (std::size_t group = 0; group < pending_.size(); ++group) {
    if (clipped_[group]) continue;
    if (!pending_[group].empty()) {
      clip(group);
    } else {
      clipper_->clip(group, {});
    }
  }
  clipper_->finish();
}

void OnePassSink::clip(std::size_t group) {
  MemoryLabel label = memory_label();
  label.kind = MemoryKind::workspace;
  label.phase = "clip";
  const LabelScope scope(label);
  clipped_[group] = true;
  clipper_->clip(group, std::exchange(pending_[group], {}));
}

}  // namespace sotto
