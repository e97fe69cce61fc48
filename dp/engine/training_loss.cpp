#include "dp/engine/training_loss.h"

#include <array>

#include <fmt/format.h>

#include "core/overloaded.h"

namespace sotto {

namespace {

// A batch as the list of its tensors, for CUDA graphs, and back.
std::vector<Tensor> tensors_of(const Dataset& batch) {
  std::vector<Tensor> tensors{batch.inputs, batch.targets};
  for (const auto& [name, field] : batch.fields) tensors.push_back(field);
  return tensors;
}

Dataset with_tensors(const Dataset& like, const std::vector<Tensor>& tensors) {
  Dataset batch{.inputs = tensors[0], .targets = tensors[1]};
  std::size_t next = 2;
  for (const auto& [name, field] : like.fields) batch.fields[name] = tensors[next++];
  return batch;
}

}  // namespace

TrainingLoss::TrainingLoss(nn::Module& model, const Dataset& data, Device device,
                           const TrainOptions& options, const TrainLoss& loss)
    : model_(model),
      data_(data),
      options_(options),
      loss_(loss),
      loader_(options.views
                  ? BatchLoader([this](auto numbers) { return views_of(numbers); }, device)
                  : BatchLoader(data, device)) {}

void TrainingLoss::set(EngineOptions& options) {
  if (!options.prefetch_rows)
    options.prefetch_rows = [this](std::span<const std::int64_t> rows) { prefetch(rows); };
  if (views() == 1) return;
  options.rows_of_unit = [this](std::int64_t sample) { return rows_of(std::array{sample}); };
  options.mean_of_rows = true;
}

void TrainingLoss::begin_step(std::int64_t step,
                              std::function<std::optional<std::int64_t>()> max_rows) {
  step_ = step;
  max_rows_ = std::move(max_rows);
}

std::int64_t TrainingLoss::views() const { return options_.views ? options_.views->count : 1; }

std::vector<std::int64_t> TrainingLoss::rows_of(std::span<const std::int64_t> samples) const {
  std::vector<std::int64_t> rows;
  for (const std::int64_t sample : samples) {
    for (std::int64_t view = 0; view < views(); ++view) rows.push_back(views() * sample + view);
  }
  return rows;
}

// The rows of a step for the loader. Views differ from step to step, and not when a part of a step
// is computed again: theirs are numbered over all steps, view v of sample s being number
// v * samples + s, so that the loader may make those of the next step ahead.
std::vector<std::int64_t> TrainingLoss::numbers(std::span<const std::int64_t> rows,
                                                std::int64_t step) const {
  std::vector<std::int64_t> all(rows.begin(), rows.end());
  if (!options_.views) return all;
  for (std::int64_t& row : all)
    row = (views() * step + row % views()) * data_.size() + row / views();
  return all;
}

Dataset TrainingLoss::views_of(std::span<const std::int64_t> numbers) const {
  std::vector<std::int64_t> samples;
  std::vector<RecordView> views;
  for (const std::int64_t number : numbers) {
    samples.push_back(number % data_.size());
    views.push_back({.record = samples.back(), .view = number / data_.size()});
  }
  return options_.views->make(data_.batch(samples), views, options_.engine.seed);
}

void TrainingLoss::prefetch(std::span<const std::int64_t> rows,
                            std::span<const std::int64_t> next) {
  loader_.prefetch(numbers(rows, step_), numbers(next, step_ + 1));
}

Var TrainingLoss::losses(Tape& tape, const Dataset& batch) {
  return std::visit(
      Overloaded{
          [&](const LabelLoss& f) { return f(model_(tape.input(batch.inputs)), batch.targets); },
          [&](const ValueLoss& f) {
            return f(model_(tape.input(batch.inputs)), tape.input(batch.targets));
          },
          [&](const BatchLoss& f) { return f(tape, batch); }},
      loss_);
}

Var TrainingLoss::operator()(Tape& tape, std::span<const std::int64_t> rows) {
  const Dataset batch = loader_.batch(numbers(rows, step_));
  if (options_.learner != nullptr) return options_.learner->losses(losses(tape, batch));
  const auto max = options_.capture ? max_rows_() : std::nullopt;
  if (!max) return losses(tape, batch);
  if (!captured_) {
    const auto loss = [this](Tape& inner, const std::vector<Tensor>& captured) {
      return losses(inner, with_tensors(data_, captured));
    };
    captured_.emplace(model_, *max, loss);
  }
  return (*captured_)(tape, tensors_of(batch));
}

std::string TrainingLoss::captured() const {
  if (!captured_) return "nothing";
  const std::string parts = fmt::format("{} physical batches", captured_->replays());
  return captured_->reason().empty() ? parts
                                     : fmt::format("{}; not: {}", parts, captured_->reason());
}

}  // namespace sotto
