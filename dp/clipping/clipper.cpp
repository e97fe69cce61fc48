#include "dp/clipping/clipper.h"

#include <algorithm>
#include <cmath>

#include "autograd/memory_labels.h"
#include "dp/clipping/captured_gpu_clip.h"
#include "dp/clipping/clip_factors.h"
#include "dp/clipping/gpu_clip.h"
#include "dp/clipping/unit_sink.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/physical_batches.h"

namespace sotto {

namespace {

// The sum of 1/2 for each of some units and -1/2 for each of the others.
double centered_count(std::ptrdiff_t some, std::size_t all) {
  return static_cast<double>(some) - static_cast<double>(all) / 2;
}

}  // namespace

// Backward's sink for one pass: a group's factors wait until its last parameter has come.
class Clipper::OnePass final : public GradSink {
 public:
  // With `losses` groups are clipped on these losses' GPU, as many as there is room for before the
  // host reads.
  OnePass(Clipper& clipper, const Grouping* grouping, std::int64_t units, const Tensor* losses)
      : clipper_(clipper),
        grouping_(grouping),
        units_(units),
        losses_(losses),
        pending_(clipper.groups_.size()),
        budget_(clipper.budget_for(units)) {}
  bool bounds_influence() const override { return true; }
  bool keeps() const override { return true; }

  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override {
    const LabelScope scope = LabelScope::phase("clip");
    const std::size_t group = clipper_.group_of(parameter);
    const bool captured = losses_ && !grouping_ && CapturedClip::made_of(uses);
    uses = grouped(std::move(uses), grouping_, units_);
    if (captured) {
      replayed_.emplace_back(&parameter, std::move(uses));
    } else {
      keep(group, parameter, std::move(uses));
    }
  }

  void flush_all() {
    if (!replayed_.empty() && clip_replayed()) return;
    for (std::size_t group = 0; group < pending_.size(); ++group) {
      if (done(group)) continue;
      if (!pending_[group].empty()) {
        flush(group);
      } else {
        // No parameter of the group was used: every unit's gradient is zero.
        clipper_.factors_for(group, UnitNorms(units_));
      }
    }
    if (losses_) read();
  }

 private:
  bool done(std::size_t group) const {
    return std::find(done_.begin(), done_.end(), group) != done_.end();
  }

  void keep(std::size_t group, Parameter& parameter, std::vector<PerSampleGrad> uses) {
    uses = materialize_if_cheaper(std::move(uses), clipper_.options_.norm_method, budget_);
    pending_[group].emplace_back(&parameter, std::move(uses));
    if (pending_[group].size() == clipper_.groups_[group].parameters.size()) flush(group);
  }

  // By one replay, if nothing else has come and it can be; else they are gradients like others.
  bool clip_replayed() {
    const bool alone =
        done_.empty() && std::all_of(pending_.begin(), pending_.end(),
                                     [](const ParameterUses& group) { return group.empty(); });
    const auto outcome = clipper_.replay_clip_graph(replayed_, *losses_, alone);
    if (outcome == Replayed::taken) return true;
    if (outcome == Replayed::must_redo_on_host) losses_ = nullptr;
    for (auto& [parameter, uses] : replayed_)
      keep(clipper_.group_of(*parameter), *parameter, std::move(uses));
    return false;
  }

  void flush(std::size_t group) {
    MemoryLabel label = memory_label();
    label.kind = MemoryKind::workspace;
    label.phase = "clip";
    const LabelScope scope(label);
    done_.push_back(group);
    ParameterUses& gradients = pending_[group];
    if (!losses_) return clipper_.clip_group(group, gradients);
    if (!there_) there_ = clipper_.on_device(*losses_, gradients[0].second[0].samples());
    there_->clip(group, gradients);
    unread_.push_back(group);
    for (const auto& [parameter, uses] : gradients) {
      for (const PerSampleGrad& use : uses) unread_bytes_ += use.bytes();
    }
    if (unread_bytes_ > clipper_.options_.per_sample_grad_budget) read();
  }

  // Groups that are not sound are clipped again, in the way that the host decides.
  void read() {
    if (!there_) there_ = clipper_.on_device(*losses_, std::ssize(clipper_.unit_finite_));
    there_->read();
    if (!counted_) clipper_.add_losses(there_->losses(), grouping_);
    counted_ = true;
    for (const std::size_t group : unread_) {
      if (there_->sound(group)) {
        clipper_.take(group, *there_);
      } else {
        there_->drop_sums(group);
        clipper_.clip_group(group, pending_[group]);
      }
      pending_[group].clear();
    }
    unread_.clear();
    unread_bytes_ = 0;
    there_->start();
  }

