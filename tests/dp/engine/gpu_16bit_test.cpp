// Private training in 16 bits on every GPU: f32 weights, loss scales, checkpoints, captured steps,
// units of several rows, and attention with padding masks.
// File tags: [gpu]
#include <cmath>

#include "autograd/ops.h"
#include "autograd/per_sample/grouping.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper_state.h"
#include "dp/engine/engine.h"
#include "dp/engine/training_checkpoint.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"
#include "tests/support/captured_setup.h"
#include "tests/support/ledger_files.h"

namespace sotto {
namespace {

constexpr Dtype narrow_types[] = {Dtype::bf16, Dtype::f16};
constexpr std::int64_t samples = 6;

double rounding(Dtype dtype) { return dtype == Dtype::bf16 ? 0x1p-8 : 0x1p-11; }

Batch some_batch() {
  PublicRandom random(21);
  return random_batch(samples, random);
}

std::vector<double> flat_values(const Gradients& gradients) {
  std::vector<double> all;
  for (const auto& [parameter, tensor] : gradients) {
    for (const double v : to_dtype(tensor, Dtype::f64).to_vector<double>()) all.push_back(v);
  }
  return all;
}

double norm(const std::vector<double>& x) { return distance(x, std::vector<double>(x.size())); }

// What a clipper makes of one batch of a new network.
struct Clipped {
  std::vector<double> sums;
  ClipStatistics statistics;
  std::string capture_failure_reason;
};

struct How {
  Dtype precision;
  double loss_scale = 1;
  const Grouping* units = nullptr;
  bool captured = false;
  ClipPasses passes = ClipPasses::one;
};

Clipped clip(Device device, const How& how) {
  Setup s(device, samples);
  Clipper clipper(flat_group(s.model.parameters(), 0.3), {}, how.passes);
  clipper.set_loss_scale(how.loss_scale);
  const std::vector<Tensor> batch = on_device(device, tensors(some_batch()));
  Clipped y;
  // The second time a captured loss is replayed.
  for (int round = 0; round < 2; ++round) {
    clipper.discard();
    Tape tape({.private_data = true, .precision = how.precision});
    clipper.add(tape, how.captured ? s.captured(tape, batch) : s.plain(tape, batch), how.units);
    y = {flat_values(clipper.clipped_sums()), clipper.statistics(),
         clipper.state().capture_failure_reason()};
  }
  return y;
}

TEST_CASE("in 16 bits a GPU clips what the CPU clips, units of several rows too") {
  const Grouping users{.unit_of_row = {0, 1, 0, 2, 1, 0}, .units = 3};
  for_each_gpu([&](Device device) {
    for (const Dtype dtype : narrow_types) {
      for (const Grouping* units : {static_cast<const Grouping*>(nullptr), &users}) {
        for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
          CAPTURE(name(dtype), units != nullptr, static_cast<int>(passes));
          const How how{.precision = dtype, .loss_scale = 16, .units = units, .passes = passes};
          const Clipped got = clip(device, how), expected = clip(cpu, how);
          CHECK(distance(got.sums, expected.sums) < 8 * rounding(dtype) * norm(expected.sums));
          CHECK(got.statistics.units == (units ? 3 : samples));
          CHECK(got.statistics.not_finite == 0);
          CHECK(norm(got.sums) <= 0.3 * static_cast<double>(got.statistics.units));
        }
      }
    }
  });
}

TEST_CASE("a loss scale in 16 bits leaves a GPU's clipped sums, and what overflows adds nothing") {
  for_each_gpu([](Device device) {
    const Clipped plain = clip(device, {.precision = Dtype::bf16}),
                  scaled = clip(device, {.precision = Dtype::bf16, .loss_scale = 0x1p12});
    CHECK(distance(plain.sums, scaled.sums) < 1e-6 * norm(plain.sums));
    const Clipped beyond = clip(device, {.precision = Dtype::f16, .loss_scale = 0x1p24});
    CHECK(norm(beyond.sums) == 0);
    CHECK(beyond.statistics.not_finite == samples);
  });
}

TEST_CASE("a captured step in 16 bits has the plain one's bits") {
  for_each_gpu([](Device device) {
    for (const Dtype dtype : narrow_types) {
      const How how{.precision = dtype, .loss_scale = 8};
      How replayed = how;
      replayed.captured = true;
      const Clipped plain = clip(device, how), captured = clip(device, replayed);
      CHECK(captured.capture_failure_reason.empty());
      CHECK(captured.sums == plain.sums);
      CHECK(captured.statistics.norms == plain.statistics.norms);
    }
  });
}

// Training whose batches are all samples.
struct GpuTraining {
  GpuTraining(Device device, Dtype precision, Ledger& ledger)
      : setup(device, samples),
        batch(on_device(device, tensors(some_batch()))),
        optimizer(setup.model, {.learning_rate = 0.05}),
        engine(setup.model, optimizer, samples, ledger, options(precision)) {}

