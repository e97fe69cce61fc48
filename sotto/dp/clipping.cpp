#include "sotto/dp/clipping.h"

#include <algorithm>
#include <cmath>

#include "sotto/autograd/ownership.h"
#include "sotto/kernels/compute.h"
#include "sotto/memory/physical_batches.h"

namespace sotto {

namespace {

// What rounding may add to a clipped gradient's norm, relative (docs/privacy.md).
double rounding_margin(Dtype dtype) { return dtype == Dtype::f64 ? 0x1p-44 : 0x1p-20; }

// NaN and Inf do not leave a sum. (Clipped gradients are far too small for their sum to overflow.)
bool all_finite(const Tensor& x) { return std::isfinite(sum(x).item()); }

Tensor as_tensor(const std::vector<double>& values) {
  return Tensor::from(values, {static_cast<std::int64_t>(values.size())});
}

std::vector<PerSample> grouped(std::vector<PerSample> uses, const Grouping* grouping) {
  if (!grouping) return uses;
  for (PerSample& use : uses) use = use.group(*grouping);
  return uses;
}

}  // namespace

// Of a group's gradient for each unit.
struct Clipper::Lengths {
  explicit Lengths(std::int64_t units)
      : squares(static_cast<std::size_t>(units)), errors(static_cast<std::size_t>(units)) {}
  // Of gradients of a loss times `scale`, a power of two.
  void add(const std::vector<PerSample>& uses, Route route, double scale) {
    std::vector<double> rounded;
    const std::vector<double> part = squared_norm(uses, route, &rounded).to_vector<double>();
    for (std::size_t n = 0; n < squares.size(); ++n) {
      squares[n] += part[n] / (scale * scale);
      errors[n] += rounded[n] * rounded[n] / (scale * scale);
    }
  }
  std::vector<double> squares;  // norms
  std::vector<double> errors;   // what rounding may add to them, squared
};

// Backward's sink for one pass: a group's factors wait until its last parameter has come.
class Clipper::OnePass final : public GradSink {
 public:
  OnePass(Clipper& clipper, const Grouping* grouping)
      : clipper_(clipper), grouping_(grouping), pending_(clipper.groups_.size()) {
    budget_ = clipper.options_.row_budget;
  }
  bool bounds_influence() const override { return true; }
  bool keeps() const override { return true; }

  void receive(Parameter& parameter, std::vector<PerSample> uses) override {
    const LabelScope scope = LabelScope::phase("clip");
    const std::size_t group = clipper_.group_of(parameter);
    uses = grouped(std::move(uses), grouping_);
    for (PerSample& use : uses) {
      const PerSample kept = use.prepared(clipper_.options_.route, budget_);
      if (std::string_view(kept.form()) == "dense" && std::string_view(use.form()) != "dense")
        budget_ -= kept.row_bytes();
      use = kept;
      use.count_as_kept();
    }
    pending_[group].emplace_back(&parameter, std::move(uses));
    if (pending_[group].size() == clipper_.groups_[group].parameters.size()) flush(group);
  }

  void flush_all(std::int64_t units) {
    for (std::size_t group = 0; group < pending_.size(); ++group) {
      if (!pending_[group].empty()) {
        flush(group);
      } else if (!done(group)) {
        // No parameter of the group was used: every unit's gradient is zero.
        clipper_.factors_for(group, Lengths(units));
      }
    }
  }

 private:
  bool done(std::size_t group) const {
    return std::find(done_.begin(), done_.end(), group) != done_.end();
  }

  void flush(std::size_t group) {
    MemoryLabel label = memory_label();
    label.kind = MemoryKind::workspace;
    label.phase = "clip";
    const LabelScope scope(label);
    Lengths lengths(pending_[group][0].second[0].samples());
    for (const auto& [parameter, uses] : pending_[group])
      lengths.add(uses, clipper_.options_.route, clipper_.loss_scale_);
    const std::vector<double> factors = clipper_.factors_for(group, lengths);
    for (auto& [parameter, uses] : pending_[group]) {
      clipper_.add_weighted(*parameter, uses, factors);
      uses.clear();  // makes room for the next one's sum
    }
    pending_[group].clear();
    done_.push_back(group);
  }

