#include "dp/engine/ordinary_steps.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <nlohmann/json.hpp>

#include "core/ranks/collectives.h"
#include "core/ranks/one_rank.h"
#include "nn/optim/rank_sink.h"

namespace sotto {

namespace {

constexpr const char* key = "sotto.ordinary_steps";
constexpr std::array names = {"steps_made", "epoch", "row"};

memory::Accumulation accumulation_of(const EngineOptions& options, nn::Module& model,
                                     Ranks& ranks) {
  if (ranks.size() == 1) return memory::Accumulation(options.memory, model);
  nn::broadcast_values(ranks, model.parameters());
  return memory::Accumulation(options.memory, model, ranks);
}

// The entries of the metadata. Throws std::invalid_argument if one is missing.
std::array<std::int64_t, 3> entries_of(const TensorFile& file) {
  const auto found = file.metadata.find(key);
  check(found != file.metadata.end(), "ordinary training: the metadata has no {}", key);
  const auto object = nlohmann::json::parse(found->second, nullptr, false);
  std::array<std::int64_t, 3> values;
  for (std::size_t k = 0; k < names.size(); ++k) {
    check(object.is_object() && object.contains(names[k]) && object[names[k]].is_number_integer(),
          "ordinary training: no {} in {}", names[k], key);
    object[names[k]].get_to(values[k]);
  }
  check(values[0] >= 0, "ordinary training: step {}", values[0]);
  return values;
}

}  // namespace

OrdinarySteps::OrdinarySteps(nn::Module& model, nn::Optimizer& optimizer, const Dataset& data,
                             const TrainOptions& options, TrainingLoss& loss)
    : optimizer_(optimizer),
      options_(options.engine),
      loss_(loss),
      ranks_(ranks_or_one(options.engine.ranks)),
      batch_(std::max<std::int64_t>(1, std::llround(options.engine.logical_batch))),
      batches_(data.size(), batch_, options.engine.seed),
      accumulation_(accumulation_of(options.engine, model, *ranks_)) {}

std::vector<std::int64_t> OrdinarySteps::own_rows(std::span<const std::int64_t> samples) const {
  const auto rank = static_cast<std::size_t>(ranks_->rank());
  const auto ranks = static_cast<std::size_t>(ranks_->size());
  const std::size_t begin = samples.size() * rank / ranks;
  return loss_.rows_of(samples.subspan(begin, samples.size() * (rank + 1) / ranks - begin));
}

std::optional<std::int64_t> OrdinarySteps::max_rows() const {
  const auto max = accumulation_.physical_batch();
  if (!max) return std::nullopt;
  return std::min(*max, loss_.views() * batch_);
}

std::optional<StepReport> OrdinarySteps::next_step() {
  if (step_ >= options_.steps) return std::nullopt;
  memory::PhaseProfiler& clock = accumulation_.phases();
  clock.enter("sample");
  const std::vector<std::int64_t> batch = batches_.next(), next = batches_.peek();
  const std::vector<std::int64_t> rows = own_rows(batch);
  loss_.begin_step(step_, [this] { return max_rows(); });
  loss_.prefetch(rows, own_rows(next));
  const memory::Accumulation::Result result = accumulation_.mean_gradient(
      [&](Tape& tape, std::span<const std::int64_t> part) { return loss_(tape, part); }, rows,
      optimizer_, {.seed = options_.seed, .step = static_cast<std::uint64_t>(step_)});
  clock.enter("update");
  optimizer_.step(result.gradients);
  clock.stop();
  ++step_;
  statistics_ = {};
  if (ranks_->rank() == 0) {  // the sum is of all ranks
    statistics_.loss_sum = result.loss_sum;
    statistics_.rows = statistics_.units = std::ssize(batch) * loss_.views();
  }
  return StepReport{.step = step_, .statistics = &statistics_};
}

TensorFile OrdinarySteps::state() const {
  const auto [epoch, row] = batches_.position();
  TensorFile file;
  file.metadata[key] = nlohmann::json{{names[0], step_}, {names[1], epoch}, {names[2], row}}.dump();
  file.metadata[secret_key] = "of training without privacy; publish the model alone";
  return file;
}

void OrdinarySteps::load_state(const TensorFile& file) {
  const auto [step, epoch, row] =
      broadcast(*ranks_, "ordinary training: state", [&] { return entries_of(file); });
  batches_.seek({epoch, row});
  step_ = step;
}

}  // namespace sotto
