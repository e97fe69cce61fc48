#include "multilevel/level.h"

#include <algorithm>
#include <numeric>

#include "autograd/ops/elementwise.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"
#include "core/ranks/collectives.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "multilevel/row_factors.h"

namespace sotto::multilevel {

namespace {

// Added to the norm of a gradient that is clipped, as in PyTorch's clip_grad_norm_.
constexpr double norm_offset = 1e-6;

std::vector<Parameter*> learned(const Problem& problem) {
  const std::vector<const Parameter*> held = problem.optimizer.parameters();
  std::vector<Parameter*> parameters;
  for (const auto& [name, parameter] : problem.variables.parameters) {
    if (std::find(held.begin(), held.end(), parameter) != held.end())
      parameters.push_back(parameter);
  }
  return parameters;
}

Gradients values_of(const std::vector<Parameter*>& parameters) {
  Gradients values;
  for (Parameter* parameter : parameters) values.emplace_back(parameter, parameter->value);
  return values;
}

// The sum over ranks, in their order.
double sum_of_ranks(Ranks& ranks, double own) {
  const std::vector<double> all = all_gather(ranks, "multilevel: numbers", own);
  return std::accumulate(all.begin(), all.end(), 0.0);
}

// Sums weighted gradients, and keeps the factors of those of some parameters.
class WeightedSums final : public GradSink {
 public:
  WeightedSums(const Tensor& weights, const std::vector<Parameter*>& kept)
      : weights_(weights), kept_(kept) {}
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override {
    for (const PerSampleGrad& use : uses) accumulate(sums, parameter, use.sum(weights_));
    if (std::find(kept_.begin(), kept_.end(), &parameter) != kept_.end())
      factors->receive(parameter, std::move(uses));
  }
  bool keeps() const override { return true; }

  Gradients sums;
  std::shared_ptr<RowFactors> factors = std::make_shared<RowFactors>();

 private:
  const Tensor& weights_;
  const std::vector<Parameter*>& kept_;
};

}  // namespace

void check_row_losses(const char* response, const Var& losses, const Pass& pass) {
  check(losses.samples().batched() && losses.shape() == Shape{std::ssize(pass.rows)},
        "{}: a loss of shape {} for {} rows must be one of each", response, losses.shape(),
        pass.rows.size());
}

Level::Level(const Problem& problem, const std::vector<Parameter*>& everything, Ranks& ranks)
    : problem_(problem),
      named_(problem.variables.parameters),
      parameters_(learned(problem)),
      everything_(everything),
      ranks_(ranks),
      accumulation_(problem.policy, problem.variables.module, everything, ranks) {}

Var Level::loss(Pass& pass) const {
  const Var losses = problem_.loss(pass);
  if (!problem_.weights) return losses;
  return mul(losses, problem_.weights(pass, pass.detach(losses)));
}

TapeOptions Level::tape_options() const {
  return {
      .precision = precision_, .seed = problem_.seed, .step = static_cast<std::uint64_t>(steps_)};
}

// Ranks have about as many rows each, those of rank 0 first.
std::span<const std::int64_t> Level::own_rows() const {
  const auto end_of = [this](int rank) {
    return static_cast<std::size_t>(rows() * rank / ranks_.size());
  };
  const std::size_t first = end_of(ranks_.rank());
  return std::span(rows_).subspan(first, end_of(ranks_.rank() + 1) - first);
}

Gradients Level::gradient(const std::vector<Parameter*>& by) {
  const OnlyTrainable scope(everything_, by);
  const auto loss_of = [&](Tape& tape, std::span<const std::int64_t> rows) {
    Pass pass(tape, rows, rows.data() - rows_.data(), detached_);
    return loss(pass);
  };
  const auto result =
      accumulation_.mean_gradient(loss_of, own_rows(), problem_.optimizer, tape_options());
  pass_loss_ = result.loss_sum / static_cast<double>(rows());
  if (result.overflowed) throw GradientOverflow();
  return ordered(result.gradients, by);
}

Gradients Level::gradient_keeping_rows(const std::vector<Parameter*>& by) {
  drop_kept_rows();
  double loss_sum = 0;
  const auto add = [&](Pass& pass, Gradients& total) {
    const Var losses = problem_.loss(pass);
    check_row_losses("row_slopes", losses, pass);
    const Tensor values = losses.value();
    const Tensor weights =
        to_dtype(problem_.weights(pass, pass.detach(losses)).value(), values.dtype());
    const Tensor shares = scale(weights, 1 / static_cast<double>(rows()));
    WeightedSums sink(shares, parameters_);
    pass.tape.backward(losses, sink);
    for (const auto& [parameter, value] : sink.sums) accumulate(total, *parameter, value);
    loss_sum += sum(to_dtype(mul(values, weights), Dtype::f64)).item();
    kept_rows_.push_back({values, std::move(sink.factors)});
  };
  Gradients gradient = sum_over_batch(by, by, add);
  pass_loss_ = sum_of_ranks(ranks_, loss_sum) / static_cast<double>(rows());
  return gradient;
}

void Level::over_batch(const std::vector<Parameter*>& by, const std::function<void(Pass&)>& run) {
  const OnlyTrainable scope(everything_, by);
  const std::span<const std::int64_t> own = own_rows();
  if (own.empty()) return;
  TapeOptions options = tape_options();
  options.first_row = first_row();
  const auto part = [&](Tape& tape, std::int64_t first, std::int64_t end) {
    Pass pass(tape,
              own.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first)),
              options.first_row + first, detached_);
    run(pass);
  };
  accumulation_.over(std::ssize(own), problem_.optimizer, options, part);
}

