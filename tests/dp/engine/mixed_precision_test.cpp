// Private training in 16 bits: clipped sums equal those of each sample alone in f64, no sample
// moves them by more than the sensitivity or changes another's part, and loss scales reveal
// nothing.
// File tags: [engine]
#include <algorithm>
#include <cmath>

#include "autograd/sink.h"
#include "core/io/safetensors.h"
#include "core/random/philox.h"
#include "dp/clipping/clip_groups.h"
#include "dp/engine/engine.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/loss_scale.h"
#include "nn/data/digits.h"
#include "nn/init.h"
#include "nn/optim/optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/dp_models.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

constexpr double bound = 0.3;
constexpr Dtype narrow_types[] = {Dtype::bf16, Dtype::f16};

double rounding(Dtype dtype) { return dtype == Dtype::bf16 ? 0x1p-8 : 0x1p-11; }

std::vector<double> doubles(const Gradients& gradients) {
  std::vector<double> values;
  for (const auto& [parameter, tensor] : gradients) {
    for (const double v : to_dtype(tensor, Dtype::f64).to_vector<double>()) values.push_back(v);
  }
  return values;
}

std::vector<double> clipped(nn::Sequential& model, const Batch& batch, Clipper& clipper,
                            Dtype precision) {
  clipper.discard();
  Tape tape({.private_data = true, .precision = precision});
  clipper.add(tape, cross_entropy(model(tape.input(batch.images)), batch.targets));
  return doubles(clipper.clipped_sums());
}

// The clipped sum by definition: each sample alone, in f64.
std::vector<double> by_definition(nn::Sequential& model, const Batch& batch,
                                  const std::vector<ClipGroup>& groups, const ClipRule& rule) {
  model.to(Dtype::f64);
  std::vector<double> total;
  for (std::int64_t n = 0; n < batch.images.size(0); ++n) {
    Tape tape;
    const Tensor image = to_dtype(batch.images.slice(0, n, n + 1), Dtype::f64);
    SumSink sink;
    tape.backward(cross_entropy(model(tape.input(image)), batch.targets.slice(0, n, n + 1)), sink);
    std::vector<double> values;
    for (const ClipGroup& group : groups) {
      Gradients own;
      for (const auto& [parameter, gradient] : sink.gradients()) {
        if (std::find(group.parameters.begin(), group.parameters.end(), parameter) !=
            group.parameters.end())
          own.insert(own.begin(), {parameter, gradient});
      }
      std::vector<double> part = doubles(own);
      const double norm = distance(part, std::vector<double>(part.size()));
      for (const double v : part) values.push_back(v * rule.factor(norm, group.bound, 0));
    }
    total.resize(values.size());
    for (std::size_t k = 0; k < values.size(); ++k) total[k] += values[k];
  }
  model.to(Dtype::f32);
  return total;
}

void poison(Batch& batch, std::int64_t sample, float value) {
  for (int i = 0; i < 36; ++i) batch.images.data<float>()[sample * 36 + i] = value;
}

struct Training {
  Dataset data = make_digits(240, 1);
  nn::Sequential model{nn::Flatten(), nn::Linear(784, 12), nn::Tanh(), nn::Linear(12, 10)};
  nn::Sgd optimizer{model, {.learning_rate = 0.3}};
  Ledger ledger;
  double factor = 1;  // of every loss

  Var losses(Tape& tape, std::span<const std::int64_t> rows) {
    const Dataset batch = data.batch(rows);
    return affine(cross_entropy(model(tape.input(batch.inputs)), batch.targets), factor, 0);
  }
  Engine::Loss loss() {
    return [this](Tape& tape, std::span<const std::int64_t> rows) { return losses(tape, rows); };
  }
};

EngineOptions engine_options(Dtype precision, const memory::LossScaling& scaling = {}) {
  return {.noise_multiplier = 1.0,
          .logical_batch = 120,
          .memory = {.precision = precision},
          .loss_scaling = scaling};
}

TEST_CASE("the clipped sum in 16 bits is that of each sample alone in double, by every policy") {
  nn::manual_seed(1);
  nn::Sequential model = small_network();
  PublicRandom random(2);
  const Batch batch = random_batch(6, random);
  // Each clipped gradient is off by a few roundings of its own norm.
  const double tolerated = 4 * 6 * bound;
  using Kind = ClipRule::Kind;
  for (const Kind kind : {Kind::minimum, Kind::opacus, Kind::auto_s, Kind::normalize, Kind::psac}) {
    for (const bool layers : {false, true}) {
      const auto groups = layers ? layer_groups(model.named_parameters(), bound)
                                 : flat_group(model.parameters(), bound);
      const std::vector<double> exact = by_definition(model, batch, groups, {.kind = kind});
      for (const NormMethod norm_method :
           {NormMethod::automatic, NormMethod::ghost, NormMethod::materialize}) {
        for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
          for (const Dtype precision : narrow_types) {
            CAPTURE(kind, layers, norm_method, passes, name(precision));
            Clipper clipper(groups, {.rule = {.kind = kind}, .norm_method = norm_method}, passes);
            const auto sum = clipped(model, batch, clipper, precision);
            CHECK(distance(sum, exact) <= tolerated * rounding(precision));
            CHECK(distance(sum, exact) > 0);
          }
        }
      }
    }
  }
}