  Clipper& clipper_;
  const Grouping* grouping_;
  std::vector<std::vector<std::pair<Parameter*, std::vector<PerSample>>>> pending_;
  std::vector<std::size_t> done_;
  std::size_t budget_ = 0;
};

// First of two passes: squared norms only.
class Clipper::Norms final : public GradSink {
 public:
  Norms(Clipper& clipper, const Grouping* grouping, std::int64_t units)
      : clipper_(clipper), grouping_(grouping), lengths_(clipper.groups_.size(), Lengths(units)) {}
  bool bounds_influence() const override { return true; }  // nothing leaves but factors
  void receive(Parameter& parameter, std::vector<PerSample> uses) override {
    const LabelScope scope = LabelScope::phase("clip");
    lengths_[clipper_.group_of(parameter)].add(grouped(std::move(uses), grouping_),
                                               clipper_.options_.route, clipper_.loss_scale_);
  }
  std::vector<std::vector<double>> factors() {
    std::vector<std::vector<double>> factors;
    for (std::size_t group = 0; group < lengths_.size(); ++group)
      factors.push_back(clipper_.factors_for(group, lengths_[group]));
    return factors;
  }

 private:
  Clipper& clipper_;
  const Grouping* grouping_;
  std::vector<Lengths> lengths_;
};

// Second of two passes: sums with the factors that the first one found.
class Clipper::Weighted final : public GradSink {
 public:
  Weighted(Clipper& clipper, const Grouping* grouping, std::vector<std::vector<double>> factors)
      : clipper_(clipper), grouping_(grouping), factors_(std::move(factors)) {}
  bool bounds_influence() const override { return true; }
  void receive(Parameter& parameter, std::vector<PerSample> uses) override {
    const LabelScope scope = LabelScope::phase("clip");
    clipper_.add_weighted(parameter, grouped(std::move(uses), grouping_),
                          factors_[clipper_.group_of(parameter)]);
  }

 private:
  Clipper& clipper_;
  const Grouping* grouping_;
  std::vector<std::vector<double>> factors_;
};

Clipper::~Clipper() = default;

std::size_t Clipper::group_of(const Parameter& parameter) const {
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    const auto& members = groups_[group].parameters;
    if (std::find(members.begin(), members.end(), &parameter) != members.end()) return group;
  }
  fail(fmt::format(
      "Clipper: the loss depends on a trainable parameter of shape {} that is in no clip group",
      parameter.value.shape()));
}

std::vector<double> Clipper::factors_for(std::size_t group, const Lengths& lengths) {
  double margin = 0;
  for (const Parameter* parameter : groups_[group].parameters)
    margin = std::max(margin, rounding_margin(parameter->value.dtype()));
  std::vector<double> factors;
  for (std::size_t n = 0; n < lengths.squares.size(); ++n) {
    const double square = lengths.squares[n];
    // A Gram product may round a norm of zero to just below it.
    const double norm = std::isnan(square) ? square : std::sqrt(std::max(square, 0.0));
    // The margin has room for errors up to half of it.
    const double error = std::sqrt(lengths.errors[n]);
    const double beyond = error <= margin / 2 * norm ? 0 : error;
    factors.push_back(options_.rule.factor(norm, groups_[group].bound, margin, beyond));
    within_bound_[group] += norm <= groups_[group].bound ? 0.5 : -0.5;
    const bool dropped = factors.back() == 0 && norm != 0;
    if (dropped) ++statistics_.not_finite;
    if (!std::isfinite(norm)) unit_finite_[n] = false;
    statistics_.norms[group].push_back(norm);
    statistics_.factors[group].push_back(factors.back());
  }
  return factors;
}

// Adds sum_n factor[n] G[n]. Should that overflow although every norm is finite (terms of one
// sample cancelling), the samples are added one by one and those that overflow are left out, so
// that none of them can spoil the others.
void Clipper::add_weighted(Parameter& parameter, const std::vector<PerSample>& uses,
                           const std::vector<double>& factors) {
  const auto weighted = [&](const std::vector<double>& weights) {
    Tensor total;
    std::vector<double> unscaled = weights;
    for (double& weight : unscaled) weight /= loss_scale_;
    for (const PerSample& use : uses) {
      const Tensor part = use.sum(as_tensor(unscaled));
      total = total.defined() ? sotto::add(total, part) : part;
    }
    return total;
  };
  const Tensor all = weighted(factors);
  if (all_finite(all)) return add_to_sum(parameter, all);
  for (std::size_t n = 0; n < factors.size(); ++n) {
    if (factors[n] == 0) continue;
    std::vector<double> one(factors.size(), 0.0);
    one[n] = factors[n];
    const Tensor alone = weighted(one);
    if (all_finite(alone)) {
      add_to_sum(parameter, alone);
    } else {
      ++statistics_.not_finite;
    }
  }
}

