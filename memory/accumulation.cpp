#include "memory/accumulation.h"

#include <algorithm>

#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"
#include "core/join.h"
#include "core/ranks/collectives.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/checkpointing/model_checkpoints.h"
#include "nn/optim/rank_sink.h"

namespace sotto::memory {

namespace {

// Sums gradients, and notes whether it received any since `touched` was cleared.
class WatchedSums final : public GradSink {
 public:
  // `ranks`: where a gradient goes in the last physical batch, as soon as it is summed; or null.
  explicit WatchedSums(nn::RankSink* ranks) : ranks_(ranks) {}
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override {
    touched = true;
    sums.receive(parameter, std::move(uses));
    if (last && ranks_ != nullptr) send(parameter);
  }
  bool sums_only() const override { return true; }
  // Begins the batch again. Sums that were handed out stay valid.
  void clear() { sums = {}; }
  // Sends the gradients of parameters that the last physical batch did not use.
  void send_rest() {
    for (const auto& [parameter, gradient] : sums.gradients())
      if (!ranks_->has(*parameter)) ranks_->add(*parameter, gradient);
  }

  SumSink sums;
  bool touched = false, last = false;

 private:
  void send(Parameter& parameter) {
    if (ranks_->has(parameter)) return;
    const Gradients& all = sums.gradients();
    const auto sum =
        std::ranges::find_if(all, [&](const auto& one) { return one.first == &parameter; });
    ranks_->add(parameter, sum->second);
  }

  nn::RankSink* ranks_;
};

LossScale scale_of(const Policy& policy) {
  using Adjust = LossScaling::Adjust;
  const Dtype precision = policy.precision.value_or(Dtype::f32);
  return LossScale({.adjust = precision == Dtype::f16 ? Adjust::on_overflow : Adjust::never},
                   precision);
}

}  // namespace

// A logical batch, or this rank's part of it.
struct Accumulation::Batch {
  const Loss& loss;
  std::span<const std::int64_t> rows;
  TapeOptions options;
  std::size_t rows_of_all_ranks;
};

Accumulation::Accumulation(const Policy& policy, nn::Module* model)
    : policy_(policy),
      model_(model),
      precision_(policy.precision.value_or(Dtype::f32)),
      loss_scale_(scale_of(policy)),
      phases_({device_of(model ? model->parameters() : std::vector<Parameter*>{})}) {
  const std::vector<std::string> problems = policy.problems();
  check(problems.empty(), "Accumulation: {}", join(problems, "; "));
  check(!policy.checkpoint || model != nullptr,
        "Accumulation: activation checkpoints need the model");
  if (policy.checkpoint) set_checkpoints(*model, *policy.checkpoint);
  if (policy.limit == 0) parts_.emplace(policy.rows(), policy.accumulation.value_or(1));
}

Accumulation::Accumulation(const Policy& policy, nn::Module& model, Ranks& ranks)
    : Accumulation(policy, &model, model.parameters(), ranks) {}

Accumulation::Accumulation(const Policy& policy, nn::Module* model,
                           std::vector<Parameter*> parameters, Ranks& ranks)
    : Accumulation(policy, model) {
  check(ranks.size() == 1 || policy.limit == 0 || policy.precision,
        "Accumulation: ranks need a policy with a precision");
  parameters_ = std::move(parameters);
  ranks_ = std::shared_ptr<Ranks>(std::shared_ptr<void>(), &ranks);  // not owned
}

bool Accumulation::unscaled(const TapeOptions& options) const {
  const bool never = loss_scale_.options().adjust == LossScaling::Adjust::never;
  return options.precision == Dtype::f64 || (never && loss_scale_.value() == 1);
}

std::optional<std::int64_t> Accumulation::physical_batch() const {
  if (!parts_) return std::nullopt;
  return parts_->rows();
}

TapeOptions Accumulation::part_of(const TapeOptions& options, std::int64_t first,
                                  std::int64_t end) const {
  TapeOptions part = options;
  if (options.precision != Dtype::f64) part.precision = precision_;
  if (options.rows.empty()) {
    part.first_row += first;
  } else {
    part.rows.assign(options.rows.begin() + first, options.rows.begin() + end);
  }
  return part;
}

// Adds the gradient of rows first .. end - 1, divided by the batch's size; returns the sum of their
// losses.
double Accumulation::add_physical_batch(const Batch& batch, std::int64_t first, std::int64_t end,
                                        GradSink& sink, PhaseProfiler& phases) const {
  phases.enter("forward");
  const auto rows =
      batch.rows.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first));
  Tape tape(part_of(batch.options, first, end));
  const Var losses = batch.loss(tape, rows);
  check(losses.shape() == Shape{std::ssize(rows)},
        "Accumulation: a loss of shape {} for {} rows; return one loss for each row",
        losses.shape(), rows.size());
  phases.enter("backward");
  const double scale = unscaled(batch.options) ? 1 : loss_scale_.value();
  tape.backward(losses, sink, scale / static_cast<double>(batch.rows_of_all_ranks));
  return sum(to_dtype(losses.value(), Dtype::f64)).item();
}