  static EngineOptions options(Dtype precision) {
    EngineOptions y{.noise_multiplier = 1,
                    .sampling = Sampling::full_batch,
                    .logical_batch = static_cast<double>(samples),
                    .memory = {.physical_batch = samples, .precision = precision}};
    if (precision == Dtype::f16) {
      // The scale moves by a released count, whose noise must cover six samples.
      y.loss_scaling = {.adjust = memory::LossScaling::Adjust::on_release, .first = 64};
      y.adaptive_clipping = AdaptiveClipping{.unclipped_count_stddev = 10};
    }
    return y;
  }
  void step() {
    engine.step(
        [this](Tape& tape, std::span<const std::int64_t>) { return setup.plain(tape, batch); });
  }
  std::vector<double> weights() {
    std::vector<double> all;
    for (Parameter* parameter : setup.model.parameters()) {
      CHECK(parameter->value.dtype() == Dtype::f32);
      for (const float v : parameter->value.to_vector<float>()) all.push_back(v);
    }
    return all;
  }

  Setup setup;
  std::vector<Tensor> batch;
  nn::Adam optimizer;
  Engine engine;
};

TEST_CASE("training in 16 bits on a GPU keeps f32 weights, and continues from its checkpoint") {
  for_each_gpu([](Device device) {
    for (const Dtype dtype : narrow_types) {
      CAPTURE(name(dtype));
      const Place place;
      const std::string file = place.path() + ".model";
      std::vector<double> weights, initial;
      double loss_scale = 0;
      {
        Ledger ledger = Ledger::create(place.path());
        GpuTraining t(device, dtype, ledger);
        initial = t.weights();
        for (int k = 0; k < 3; ++k) t.step();
        save_checkpoint(file, t.setup.model, t.optimizer, t.engine, ledger, nullptr);
        weights = t.weights();
        loss_scale = t.engine.loss_scale().value();
      }
      CHECK(distance(weights, initial) > 0);
      Ledger ledger = Ledger::resume(place.path(), checkpoint_mark(file));
      GpuTraining t(device, dtype, ledger);
      load_checkpoint(file, t.setup.model, t.optimizer, t.engine, nullptr);
      CHECK(t.weights() == weights);
      CHECK(t.engine.loss_scale().value() == loss_scale);
      CHECK(t.engine.steps_made() == 3);
      t.step();
      CHECK(distance(t.weights(), weights) > 0);
      CHECK(ledger.releases() == 4);
    }
  });
}

TEST_CASE("what a padding mask hides in 16 bits on a GPU changes no clipped gradient") {
  PublicRandom random(4);
  std::vector<float> numbers;
  for (int k = 0; k < 2 * 6 * 16; ++k)
    numbers.push_back(static_cast<float>(random.below(201)) / 100 - 1);
  const Tensor x = Tensor::from(numbers, {2, 6, 16}),
               hidden = Tensor::from(std::vector<std::int64_t>{0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 1},
                                     {2, 6});
  Tensor other = clone(x);
  copy_into(full({}, 3), other.select(0, 0).slice(0, 4, 6));
  copy_into(full({}, -2), other.select(0, 1).slice(0, 3, 6));
  for_each_gpu([&](Device device) {
    for (const Dtype dtype : narrow_types) {
      nn::manual_seed(9);
      nn::MultiheadAttention layer(16, 2, {.batch_first = true});
      layer.to(device);
      // The loss is of the first position, which sees all positions that are not hidden.
      const auto clipped = [&](const Tensor& input_values) {
        Clipper clipper(flat_group(layer.parameters(), 0.5));
        Tape tape({.private_data = true, .precision = dtype});
        const Var input = tape.input(input_values.to(device));
        const Var y =
            layer.forward(input, input, input, {.key_padding = tape.input(hidden.to(device))});
        const Var first = slice(y, 1, 0, 1);
        clipper.add(tape, sum_per_sample(cast(mul(first, first), Dtype::f32)));
        return flat_values(clipper.clipped_sums());
      };
      const std::vector<double> sums = clipped(x);
      CHECK(norm(sums) > 0);
      CHECK(norm(sums) <= 2 * 0.5);
      CHECK(distance(clipped(other), sums) < rounding(dtype) * norm(sums));
    }
  });
}

}  // namespace
}  // namespace sotto
