#include "sotto/memory/accumulation.h"

#include <fmt/ranges.h>

#include "sotto/kernels/compute.h"
#include "sotto/memory/fit.h"

namespace sotto::memory {

namespace {

// Sums, and whether it was given anything since it was last told to forget.
class WatchedSums final : public GradSink {
 public:
  void receive(Parameter& parameter, std::vector<PerSample> uses) override {
    touched = true;
    sums.receive(parameter, std::move(uses));
  }
  bool sums_only() const override { return true; }

  SumSink sums;
  bool touched = false;
};

// Adds the part's share of the mean over `all` rows; returns the sum of its losses.
double add_part(const Accumulation::Loss& loss, std::span<const std::int64_t> rows,
                std::int64_t all, Tape& tape, GradSink& sink, PhaseClock& phases) {
  phases.enter("forward");
  const Var losses = loss(tape, rows);
  check(losses.shape() == Shape{std::ssize(rows)}, "Accumulation: a loss of shape {} for {} rows",
        losses.shape(), rows.size());
  phases.enter("backward");
  tape.backward(losses, sink, 1 / static_cast<double>(all));
  return sum(to_dtype(losses.value(), Dtype::f64)).item();
}

TapeOptions from_row(TapeOptions options, std::int64_t first, std::int64_t count) {
  if (options.rows.empty()) {
    options.first_row += first;
  } else {
    const auto begin = options.rows.begin() + first;
    options.rows = {begin, begin + count};
  }
  return options;
}

}  // namespace

Accumulation::Accumulation(const Policy& policy) : policy_(policy) {
  const std::vector<std::string> problems = policy.problems();
  check(problems.empty(), "Accumulation: {}", fmt::join(problems, "; "));
  if (!policy.finds_physical_batch())
    parts_.emplace(policy.rows(), policy.accumulation.value_or(1));
}

std::optional<std::int64_t> Accumulation::physical_batch() const {
  if (!parts_) return std::nullopt;
  return parts_->rows();
}

Accumulation::Result Accumulation::mean_gradient(const Loss& loss,
                                                 std::span<const std::int64_t> rows,
                                                 const nn::Optimizer& optimizer,
                                                 const TapeOptions& options) {
  const std::int64_t count = std::ssize(rows);
  check(count > 0, "Accumulation: no rows");
  if (!parts_) {
    phases_.stop();  // dry runs belong to no phase
    fit({loss, rows, options}, optimizer);
  }
  const LimitScope limit(policy_.limit);
  WatchedSums sink;
  double loss_sum = 0;
  const auto run = [&](std::int64_t first, std::int64_t end) {
    sink.touched = false;
    Tape tape(from_row(options, first, end - first));
    const auto part =
        rows.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first));
    loss_sum += add_part(loss, part, count, tape, sink, phases_);
  };
  const auto lost = [&] {
    if (!sink.touched) return false;
    sink = {};
    loss_sum = 0;
    return true;
  };
  parts_->over(std::vector<std::int64_t>(rows.size(), 1), run, lost);
  phases_.stop();
  return {sink.sums.gradients(), loss_sum};
}

// The second of two equal parts is the largest: the sums are there already.
void Accumulation::fit(const Batch& batch, const nn::Optimizer& optimizer) {
  const std::int64_t count = std::ssize(batch.rows);
  const auto peak_of = [&](std::int64_t size) {
    PhaseClock unseen;
    SumSink sink;
    const auto rows = batch.rows.first(static_cast<std::size_t>(size));
    for (int part = 0; part < 2; ++part) {
      Tape tape(from_row(batch.options, 0, size));
      add_part(batch.loss, rows, size, tape, sink, unseen);
    }
    unseen.stop();
    return unseen.peak_bytes() + optimizer.bytes_to_come();
  };
  const std::int64_t parts = policy_.accumulation.value_or(1);
  parts_.emplace(
      fit_rows(peak_of, 1, (count + parts - 1) / parts, limit_within(policy_.limit)).rows, parts);
}

}  // namespace sotto::memory
