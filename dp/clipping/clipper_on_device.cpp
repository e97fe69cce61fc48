// A clipper's part of a batch that is on a GPU.
#include "dp/clipping/captured_gpu_clip.h"
#include "dp/clipping/clipper.h"
#include "dp/clipping/unit_sink.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

bool Clipper::all_on_gpu(const Tensor& losses) const {
  const Device device = losses.device();
  bool there = device != cpu && losses.numel() > 0;
  for (const ClipGroup& group : groups_) {
    for (const Parameter* parameter : group.parameters)
      there = there && parameter->value.device() == device;
  }
  return there;
}

std::vector<double> Clipper::spacings() const {
  std::vector<double> all;
  for (const ClipGroup& group : groups_) all.push_back(sum_spacing(group, options_.sum_size));
  return all;
}

std::unique_ptr<DeviceClip> Clipper::on_device(const Tensor& losses, std::int64_t units) const {
  const DeviceClip::How how{options_.rule,  options_.norm_method, units,
                            losses.numel(), spacings(),           part_ends_};
  auto there = std::make_unique<DeviceClip>(groups_, how, losses.device());
  there->set(loss_scale_, units);
  there->add_losses(losses);
  return there;
}

// What was clipped on a GPU and read; of sums that a replay will write over, copies.
void Clipper::take(std::size_t group, const DeviceClip& there, bool replayed) {
  const std::int64_t units = std::ssize(unit_finite_);
  count(group, there.norms(group, units), there.factors(group, units));
  for (const auto& [parameter, total] : there.sums(group))
    add_sum(*parameter, replayed ? clone(total) : total);
}

// Both passes, read once; false where the host has to decide, and the tape is as it was.
bool Clipper::two_passes_on_gpu(Tape& tape, const Var& loss, const Tensor& losses,
                                const Grouping* grouping) {
  uncaptured_ = "two passes";
  const std::int64_t units = std::ssize(unit_finite_);
  const std::unique_ptr<DeviceClip> there = on_device(losses, units);
  UnitSink norms(grouping, units, [&](const Parameter& parameter, const auto& uses) {
    there->add_norm(group_of(parameter), parameter, uses);
  });
  tape.backward(loss, norms, loss_scale_, Tape::Keep::graph);
  for (std::size_t group = 0; group < groups_.size(); ++group) there->find_factors(group);
  UnitSink sums(grouping, units, [&](Parameter& parameter, const auto& uses) {
    there->add_sum(group_of(parameter), parameter, uses);
  });
  tape.backward(loss, sums, loss_scale_, Tape::Keep::graph);
  there->read();
  add_losses(there->losses(), grouping);
  bool sound = true;
  for (std::size_t group = 0; group < groups_.size(); ++group) sound = sound && there->sound(group);
  for (std::size_t group = 0; sound && group < groups_.size(); ++group) take(group, *there);
  if (sound) tape.clear();
  return sound;
}

// By one replay. Where that is not to be had nothing has happened; where it is not sound the losses
// alone were counted.
Clipper::Replayed Clipper::replay_clip_graph(const ParameterUses& gradients, const Tensor& losses,
                                             bool alone) {
  uncaptured_ = alone ? "" : "gradients that are not captured beside those that are";
  if (!alone) return Replayed::no;
  const std::size_t budget = budget_for(gradients[0].second[0].captured()->samples());
  const CapturedClip::How how{options_.rule, options_.norm_method, budget, spacings()};
  if (!captured_ || !captured_->of(gradients, how)) {
    captured_ = nullptr;  // makes room
    captured_ = std::make_shared<CapturedClip>(groups_, how, gradients);
    captured_->capture(loss_scale_, losses);
  }
  uncaptured_ = captured_->reason();
  if (!uncaptured_.empty()) return Replayed::no;
  const DeviceClip& there = captured_->replay(loss_scale_, losses);
  add_losses(there.losses(), nullptr);
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    if (there.sound(group)) continue;
    // Every unit stays a term of its own, as in the replay, whoever is in doubt.
    part_ends_ = {};
    return Replayed::must_redo_on_host;
  }
  for (std::size_t group = 0; group < groups_.size(); ++group) take(group, there, true);
  return Replayed::taken;
}

}  // namespace sotto