void Clipper::add_to_sum(const Parameter& parameter, const Tensor& value) {
  const auto entry = std::find_if(sums_.begin(), sums_.end(),
                                  [&](const auto& e) { return e.first == &parameter; });
  if (!entry->second.defined()) {
    label_for(parameter, MemoryKind::gradient, value);
    entry->second = value;
    return;
  }
  touched_ = touched_ || had_sum_[static_cast<std::size_t>(entry - sums_.begin())];
  axpby(1, value, 1, entry->second);
}

// What no sample touched is zero, and gets its noise too.
const Gradients& Clipper::complete_sums() {
  for (auto& [parameter, sum] : sums_) {
    if (sum.defined()) continue;
    sum = zeros(parameter->value.shape(), parameter->value.dtype(), parameter->value.device());
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

void Clipper::discard() {
  sums_.clear();
  for (const ClipGroup& group : groups_) {
    for (Parameter* parameter : group.parameters) sums_.emplace_back(parameter, Tensor());
  }
  statistics_ = {};
  statistics_.norms.resize(groups_.size());
  statistics_.factors.resize(groups_.size());
  within_bound_.assign(groups_.size(), 0);
  finite_ = 0;
  broken_ = false;
  finished_ = false;
}

// What a part that fails is undone to: everything but the sums of earlier parts, a copy of which
// would be as large as the model.
struct Clipper::Before {
  double loss_sum;
  std::int64_t not_finite;
  std::vector<double> within_bound;
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
  within_bound_ = before.within_bound;
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
    add_part(tape, loss, grouping);
  } catch (const std::exception& error) {
    if (memory::out_of_memory(error)) undo(before);
    throw;
  }
  broken_ = false;
}

void Clipper::add_part(Tape& tape, const Var& loss, const Grouping* grouping) {
  const std::int64_t units = grouping ? grouping->units : loss.shape().numel();
  const std::vector<double> losses = to_dtype(loss.value(), Dtype::f64).to_vector<double>();
  for (std::size_t row = 0; row < losses.size(); ++row) {
    const bool counts =
        !grouping || (row < grouping->unit_of_row.size() && grouping->unit_of_row[row] >= 0);
    if (counts && std::isfinite(losses[row])) statistics_.loss_sum += losses[row];
  }
  begin_units(units);
  if (passes_ == ClipPasses::one) {
    OnePass sink(*this, grouping);
    tape.backward(loss, sink, loss_scale_);
    sink.flush_all(units);
  } else {
    Norms norms(*this, grouping, units);
    tape.backward(loss, norms, loss_scale_, Tape::Keep::graph);
    Weighted weighted(*this, grouping, norms.factors());
    tape.backward(loss, weighted, loss_scale_);
  }
  end_units();
}

void Clipper::add_zeros(std::int64_t units) {
  start_batch();
  broken_ = true;
  begin_units(units);
  for (std::size_t group = 0; group < groups_.size(); ++group) factors_for(group, Lengths(units));
  end_units();
  broken_ = false;
}

void Clipper::begin_units(std::int64_t units) {
  unit_finite_.assign(static_cast<std::size_t>(units), true);
}

void Clipper::end_units() {
  for (const bool finite : unit_finite_) finite_ += finite ? 0.5 : -0.5;
  statistics_.units += std::ssize(unit_finite_);
}

ClippedSum Clipper::finish(Draw draw) {
  start_batch();
  const auto drawn = static_cast<std::int64_t>(draw.units().size());
  check(statistics_.units == drawn, "Clipper: {} units were drawn and {} clipped", drawn,
        statistics_.units);
  complete_sums();
  finished_ = true;
  const auto finite = options_.count_finite ? std::optional(finite_) : std::nullopt;
  return {std::exchange(sums_, {}), sensitivity(), within_bound_, finite, std::move(draw)};
}

}  // namespace sotto