Accumulation::Result Accumulation::mean_gradient(const Loss& loss,
                                                 std::span<const std::int64_t> rows,
                                                 const nn::Optimizer& optimizer,
                                                 const TapeOptions& options) {
  const Batch batch = share_of(loss, rows, options);
  check(batch.rows_of_all_ranks > 0, "Accumulation: no rows");
  if (!parts_ && !rows.empty()) {
    phases_.stop();  // dry runs belong to no phase
    make_plan(batch, optimizer);
  }
  const LimitScope limit(policy_.limit, device_of(optimizer));
  std::optional<nn::RankSink> rank_sink;
  if (ranks_->size() > 1) rank_sink.emplace(*ranks_, parameters_);
  WatchedSums sink(rank_sink ? &*rank_sink : nullptr);
  double loss_sum = 0;
  const auto run = [&](std::int64_t first, std::int64_t end) {
    sink.touched = false;
    sink.last = end == std::ssize(rows);
    loss_sum += add_physical_batch(batch, first, end, sink, phases_);
  };
  const auto lost = [&] {
    if (!sink.touched) return false;
    sink.clear();
    loss_sum = 0;
    return true;
  };
  if (!rows.empty()) over_parts(std::ssize(rows), options, run, lost);
  phases_.stop();
  Result result{sink.sums.gradients()};
  if (rank_sink) {
    sink.send_rest();
    result.gradients = rank_sink->gradients();
  }
  for (const double loss : all_gather(*ranks_, "Accumulation: losses", loss_sum))
    result.loss_sum += loss;
  if (unscaled(options)) return result;
  std::optional<Gradients> divided = loss_scale_.unscaled(result.gradients);
  result.overflowed = !divided;
  result.gradients = std::move(divided).value_or(Gradients{});
  return result;
}

// The rows of ranks before this one come first in the numbers of rows.
Accumulation::Batch Accumulation::share_of(const Loss& loss, std::span<const std::int64_t> rows,
                                           const TapeOptions& options) const {
  Batch batch{loss, rows, options, rows.size()};
  batch.rows_of_all_ranks = 0;
  const std::vector<std::size_t> counts = all_gather(*ranks_, "Accumulation: rows", rows.size());
  for (std::size_t k = 0; k < counts.size(); ++k) {
    if (k == static_cast<std::size_t>(ranks_->rank()))
      batch.options.first_row += static_cast<std::int64_t>(batch.rows_of_all_ranks);
    batch.rows_of_all_ranks += counts[k];
  }
  return batch;
}

Gradients Accumulation::sum_over_ranks(const Gradients& own) const {
  if (ranks_->size() == 1) return own;
  nn::RankSink sink(*ranks_, parameters_);
  for (const auto& [parameter, gradient] : own) sink.add(*parameter, gradient);
  return sink.gradients();
}

void Accumulation::over(std::int64_t rows, const nn::Optimizer& optimizer,
                        const TapeOptions& options, const Run& run) {
  check(parts_.has_value(), "Accumulation: a limit is planned by mean_gradient, not yet called");
  const LimitScope limit(policy_.limit, device_of(optimizer));
  const auto part = [&](std::int64_t first, std::int64_t end) {
    Tape tape(part_of(options, first, end));
    run(tape, first, end);
  };
  over_parts(rows, options, part, [] { return false; });
}

// In the bytes of a row a tape in f64 has fewer: where the policy splits batches, it splits them
// into more parts. Those of the policy's precision stay as they are.
void Accumulation::over_parts(std::int64_t rows, const TapeOptions& options,
                              const PhysicalBatches::Run& run, const PhysicalBatches::Lost& lost) {
  const std::vector<std::int64_t> items(static_cast<std::size_t>(rows), 1);
  const bool splits = policy_.physical_batch || policy_.accumulation || policy_.limit != 0;
  if (options.precision != Dtype::f64 || !splits) return parts_->over(items, run, lost);
  const auto wider = static_cast<std::int64_t>(size_of(Dtype::f64) / size_of(precision_));
  PhysicalBatches(std::max<std::int64_t>(1, parts_->rows() / wider),
                  policy_.accumulation.value_or(1) * wider)
      .over(items, run, lost);
}

std::vector<Strategy> Accumulation::strategies(const MemoryRequirement& requirement) {
  const std::vector<Dtype> precisions =
      policy_.precision ? std::vector{*policy_.precision} : std::vector{Dtype::f32, Dtype::bf16};
  const bool can_checkpoint_now = model_ != nullptr && can_checkpoint(policy_, *model_);
  std::vector<Strategy> strategies;
  for (const Dtype precision : precisions) {
    const auto apply = [this, precision, can_checkpoint_now]() -> StrategyCost {
      precision_ = precision;
      if (can_checkpoint_now) set_checkpoints(*model_, 0);
      return {};
    };
    strategies.push_back({name(precision), apply});
    if (can_checkpoint_now)
      strategies.push_back(with_checkpoints(strategies.back(), *model_, requirement));
  }
  return strategies;
}

void Accumulation::make_plan(const Batch& batch, const nn::Optimizer& optimizer) {
  const std::int64_t parts = policy_.accumulation.value_or(1);
  const std::int64_t max = std::min((std::ssize(batch.rows) + parts - 1) / parts, policy_.rows());
  const auto peak_of = [&](std::int64_t rows) {
    PhaseProfiler unseen({device_of(optimizer)});
    SumSink sink;
    // The second physical batch, if there is one, needs the sums of the first beside its own
    // memory.
    for (const std::int64_t part : {rows, std::min(rows, std::ssize(batch.rows) - rows)}) {
      if (part > 0) add_physical_batch(batch, 0, part, sink, unseen);
    }
    unseen.stop();
    return unseen.peak_bytes() + optimizer.bytes_to_come();
  };
  const MemoryRequirement requirement{.peak_of = peak_of,
                                      .max = max,
                                      .update = update_bytes(optimizer),
                                      .limit = limit_within(policy_.limit, device_of(optimizer))};
  plan_ = choose_strategy(strategies(requirement), requirement);
  parts_.emplace(plan_->fit().rows, parts);
}

}  // namespace sotto::memory
