#include "autograd/segment.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <utility>

#include "autograd/adjoint.h"
#include "autograd/backward_pass.h"
#include "autograd/op.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"
#include "core/cuda/capture.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

const Op segment_op("segment", {.captures = Op::Captures::shared,
                                .batchable = true,
                                .changes_sample_count = true});
const Op result_op("segment_result", {.captures = Op::Captures::shared,
                                      .batchable = true,
                                      .changes_sample_count = true});

}  // namespace

// A function with all inputs that determine its values, so that backward can recompute them.
class Segment : public std::enable_shared_from_this<Segment> {
 public:
  Segment(SegmentFunction function, std::vector<Var> inputs)
      : function_(std::move(function)), inputs_(std::move(inputs)) {}

  std::vector<Var> forward();

 private:
  using Results = std::vector<Var>;
  class Handover;

  Results run(Tape& tape, const std::vector<Var>& inputs) const;
  std::vector<Var> record(Tape& outer, const Results& results);
  std::vector<Var> record_several(Tape& outer, const std::vector<Var>& inputs,
                                  const Results& results);
  void backward(std::vector<Tensor> gradients, Adjoint& adjoint);
  void check_same_values(const Results& results);
  void check_second_run(const Tape& tape, const Results& results, const Handover& handover) const;

  // Shape and sample axis of a result.
  struct Form {
    Shape shape;
    SampleAxis samples;
    bool operator==(const Form&) const = default;
  };

  SegmentFunction function_;
  std::vector<Var> inputs_;
  Tape::State before_;
  std::uint64_t draws_after_ = 0;
  std::vector<Parameter*> parameters_;  // trainable, in the order of first use
  std::vector<bool> used_before_;       // per parameter: whether the outer tape had used it before
  std::vector<Form> forms_;
  std::vector<double> sums_;  // sums of the results in the first recomputation
  bool captured_ = false;     // whether that was captured in a CUDA graph
};

// The leaves of the inner tape; it passes their gradients on to the inputs of the outer node.
class Segment::Handover final : public GradSink {
 public:
  Handover(const Segment& segment, Tape& inner, Adjoint& outer) : segment_(segment), outer_(outer) {
    for (std::size_t i = 0; i < segment.inputs_.size(); ++i) leaves_.push_back(leaf(inner, i));
  }
  const std::vector<Var>& leaves() const { return leaves_; }
  bool sums_only() const override { return outer_.pass_.sink().sums_only(); }
  bool keeps() const override { return outer_.pass_.sink().keeps(); }

  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override {
    const int place = place_of(parameter);
    for (const PerSampleGrad& use : uses) {
      // The gradients of a shared node are passed on materialized.
      if (outer_.batch_dims() > 0) {
        outer_.input(place, use.materialize());
      } else {
        outer_.shared(place, waits(place) ? use.smallest_form() : use);
      }
    }
    if (outer_.batch_dims() == 0 && last_use(place)) outer_.pass_.deliver(parameter, outer_.node_);
  }

  // The index of a parameter among the outer node's inputs; -1 if the first run did not use it.
  int place_of(const Parameter& parameter) const {
    for (const auto& [place, stand_in] : stand_ins_) {
      if (&stand_in == &parameter) return place;
    }
    const auto& known = segment_.parameters_;
    const auto found = std::find(known.begin(), known.end(), &parameter);
    return found == known.end() ? -1 : static_cast<int>(leaves_.size() + (found - known.begin()));
  }

 private:
  // True if backward meets no use of the outer node's input after this segment.
  bool last_use(int place) const {
    const std::size_t inputs = leaves_.size(), at = static_cast<std::size_t>(place);
    return at >= inputs && !segment_.used_before_[at - inputs];
  }
  // True if a passed gradient is kept for a while: in the sink, or until other uses have arrived.
  bool waits(int place) const { return keeps() || !last_use(place); }

  Var leaf(Tape& inner, std::size_t i) {
    const Var& x = segment_.inputs_[i];
    const int place = static_cast<int>(i);
    if (!x.needs_grad() || !x.samples().is_shared()) {
      return inner.append(
          {.name = "input",
           .samples = x.samples(),
           .backward = [this, place](const Tensor& dx, Adjoint&) { outer_.input(place, dx); }},
          x.value(), x.needs_grad());
    }
    // Per-sample gradients leave the inner tape through parameters, so a shared input becomes one.
    return inner.use(stand_ins_.emplace_back(place, x.value()).second);
  }

  const Segment& segment_;
  Adjoint& outer_;
  std::deque<std::pair<int, Parameter>> stand_ins_;
  std::vector<Var> leaves_;
};

Segment::Results Segment::run(Tape& tape, const std::vector<Var>& inputs) const {
  // The ops inside label their own allocations, in backward too.
  const LabelScope scope({.module = memory_label().module, .phase = memory_label().phase});
  Results results = function_(inputs);
  for (const Var& y : results)
    check(&y.tape() == &tape && tape.holds(y), "segment: a result belongs to another tape");
  return results;
}

std::vector<Var> Segment::forward() {
  check(!inputs_.empty(), "segment: no inputs");
  Tape& outer = inputs_[0].tape();
  for (const Var& x : inputs_)
    check(&x.tape() == &outer && outer.holds(x), "segment: inputs of different tapes");
  before_ = outer.state_;
  Tape inner(before_, Tape::Mode::values);
  std::vector<Var> xs;
  for (const Var& x : inputs_)
    xs.push_back(inner.append({.samples = x.samples()}, x.value(), x.needs_grad()));
  const Results results = run(inner, xs);
  for (const detail::TapeNode& node : inner.nodes_) {
    if (node.parameter) parameters_.push_back(node.parameter);
  }
  for (const Var& y : results) forms_.push_back({y.shape(), y.samples()});
  draws_after_ = outer.state_.draws = inner.state_.draws;
  outer.state_.sample_count = inner.state_.sample_count;
  return record(outer, results);
}