TEST_CASE("a hostile sample in 16 bits changes no bit of what the others add") {
  nn::manual_seed(3);
  nn::Sequential model = small_network();
  PublicRandom random(4);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const Dtype precision : narrow_types) {
    for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
      Clipper clipper(flat_group(model.parameters(), bound), {}, passes);
      for (const float value : {1e30F, 7e4F, 6e4F, nan, inf, 0.0F, 1e-6F, 1e-40F, 3e38F}) {
        CAPTURE(name(precision), passes, value);
        Batch batch = random_batch(5, random);
        poison(batch, 2, value);
        const std::vector<double> all = clipped(model, batch, clipper, precision);
        const std::int64_t dropped = clipper.statistics().not_finite;
        const std::vector<double> rest = clipped(model, without(batch, 2), clipper, precision);
        CHECK(distance(all, rest) <= bound);
        // The rounding of a clip weight times the output gradients of a sample of 1e30 exceeds its
        // gradient.
        CHECK((distance(all, rest) == 0) == (dropped == 1 || value >= 1e30F));
        CHECK(clipper.statistics().not_finite == 0);
        if (!std::isfinite(value)) CHECK(dropped == 1);
        // 7e4 is out of range for f16.
        if (value == 7e4F) CHECK(dropped == (precision == Dtype::f16 ? 1 : 0));
      }
    }
  }
}

TEST_CASE("a loss scale changes what underflows and overflows in 16 bits, and nothing else") {
  nn::manual_seed(5);
  nn::Sequential model = small_network();
  PublicRandom random(6);
  const Batch batch = random_batch(5, random);
  Clipper clipper(flat_group(model.parameters(), bound));
  const std::vector<double> plain = clipped(model, batch, clipper, Dtype::bf16);
  clipper.discard();
  clipper.set_loss_scale(0x1p12);
  const std::vector<double> scaled = clipped(model, batch, clipper, Dtype::bf16);
  for (std::size_t k = 0; k < plain.size(); ++k) CHECK(scaled[k] == Approx(plain[k]).margin(1e-9));

  // Every gradient exceeds 65504: none adds anything, and all are counted.
  clipper.discard();
  clipper.set_loss_scale(0x1p24);
  const std::vector<double> none = clipped(model, batch, clipper, Dtype::f16);
  CHECK(none == std::vector<double>(none.size()));
  CHECK(clipper.statistics().not_finite == 5);

  // Gradients scaled by 2^-24 underflow in f16, unless the loss is scaled.
  const auto small = [&](double scale) {
    clipper.discard();
    clipper.set_loss_scale(scale);
    Tape tape({.private_data = true, .precision = Dtype::f16});
    const Var loss = cross_entropy(model(tape.input(batch.images)), batch.targets);
    clipper.add(tape, affine(loss, 0x1p-24, 0));
    return doubles(clipper.clipped_sums());
  };
  Clipper wide(flat_group(model.parameters(), bound * 1e3));
  std::vector<double> exact = clipped(model, batch, wide, Dtype::f32);
  for (double& value : exact) value *= 0x1p-24;
  const double length = distance(exact, std::vector<double>(exact.size()));
  CHECK(distance(small(1), exact) > 0.3 * length);
  CHECK(distance(small(0x1p16), exact) < 0.01 * length);
  CHECK_THROWS_AS(clipper.set_loss_scale(2), std::invalid_argument);  // in mid-batch
  clipper.discard();
  for (const double scale : {0.0, -2.0, 3.0, 0x1p25, std::nan("")})
    CHECK_THROWS_AS(clipper.set_loss_scale(scale), std::invalid_argument);
}

