#include "samples/memory_profile/run.h"

#include <memory>
#include <numeric>

#include "autograd/ops.h"
#include "dp/engine/engine.h"
#include "memory/accumulation.h"
#include "nn/data/batch_loader.h"
#include "samples/models/registry.h"

namespace sotto::memory_profile {

namespace {

constexpr std::size_t curve_points = 400;

std::unique_ptr<nn::Optimizer> make_optimizer(const std::string& name, nn::Module& model) {
  if (name == "adam") return std::make_unique<nn::Adam>(model);
  const double momentum = name == "momentum" ? 0.9 : 0;
  return std::make_unique<nn::Sgd>(model, nn::SgdRule{.learning_rate = 0.01, .momentum = momentum});
}

std::unique_ptr<nn::Module> make_model(const Options& options) {
  std::unique_ptr<nn::Module> model = models::parse_entry(options.model).make();
  model->to(options.device);
  return model;
}

class Training {
 public:
  explicit Training(const Options& options)
      : options_(options),
        entry_(models::parse_entry(options.model)),
        model_(make_model(options)),
        optimizer_(make_optimizer(options.optimizer, *model_)),
        accumulation_(options.memory, *model_),
        loader_(data_, options.device) {
    const models::Examples examples = entry_.random_examples(options.batch);
    data_ = {examples.inputs, examples.labels};
    for (const Tensor& x : {data_.inputs, data_.targets}) x.relabel({.kind = MemoryKind::data});
    if (options.no_privacy) return;
    // Every sample is in every batch, so that each step has the full size.
    EngineOptions how{.noise_multiplier = 1,
                      .delta = 0.1 / static_cast<double>(options.batch),
                      .logical_batch = static_cast<double>(options.batch),
                      .memory = options.memory,
                      .prefetch_rows = [this](auto rows) { loader_.prefetch(rows); },
                      .clip_bound = 1,
                      .passes = options.passes == "ghost" ? ClipPasses::two : ClipPasses::one};
    if (options.clip_groups == "layers")
      how.groups = layer_groups(model_->named_parameters(), how.clip_bound);
    engine_ =
        std::make_unique<Engine>(*model_, *optimizer_, options.batch, ledger_, std::move(how));
  }

  std::optional<memory::Plan> plan() const {
    if (!engine_) return accumulation_.plan();
    const memory::Plan* plan = engine_->memory_plan();
    return plan ? std::optional(*plan) : std::nullopt;
  }
  std::int64_t parameters() { return model_->parameter_count(); }

  void step() {
    const auto loss = [&](Tape& tape, auto rows) { return losses(tape, loader_.batch(rows)); };
    if (engine_) {
      engine_->step(loss);
      return;
    }
    std::vector<std::int64_t> rows(static_cast<std::size_t>(options_.batch));
    std::iota(rows.begin(), rows.end(), 0);
    loader_.prefetch(rows);
    optimizer_->step(accumulation_.mean_gradient(loss, rows, *optimizer_).gradients);
  }

 private:
  Var losses(Tape& tape, const Dataset& batch) {
    return entry_.losses((*model_)(tape.input(batch.inputs)), batch.targets);
  }

  const Options& options_;
  const models::Entry& entry_;
  std::unique_ptr<nn::Module> model_;
  std::unique_ptr<nn::Optimizer> optimizer_;
  memory::Accumulation accumulation_;
  Dataset data_;
  BatchLoader loader_;
  Ledger ledger_;
  std::unique_ptr<Engine> engine_;
};

}  // namespace

StepProfile run(const Options& options) {
  Allocator& bytes = allocator(options.device);
  bytes.set_limit(options.limit);
  Training training(options);
  training.step();  // allocates everything that is kept between steps
  bytes.reset_peak();
  memory::Timeline timeline({.device = options.device});
  training.step();
  timeline.stop();
  check(!timeline.forgot(), "memory_profile: the step allocates too often to be recorded");
  return {.plan = training.plan(),
          .parameters = training.parameters(),
          .statistics = bytes.statistics(),
          .first = timeline.first(),
          .peak = timeline.peak(),
          .curve = timeline.curve(curve_points),
          .kinds = timeline.peak_by(MemoryAxis::kind),
          .ops = timeline.peak_by(MemoryAxis::op),
          .modules = timeline.peak_by(MemoryAxis::module),
          .owners = timeline.peak_labels(),
          .phases = timeline.phases()};
}

}  // namespace sotto::memory_profile
