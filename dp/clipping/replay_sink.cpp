#include "dp/clipping/replay_sink.h"

#include "autograd/per_sample/per_sample_grad.h"
#include "dp/clipping/gpu_group_clipper.h"

namespace sotto {

void ReplaySink::receive(Parameter& parameter, std::vector<PerSampleGrad> uses) {
  if (!CapturedClip::made_of(uses)) return rest_.receive(parameter, std::move(uses));
  const LabelScope scope = LabelScope::phase("clip");
  group_of(batch_.groups, parameter);  // throws for a parameter in none
  gradients_.emplace_back(&parameter, std::move(uses));
}

std::string ReplaySink::obstacle() const {
  if (!rest_.empty()) return "gradients that are not captured beside those that are";
  const std::int64_t each = rows_of_unit();
  if (each == 0) return "units that differ in their numbers of rows, or are padded";
  if (captured_rows() % each != 0)
    return fmt::format("units of {} rows in a captured batch of {}", each, captured_rows());
  return "";
}

ReplaySink::Outcome ReplaySink::replay(ClipAccumulator& accumulator) {
  if (gradients_.empty()) return Outcome::no;
  std::string& reason = graphs_.failure_reason;
  reason = obstacle();
  if (!reason.empty()) return Outcome::no;
  const std::int64_t each = rows_of_unit();
  const CapturedClip::Options options{
      .rule = batch_.options.rule,
      .norm_method = batch_.options.norm_method,
      .per_sample_grad_budget = batch_.budget_for(captured_rows() / each),
      .spacings = accumulator.spacings(),
      .rows_of_unit = each,
      .mean = grouping_ && grouping_->mean};
  const Tensor losses = losses_.slice(0, 0, batch_.units * each);
  // Frees the memory of those that do not apply before a new one needs more.
  std::erase_if(graphs_.captured, [&](const auto& kept) {
    return !kept.second.clips(gradients_) || (kept.first == each && !kept.second.applies(options));
  });
  const auto [place, is_new] =
      graphs_.captured.try_emplace(each, batch_.groups, options, gradients_);
  CapturedClip& captured = place->second;
  if (is_new) captured.capture(batch_.loss_scale, losses);
  reason = captured.reason();
  if (!reason.empty()) return Outcome::no;
  const GpuClip& clip = captured.replay(batch_.loss_scale, losses);
  accumulator.add_losses(clip.losses(), nullptr);
  for (std::size_t group = 0; group < batch_.groups.size(); ++group) {
    if (!clip.reliable(group)) return Outcome::not_reliable;
  }
  Gradients sums;
  for (std::size_t group = 0; group < batch_.groups.size(); ++group)
    record_result(accumulator, group, clip, batch_.units, sums);
  accumulator.add_sums(sums, ClipAccumulator::Totals::overwritten);
  return Outcome::added;
}

void ReplaySink::hand_on() {
  for (auto& [parameter, uses] : gradients_) rest_.receive(*parameter, std::move(uses));
  gradients_.clear();
}

}  // namespace sotto