  Clipper& clipper_;
  const Grouping* grouping_;
  std::int64_t units_;
  const Tensor* losses_;
  std::unique_ptr<DeviceClip> there_;
  std::vector<ParameterUses> pending_;
  ParameterUses replayed_;
  std::vector<std::size_t> done_, unread_;
  std::size_t budget_, unread_bytes_ = 0;
  bool counted_ = false;  // the losses
};

Clipper::~Clipper() = default;

std::size_t Clipper::group_of(const Parameter& parameter) const {
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    const auto& members = groups_[group].parameters;
    if (std::find(members.begin(), members.end(), &parameter) != members.end()) return group;
  }
  const std::string owner = parameter.value.memory_label().module;
  fail(fmt::format(
      "Clipper: the loss depends on a trainable parameter of shape {} that is in no clip group: it "
      "belongs to {}; groups are of what visit() shows and is trainable when they are made",
      parameter.value.shape(), owner.empty() ? "no module that was called" : owner));
}

Clipper::Factors Clipper::factors_for(std::size_t group, const UnitNorms& lengths) {
  const ClipGroup& of = groups_[group];
  Factors factors{lengths.factors(options_.rule, of.bound, rounding_margin(of), loss_scale_), {}};
  count(group, factors.norms, factors.values);
  std::vector<double> together = factors.values;
  for (const std::size_t n : factors.apart) together[n] = 0;
  factors.weights = weights_of(std::move(together));
  return factors;
}

// The next units of a group.
void Clipper::count(std::size_t group, const std::vector<double>& norms,
                    const std::vector<double>& factors) {
  const UnitCounts counts = count_units(norms, factors, groups_[group].bound, unit_finite_);
  statistics_.not_finite += counts.lost;
  within_bound_[group] += centered_count(counts.within, norms.size());
  auto &all_norms = statistics_.norms[group], &all_factors = statistics_.factors[group];
  all_norms.insert(all_norms.end(), norms.begin(), norms.end());
  all_factors.insert(all_factors.end(), factors.begin(), factors.end());
}

// [n], for gradients of a loss times the loss's scale.
Tensor Clipper::weights_of(std::vector<double> factors) const {
  const double unscaled = 1 / loss_scale_;  // exact
  for (double& factor : factors) factor *= unscaled;
  return Tensor::from(factors, {std::ssize(factors)});
}

// In the way that the host decides, which has to wait for a GPU.
void Clipper::clip_group(std::size_t group, ParameterUses& gradients) {
  UnitNorms lengths(gradients[0].second[0].samples());
  for (const auto& [parameter, uses] : gradients)
    lengths.add(uses, options_.norm_method, loss_scale_);
  const Factors factors = factors_for(group, lengths);
  for (auto& [parameter, uses] : gradients) {
    add_weighted(*parameter, uses, factors);
    uses.clear();  // makes room for the next one's sum
  }
  gradients.clear();
}

// What no sample touched is zero, and gets its noise too.
const Gradients& Clipper::complete_sums() {
  for (auto& [parameter, sum] : sums_) {
    if (sum.defined()) continue;
    sum = zeros(parameter->value.shape(), Dtype::f64, parameter->value.device());
    label_for(*parameter, MemoryKind::gradient, sum);
  }
  return sums_;
}

// A batch that broke off must not go on.
void Clipper::start_batch() {
  check(!broken_, "Clipper: an earlier part of this batch failed; discard() it");
  if (finished_) discard();
  finished_ = false;
}

// What a part that fails is undone to: everything but the sums of earlier parts, a copy of which
// would be as large as the model.
struct Clipper::Before {
  double loss_sum;
  std::int64_t not_finite;
  std::vector<double> unclipped_fraction;
};

void Clipper::undo(const Before& before) {
  if (touched_) return;
  for (std::size_t k = 0; k < sums_.size(); ++k) {
    if (!had_sum_[k]) sums_[k].second = Tensor();
  }
  statistics_.loss_sum = before.loss_sum;
  statistics_.not_finite = before.not_finite;
  const auto units = static_cast<std::size_t>(statistics_.units);
  for (auto& norms : statistics_.norms) norms.resize(units);
  for (auto& factors : statistics_.factors) factors.resize(units);
  within_bound_ = before.unclipped_fraction;
  broken_ = false;
}

