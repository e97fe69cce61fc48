// The loss of a training by train(): it loads each physical batch, or makes its views, and computes
// or replays the losses.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dp/engine/train.h"
#include "memory/captured_loss.h"
#include "nn/data/batch_loader.h"

namespace sotto {

// With K views of each sample, row K s + k is view k of sample s; otherwise rows are samples.
class TrainingLoss {
 public:
  // Model and data must outlive it.
  TrainingLoss(nn::Module& model, const Dataset& data, Device device, const TrainOptions& options,
               const TrainLoss& loss);

  // Lets an engine's units have their views as rows, and its batches prefetched here.
  void set(EngineOptions& options);
  // The batches to come are those of this step, from 0. `max_rows` gives the size of physical
  // batches, once it is known.
  void begin_step(std::int64_t step, std::function<std::optional<std::int64_t>()> max_rows);
  std::vector<std::int64_t> rows_of(std::span<const std::int64_t> samples) const;
  // Announces the rows of this step, and those of the next.
  void prefetch(std::span<const std::int64_t> rows, std::span<const std::int64_t> next = {});
  Var operator()(Tape& tape, std::span<const std::int64_t> rows);

  // Views of a sample in a step; 1 without views.
  std::int64_t views() const;
  // How many physical batches were replayed, and why the last one was not.
  std::string captured() const;
  // Batches that were made or gathered ahead.
  std::int64_t prefetched_batches() const { return loader_.hits(); }

 private:
  std::vector<std::int64_t> numbers(std::span<const std::int64_t> rows, std::int64_t step) const;
  Dataset views_of(std::span<const std::int64_t> numbers) const;
  Var losses(Tape& tape, const Dataset& batch);

  nn::Module& model_;
  const Dataset& data_;
  const TrainOptions options_;
  const TrainLoss loss_;
  BatchLoader loader_;
  std::optional<memory::CapturedLoss> captured_;
  std::int64_t step_ = 0;
  std::function<std::optional<std::int64_t>()> max_rows_;
};

}  // namespace sotto