TEST_CASE("an ordinary loss scale skips what overflowed, falls by halves and grows again") {
  Parameter w(Tensor::from({1, 2}, {2}, Dtype::f32));
  const auto gradients = [&](double value) {
    return Gradients{{&w, Tensor::from({value, 8}, {2}, Dtype::f32)}};
  };
  memory::LossScale scale(
      {.adjust = memory::LossScaling::Adjust::on_overflow, .first = 16, .growth_interval = 2});
  const auto divided = scale.unscaled(gradients(32));
  REQUIRE(divided);
  CHECK((*divided)[0].second.to_vector<float>() == std::vector<float>{2, 0.5});
  CHECK_FALSE(scale.unscaled(gradients(INFINITY)));
  CHECK(scale.value() == 8);
  CHECK(scale.unscaled(gradients(1)));
  CHECK(scale.value() == 8);
  CHECK(scale.unscaled(gradients(1)));
  CHECK(scale.value() == 16);
  CHECK_THROWS_AS(scale.follow(1), std::invalid_argument);
  memory::LossScale fixed({.first = 4});
  CHECK(fixed.unscaled(gradients(INFINITY)));
  CHECK(fixed.value() == 4);
  CHECK(memory::LossScale({}, Dtype::f16).value() == 256);
  CHECK(memory::LossScale({}, Dtype::bf16).value() == 1);
  CHECK_THROWS_AS(memory::LossScale({.first = 3}), std::invalid_argument);
  CHECK_THROWS_AS(memory::LossScale({.first = 2, .min = 4}), std::invalid_argument);
  CHECK_THROWS_AS(memory::LossScale({.growth_interval = 0}), std::invalid_argument);
}

TEST_CASE("private training refuses a loss scale that would reveal data") {
  Training t;
  const auto refuses = [&](const EngineOptions& options, const char* why) {
    return throws([&] { Engine(t.model, t.optimizer, 240, t.ledger, options); }, why);
  };
  using Adjust = memory::LossScaling::Adjust;
  CHECK(refuses(engine_options(Dtype::f16, {.adjust = Adjust::on_overflow}), "on_overflow"));
  CHECK(refuses(engine_options(Dtype::f64), "precision f64"));
  memory::LossScale released({.adjust = Adjust::on_release});
  CHECK_THROWS_AS(released.unscaled({}), std::invalid_argument);
}

TEST_CASE("a private loss scale follows the released count, at the cost of the plain step") {
  nn::manual_seed(7);
  Training t, plain;
  const memory::LossScaling scaling{
      .adjust = memory::LossScaling::Adjust::on_release, .first = 0x1p20, .growth_interval = 3};
  t.optimizer.set_learning_rate(0);
  Engine engine(t.model, t.optimizer, 240, t.ledger, engine_options(Dtype::f16, scaling));
  Engine other(plain.model, plain.optimizer, 240, plain.ledger, engine_options(Dtype::f16));
  t.factor = 0x1p12;  // gradients of thousands
  for (int step = 0; step < 4; ++step) {
    CHECK(engine.loss_scale().value() == std::ldexp(1, 20 - step));
    const ClipStatistics& statistics = *engine.step(t.loss()).statistics;
    CHECK(statistics.not_finite == statistics.units);
    other.step(plain.loss());
  }
  // A state contains the scale.
  const TensorFile state = engine.state();
  t.factor = 0x1p-12;
  for (int step = 0; step < 3; ++step) engine.step(t.loss());
  CHECK(engine.loss_scale().value() == 0x1p17);
  for (int step = 0; step < 3; ++step) other.step(plain.loss());
  CHECK(engine.epsilon() == other.epsilon());
  CHECK(other.loss_scale().value() == 256);
  engine.load_state(state);
  CHECK(engine.loss_scale().value() == 0x1p16);
  CHECK(engine.clipper().loss_scale() == 0x1p16);
}

TEST_CASE("training in 16 bits reaches nearly the loss of f32, private and not") {
  const auto trained = [](Dtype precision, bool privately) {
    nn::manual_seed(8);
    Training t;
    std::vector<std::int64_t> rows(240);
    for (std::size_t k = 0; k < rows.size(); ++k) rows[k] = static_cast<std::int64_t>(k);
    EngineOptions options = engine_options(precision);
    options.noise_multiplier = 1e-3;
    options.logical_batch = 240;
    Engine engine(t.model, t.optimizer, 240, t.ledger, options);
    for (int step = 0; step < 25; ++step) {
      if (privately) {
        engine.step(t.loss());
        continue;
      }
      Tape tape({.precision = precision});
      SumSink sink;
      tape.backward(t.losses(tape, rows), sink, 1.0 / 240);
      t.optimizer.step(sink.gradients());
    }
    Tape tape({.training = false});
    return sum(t.losses(tape, rows).value()).item() / 240;
  };
  for (const bool privately : {false, true}) {
    const double wide = trained(Dtype::f32, privately);
    CHECK(wide < 2.1);
    for (const Dtype precision : narrow_types)
      CHECK(trained(precision, privately) == Approx(wide).epsilon(0.01));
  }
}

}  // namespace
}  // namespace sotto