std::vector<Var> Segment::record(Tape& outer, const Results& results) {
  std::vector<Var> inputs = inputs_;
  for (Parameter* parameter : parameters_) {
    const std::size_t nodes = outer.nodes_.size();
    inputs.push_back(outer.use(*parameter));
    used_before_.push_back(outer.nodes_.size() == nodes);
  }
  if (results.size() != 1) return record_several(outer, inputs, results);
  return {outer.record(segment_op, inputs, results[0].value(), results[0].samples(),
                       [self = shared_from_this()](const Tensor& dy, Adjoint& adjoint) {
                         self->backward({dy}, adjoint);
                       })};
}

// Records one node for the segment, without a value, and one node per result, which stores its
// gradient for the first node.
std::vector<Var> Segment::record_several(Tape& outer, const std::vector<Var>& inputs,
                                         const Results& results) {
  const auto learned = [&](auto&& is) {
    return std::count_if(results.begin(), results.end(),
                         [&](const Var& y) { return y.needs_grad() && is(y.samples()); });
  };
  const auto shared = learned([](SampleAxis samples) { return samples.is_shared(); });
  check(shared == 0 || shared == learned([](SampleAxis) { return true; }),
        "segment: {} of {} results are shared by all samples; put these into a separate segment",
        shared, results.size());
  const bool mixed = learned([](SampleAxis samples) { return samples.is_mixed(); }) > 0;
  const SampleAxis samples = shared > 0 ? SampleAxis::shared() : mixed ? SampleAxis::mixed() : 0;
  const Tensor nothing = zeros({std::max<std::int64_t>(outer.sample_count(), 0), 0},
                               inputs[0].dtype(), inputs[0].value().device());
  const auto gradients = std::make_shared<std::vector<Tensor>>(results.size());
  const auto recompute = [self = shared_from_this(), gradients](const Tensor&, Adjoint& adjoint) {
    self->backward(std::exchange(*gradients, std::vector<Tensor>(gradients->size())), adjoint);
  };
  const Var whole = outer.record(segment_op, inputs, nothing, samples, recompute);
  std::vector<Var> all;
  for (std::size_t k = 0; k < results.size(); ++k) {
    if (!results[k].needs_grad()) {
      all.push_back(outer.append({.samples = results[k].samples()}, results[k].value(), false));
      continue;
    }
    all.push_back(outer.record(result_op, {whole}, results[k].value(), results[k].samples(),
                               [=](const Tensor& dy, Adjoint& adjoint) {
                                 (*gradients)[k] = dy;
                                 const Shape none = adjoint.with_batch_dims(nothing.shape());
                                 adjoint.input(0, zeros(none, nothing.dtype(), nothing.device()));
                               }));
  }
  return all;
}

void Segment::backward(std::vector<Tensor> gradients, Adjoint& adjoint) {
  Tape inner(before_, Tape::Mode::repeat);
  Handover handover(*this, inner, adjoint);
  Results results = run(inner, handover.leaves());
  check_second_run(inner, results, handover);
  if (before_.options.private_data) check_same_values(results);
  std::vector<std::pair<Var, Tensor>> starts;
  for (std::size_t k = 0; k < results.size(); ++k) starts.emplace_back(results[k], gradients[k]);
  results.clear();
  inner.backward_from(std::move(starts), handover, Tape::Keep::nothing);
}

// If the two backward passes computed different functions, the norms of the first would not bound
// the sums of the second.
void Segment::check_same_values(const Results& results) {
  if (Capture::here()) {
    // A CUDA graph with a single pass over the segment runs equal launches in every replay.
    if (std::exchange(captured_, true)) refuse_capture("two backward passes over a segment");
    return;
  }
  std::vector<double> sums;
  for (const Var& y : results) {
    if (y.needs_grad()) sums.push_back(sum(y.value()).item());
  }
  if (sums_.empty()) sums_ = sums;
  const bool same =
      std::equal(sums.begin(), sums.end(), sums_.begin(), sums_.end(),
                 [](double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); });
  check(same, "segment: other values in the second backward pass than in the first");
}

void Segment::check_second_run(const Tape& tape, const Results& results,
                               const Handover& handover) const {
  check(tape.state_.draws == draws_after_,
        "segment: {} random draws in the first run, but {} in its recomputation",
        draws_after_ - before_.draws, tape.state_.draws - before_.draws);
  std::vector<Form> forms;
  for (const Var& y : results) forms.push_back({y.shape(), y.samples()});
  check(forms == forms_, "segment: its recomputed results have other shapes");
  std::size_t used = 0;
  for (const detail::TapeNode& node : tape.nodes_) {
    if (!node.parameter) continue;
    const int place = handover.place_of(*node.parameter);
    check(place >= 0, "segment: a parameter of shape {} is used in its recomputation only",
          node.parameter->value.shape());
    if (place >= static_cast<int>(inputs_.size())) ++used;
  }
  check(used == parameters_.size(),
        "segment: {} parameters in the first run, but {} in its recomputation", parameters_.size(),
        used);
}

std::vector<Var> segment(const SegmentFunction& function, const std::vector<Var>& inputs) {
  return std::make_shared<Segment>(function, inputs)->forward();
}

Var segment(const std::function<Var(const Var& x)>& function, const Var& x) {
  return segment(
      [function](const std::vector<Var>& inputs) { return std::vector{function(inputs[0])}; },
      std::vector{x})[0];
}

}  // namespace sotto