Gradients Level::sum_over_batch(const std::vector<Parameter*>& trainable,
                                const std::vector<Parameter*>& by, const AddRows& add) {
  std::optional<Gradients> own(std::in_place);
  try {
    over_batch(trainable, [&](Pass& pass) { add(pass, *own); });
  } catch (const GradientOverflow&) {
    own.reset();
  }
  return sum_over_ranks(by, own);
}

Gradients Level::sum_over_ranks(const std::vector<Parameter*>& by,
                                const std::optional<Gradients>& own) {
  if (sum_of_ranks(ranks_, own ? 0 : 1) > 0) throw GradientOverflow();
  const OnlyTrainable scope(everything_, by);
  return ordered(accumulation_.sum_over_ranks(*own), by);
}

const Gradients& Level::last_gradient() const {
  check(!last_gradient_.empty(), "multilevel: {} has made no update yet", problem_.name);
  return last_gradient_;
}

const std::string& Level::name_of(const Parameter* parameter) const {
  const auto found = std::find_if(named_.begin(), named_.end(),
                                  [&](const auto& entry) { return entry.second == parameter; });
  check(found != named_.end(), "multilevel: {} has no such variable", problem_.name);
  return found->first;
}

Level::DetachedHeld::DetachedHeld(Level& level, bool hold) : level_(level) {
  if (!hold || !level.detached_.used()) return;
  level.detached_.set(DetachedValues::Mode::record);
  level.over_batch({}, [&](Pass& pass) { level.loss(pass); });
  level.detached_.set(DetachedValues::Mode::replay);
}

Level::DetachedHeld::~DetachedHeld() { level_.detached_.set(DetachedValues::Mode::present); }

Level::InF64::InF64(Level& level)
    : level_(level), before_(level.precision_), values_(in_f64(values_of(level.everything_))) {
  level.precision_ = Dtype::f64;
}

Level::InF64::~InF64() { level_.precision_ = before_; }

void Level::next_batch() {
  rows_ = problem_.batches(steps_);
  check(!rows_.empty(), "multilevel: batch {} of {} has no rows", steps_, problem_.name);
  ++steps_;
}

void Level::add(std::optional<Gradients> gradient) {
  mean_loss_ = pass_loss_;
  overflowed_ = overflowed_ || !gradient;
  if (gradient && sum_.empty()) {
    sum_ = problem_.steps_per_update == 1
               ? std::move(*gradient)
               : scaled(*gradient, 1 / static_cast<double>(problem_.steps_per_update));
  } else if (gradient) {
    add_scaled(1 / static_cast<double>(problem_.steps_per_update), *gradient, sum_);
  }
  if (++pending_ < problem_.steps_per_update) return;
  if (!overflowed_) update();
  sum_.clear();
  pending_ = 0;
  overflowed_ = false;
}

void Level::update() {
  if (problem_.before_update) problem_.before_update(sum_);
  clip(sum_);
  if (problem_.schedule) problem_.optimizer.follow(*problem_.schedule, updates_);
  problem_.optimizer.step(sum_);
  ++updates_;
  if (problem_.response.keeps_gradient) last_gradient_ = std::move(sum_);
  if (problem_.after_update) problem_.after_update();
}

void Level::clip(Gradients& gradients) const {
  if (problem_.max_norm == 0) return;
  const double factor = problem_.max_norm / (norm(gradients) + norm_offset);
  if (factor < 1) gradients = scaled(gradients, factor);
}

void Level::keep() {
  kept_ = {.optimizer = optimizer_state(), .updates = updates_};
  for (const Parameter* parameter : parameters_) kept_->values.push_back(clone(parameter->value));
}

void Level::restore() {
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    copy_into(kept_->values[i], parameters_[i]->value);
  problem_.optimizer.load_state(kept_->optimizer, named_);
  updates_ = kept_->updates;
}

}  // namespace sotto::multilevel
