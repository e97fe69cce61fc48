#include "dp/clipping/replay_sink.h"

#include "dp/clipping/gpu_group_clipper.h"

namespace sotto::inline dp {

void ReplaySink::receive(Parameter& parameter, std::vector<PerSampleGrad> uses) {
  if (!CapturedClip::made_of(uses)) return rest_.receive(parameter, std::move(uses));
  const LabelScope scope = LabelScope::phase("clip");
  group_of(batch_.groups, parameter);  // throws for a parameter in none
  gradients_.emplace_back(&parameter, grouped(std::move(uses), nullptr, batch_.units));
}

ReplaySink::Outcome ReplaySink::replay(ClipAccumulator& accumulator) {
  if (gradients_.empty()) return Outcome::no;
  std::string& reason = graph_.failure_reason;
  reason = rest_.empty() ? "" : "gradients that are not captured beside those that are";
  if (!reason.empty()) return Outcome::no;
  const std::int64_t rows = gradients_[0].second[0].captured()->samples();
  const CapturedClip::Options options{batch_.options.rule, batch_.options.norm_method,
                                      batch_.budget_for(rows), accumulator.spacings()};
  if (!graph_.captured || !graph_.captured->applies_to(gradients_, options)) {
    graph_.captured = nullptr;  // frees memory first
    graph_.captured = std::make_unique<CapturedClip>(batch_.groups, options, gradients_);
    graph_.captured->capture(batch_.loss_scale, losses_);
  }
  reason = graph_.captured->reason();
  if (!reason.empty()) return Outcome::no;
  const GpuClip& clip = graph_.captured->replay(batch_.loss_scale, losses_);
  accumulator.add_losses(clip.losses(), nullptr);
  for (std::size_t group = 0; group < batch_.groups.size(); ++group) {
    if (!clip.reliable(group)) return Outcome::not_reliable;
  }
  for (std::size_t group = 0; group < batch_.groups.size(); ++group)
    add_result(accumulator, group, clip, batch_.units, true);
  return Outcome::added;
}

void ReplaySink::hand_on() {
  for (auto& [parameter, uses] : gradients_) rest_.enqueue(*parameter, std::move(uses));
  gradients_.clear();
}

}  // namespace sotto::inline dp
