#include "samples/training/dry_run.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "core/io/utf8.h"
#include "core/ranks/collectives.h"
#include "dp/numerics/directed_rounding.h"
#include "nn/layers/quantized_layers.h"
#include "samples/cli/program.h"
#include "samples/training/summary.h"
#include "samples/training/trained_model.h"

namespace sotto::samples {

namespace {

constexpr int timed_steps = 3;  // after a first one, which plans and allocates

struct Count {
  std::int64_t numbers = 0;
  std::size_t bytes = 0;
  void add(const Tensor& value) {
    numbers += value.numel();
    bytes += value.bytes();
  }
};

std::string mebibytes(std::size_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

void tell_parameters(nn::Module& model) {
  Count trained, frozen;
  for (const Parameter* parameter : model.parameters())
    (parameter->trainable ? trained : frozen).add(parameter->value);
  for (const nn::NamedBlocks& weight : nn::named_blocks(model)) {
    frozen.numbers += weight.blocks->shape.numel();
    frozen.bytes += weight.blocks->bytes.bytes();
  }
  print("trained: {} numbers, {}; frozen: {}, {}\n", trained.numbers, mebibytes(trained.bytes),
        frozen.numbers, mebibytes(frozen.bytes));
}

void tell_privacy(const TrainingRun& run, const Settings& settings, std::int64_t steps) {
  if (run.engine() == nullptr) return print("NO PRIVACY: {} steps\n", steps);
  const Engine& engine = *run.engine();
  print("epsilon {:.4g} for {} steps at delta {:g}, noise multiplier {}; unit: {}\n",
        engine.report().epsilon_planned.value_or(settings.epsilon.value_or(0)), steps,
        settings.delta, noise_text(engine.noise_multiplier()), settings.unit);
}

// Makes some steps and tells their speed; they may be fewer than planned, not more.
void tell_speed(TrainingRun& run, std::int64_t steps) {
  const int made = static_cast<int>(std::min<std::int64_t>(steps, timed_steps + 1));
  std::vector<double> seconds;
  for (int k = 0; k < made; ++k) {
    const auto begin = std::chrono::steady_clock::now();
    if (!run.step()) break;
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  if (seconds.empty()) return print("no step is left within the target epsilon\n");
  if (seconds.size() > 1) seconds.erase(seconds.begin());
  std::ranges::sort(seconds);
  const double median = seconds[seconds.size() / 2];
  std::size_t peak = 0;
  for (const memory::PhaseTotal& phase : run.phases()) peak = std::max(peak, phase.peak_bytes[0]);
  print("{:.3g} steps per second: some {:.0f} s for {} steps; peak of tensors {}\n", 1 / median,
        std::ceil(median * static_cast<double>(steps)), steps, mebibytes(peak));
}

}  // namespace

int dry_run(Task& task, const Options& options, const Data& data,
            const std::shared_ptr<Ranks>& ranks) {
  const auto several = ranks->size() > 1 ? ranks : nullptr;
  const Settings& settings = options.settings;
  const std::int64_t steps = planned_steps(settings);
  const Ledger ledger = Ledger::on_rank_0(several, [&] { return Ledger(header_of(settings)); });
  TrainedModel model(task, settings, data, several);
  const std::unique_ptr<TrainingRun> run = model.run(ledger);
  print("{} training and {} {} samples, {}\n", settings.train_size, settings.test_size,
        held_out(settings), printable(data_text(task.facts())));
  tell_parameters(model.model());
  tell_privacy(*run, settings, steps);
  if (model.options().standardize) run->standardize();
  tell_speed(*run, steps);
  print("a dry run: nothing is saved, and no budget is spent\n");
  return 0;
}

}  // namespace sotto::samples
