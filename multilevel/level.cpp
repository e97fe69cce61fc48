#include "multilevel/level.h"

#include <algorithm>

#include "autograd/ops/elementwise.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::multilevel {

namespace {

// Added to the norm of a gradient that is clipped, as in PyTorch's clip_grad_norm_.
constexpr double norm_offset = 1e-6;

memory::Accumulation accumulation_of(const Problem& problem) {
  nn::Module* const module = problem.variables.module;
  return module ? memory::Accumulation(problem.policy, *module)
                : memory::Accumulation(problem.policy);
}

std::vector<Parameter*> learned(const Problem& problem) {
  const std::vector<const Parameter*> held = problem.optimizer.parameters();
  std::vector<Parameter*> parameters;
  for (const auto& [name, parameter] : problem.variables.parameters) {
    if (std::find(held.begin(), held.end(), parameter) != held.end())
      parameters.push_back(parameter);
  }
  return parameters;
}

}  // namespace

Level::Level(const Problem& problem, const std::vector<Parameter*>& everything)
    : problem_(problem),
      named_(problem.variables.parameters),
      parameters_(learned(problem)),
      everything_(everything),
      accumulation_(accumulation_of(problem)) {}

Var Level::loss(Pass& pass) const {
  const Var losses = problem_.loss(pass);
  if (!problem_.weights) return losses;
  return mul(losses, problem_.weights(pass, pass.detach(losses)));
}

TapeOptions Level::tape_options() const {
  return {.seed = problem_.seed, .step = static_cast<std::uint64_t>(batches_)};
}

Gradients Level::gradient(const std::vector<Parameter*>& by) {
  const OnlyTrainable scope(everything_, by);
  const auto loss_of = [&](Tape& tape, std::span<const std::int64_t> rows) {
    Pass pass(tape, rows, rows.data() - rows_.data(), detached_);
    return loss(pass);
  };
  const auto result =
      accumulation_.mean_gradient(loss_of, rows_, problem_.optimizer, tape_options());
  pass_loss_ = result.loss_sum / static_cast<double>(rows());
  if (result.overflowed) throw GradientOverflow();
  return ordered(result.gradients, by);
}

void Level::over_batch(const std::vector<Parameter*>& by, const std::function<void(Pass&)>& run) {
  const OnlyTrainable scope(everything_, by);
  const auto part = [&](Tape& tape, std::int64_t first, std::int64_t end) {
    Pass pass(tape,
              std::span(rows_).subspan(static_cast<std::size_t>(first),
                                       static_cast<std::size_t>(end - first)),
              first, detached_);
    run(pass);
  };
  accumulation_.over(rows(), problem_.optimizer, tape_options(), part);
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

void Level::next_batch() {
  ++steps_;
  rows_ = problem_.batches(batches_++);
  check(!rows_.empty(), "multilevel: batch {} of {} has no rows", batches_ - 1, problem_.name);
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