void Clipper::add(Tape& tape, const Var& loss, const Grouping* grouping) {
  check(tape.options().private_data, "Clipper: the tape is not private");
  const LabelScope scope = LabelScope::phase("clip");
  start_batch();
  const Before before{statistics_.loss_sum, statistics_.not_finite, within_bound_};
  had_sum_.clear();
  for (const auto& [parameter, sum] : sums_) had_sum_.push_back(sum.defined());
  touched_ = false;
  broken_ = true;
  try {
    add_physical_batch(tape, loss, grouping);
  } catch (const std::exception& error) {
    if (memory::out_of_memory(error)) undo(before);
    throw;
  }
  broken_ = false;
}

void Clipper::add_physical_batch(Tape& tape, const Var& loss, const Grouping* grouping) {
  const std::int64_t units = grouping ? grouping->units : loss.shape().numel();
  Tensor losses = loss.value();
  check(!grouping || std::ssize(grouping->unit_of_row) == losses.numel(),
        "Clipper: a grouping of {} rows for {} losses", grouping ? grouping->unit_of_row.size() : 0,
        losses.numel());
  if (grouping && grouping->first_rows()) {
    grouping = nullptr;
    losses = losses.slice(0, 0, units);
  }
  const bool there = units > 0 && all_on_gpu(losses);
  if (!there) add_losses(to_dtype(losses, Dtype::f64).to_vector<double>(), grouping);
  begin_units(units);
  // Units of several rows are padded to the largest of the part, which is nobody else's business.
  if (grouping) part_ends_ = {};
  uncaptured_ = grouping ? "units of several rows" : "no captured loss";
  if (passes_ == ClipPasses::one) {
    OnePass sink(*this, grouping, units, there ? &losses : nullptr);
    tape.backward(loss, sink, loss_scale_);
    sink.flush_all();
  } else if (!there || !two_passes_on_gpu(tape, loss, losses, grouping)) {
    two_passes(tape, loss, grouping, units);
  }
  end_units();
}

void Clipper::add_losses(const std::vector<double>& losses, const Grouping* grouping) {
  if (!grouping) {
    statistics_.loss_sum += finite_sum(losses);
    return;
  }
  for (std::size_t row = 0; row < losses.size(); ++row) {
    const bool counts = row < grouping->unit_of_row.size() && grouping->unit_of_row[row] >= 0;
    if (counts && std::isfinite(losses[row])) statistics_.loss_sum += losses[row];
  }
}

void Clipper::two_passes(Tape& tape, const Var& loss, const Grouping* grouping,
                         std::int64_t units) {
  std::vector<UnitNorms> lengths(groups_.size(), UnitNorms(units));
  UnitSink norms(grouping, units, [&](const Parameter& parameter, const auto& uses) {
    lengths[group_of(parameter)].add(uses, options_.norm_method, loss_scale_);
  });
  tape.backward(loss, norms, loss_scale_, Tape::Keep::graph);
  std::vector<Factors> factors;
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    factors.push_back(factors_for(group, lengths[group]));
    factors.back().cannot_overflow = false;  // what a second backward gives is another gradient
  }
  UnitSink sums(grouping, units, [&](Parameter& parameter, const auto& uses) {
    add_weighted(parameter, uses, factors[group_of(parameter)]);
  });
  tape.backward(loss, sums, loss_scale_);
}

void Clipper::add_zeros(std::int64_t units) {
  start_batch();
  broken_ = true;
  begin_units(units);
  for (std::size_t group = 0; group < groups_.size(); ++group) factors_for(group, UnitNorms(units));
  end_units();
  broken_ = false;
}

void Clipper::begin_units(std::int64_t units) {
  unit_finite_.assign(static_cast<std::size_t>(units), true);
  part_ends_ = blocks_of_part(units);
}

void Clipper::end_units() {
  const auto finite = std::count(unit_finite_.begin(), unit_finite_.end(), char{true});
  finite_ += centered_count(finite, unit_finite_.size());
  statistics_.units += std::ssize(unit_finite_);
}

ClippedSum Clipper::finish(SampledBatch draw) {
  start_batch();
  const auto drawn = static_cast<std::int64_t>(draw.units().size());
  check(statistics_.units == drawn, "Clipper: {} units were drawn and {} clipped", drawn,
        statistics_.units);
  check(drawn <= options_.sum_size.batch, "Clipper: a batch of {} units, of at most {}", drawn,
        options_.sum_size.batch);
  check(!blocks_ || std::ranges::equal(blocks_->units(), draw.units()),
        "Clipper: the batch began for other units than were drawn");
  complete_sums();
  finished_ = true;
  const auto finite = options_.count_finite ? std::optional(finite_) : std::nullopt;
  return {std::exchange(sums_, {}), sensitivity(), within_bound_, finite, std::move(draw)};
}

}  // namespace sotto
