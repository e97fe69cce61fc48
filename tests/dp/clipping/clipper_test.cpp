// The clip bound holds: for every rule, norm method and number of passes, and for hostile samples.
// File tags: [engine]
#include "dp/clipping/clipper.h"

#include <cmath>

#include "autograd/ops.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper_state.h"
#include "dp/sampling/sampler.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "tests/support/catch.h"
#include "tests/support/dp_models.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

struct Setting {
  ClipRule rule;
  NormMethod norm_method;
  ClipPasses passes;
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const auto kind : {ClipRule::Kind::minimum, ClipRule::Kind::opacus, ClipRule::Kind::auto_s,
                          ClipRule::Kind::normalize, ClipRule::Kind::psac}) {
    for (const NormMethod norm_method :
         {NormMethod::automatic, NormMethod::ghost, NormMethod::materialize}) {
      for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two})
        all.push_back({{.kind = kind}, norm_method, passes});
    }
  }
  return all;
}

Clipper flat_clipper(nn::Sequential& model, double bound, const Setting& s) {
  return Clipper(flat_group(model.parameters(), bound),
                 {.rule = s.rule, .norm_method = s.norm_method}, s.passes);
}

// One group for each module's parameters, with increasing bounds.
std::vector<ClipGroup> growing_groups(nn::Sequential& model, double bound) {
  std::vector<ClipGroup> groups;
  for (int i = 0; i < model.size(); ++i) {
    if (!model[i].parameters().empty()) groups.push_back({model[i].parameters(), bound * (i + 1)});
  }
  return groups;
}

void poison(Batch& batch, std::int64_t sample, float value) {
  for (int i = 0; i < 36; ++i) batch.images.data<float>()[sample * 36 + i] = value;
}

TEST_CASE("leaving one sample out changes the clipped sum by at most the bound") {
  nn::manual_seed(1);
  nn::Sequential model = small_network();
  PublicRandom random(7);
  for (const Setting& setting : settings()) {
    Clipper clipper = flat_clipper(model, 0.3, setting);
    const Batch batch = random_batch(6, random);
    const std::vector<double> all = clipped_sum(model, batch, clipper);
    for (std::int64_t left = 0; left < 6; ++left) {
      const std::vector<double> rest = clipped_sum(model, without(batch, left), clipper);
      CHECK(distance(all, rest) <= 0.3);
      CHECK(distance(all, rest) > 0);
    }
  }
}

TEST_CASE("a hostile sample changes the sum by at most the bound, and no other sample's part") {
  nn::manual_seed(2);
  nn::Sequential model = small_network();
  PublicRandom random(8);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  for (const Setting& setting : settings()) {
    Clipper clipper = flat_clipper(model, 0.3, setting);
    for (const float value : {1e30f, -1e30f, nan, inf, 0.0f, 1e-30f, 3e38f, 1e10f}) {
      Batch batch = random_batch(5, random);
      poison(batch, 2, value);
      const std::vector<double> all = clipped_sum(model, batch, clipper);
      const std::vector<double> rest = clipped_sum(model, without(batch, 2), clipper);
      CHECK(distance(all, rest) <= 0.3);
      for (const double v : all) REQUIRE(std::isfinite(v));
    }
  }
}

namespace {

// The clipped sum of a linear layer that is used once, or twice with one weight, over given inputs
// and output gradients [n, t, ...].
struct Factors {
  Tensor x, dy;
};
std::vector<double> clipped_sum(const std::vector<Factors>& uses, const Setting& setting) {
  Parameter w(zeros({uses[0].dy.size(2), uses[0].x.size(2)}));
  Clipper clipper(flat_group({&w}, 1), {setting.rule, setting.norm_method}, setting.passes);
  Tape tape({.private_data = true});
  std::optional<Var> loss;
  for (const Factors& f : uses) {
    const Var y = sum_per_sample(linear(tape.input(f.x), tape.use(w)) * tape.input(f.dy));
    loss = loss ? *loss + y : y;
  }
  clipper.add(tape, *loss);
  return to_dtype(clipper.clipped_sums()[0].second, Dtype::f64).to_vector<double>();
}

Tensor normal_values(PublicRandom& random, const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (float& value : values) value = static_cast<float>(random.normal());
  return Tensor::from(values, shape);
}

// The change of the sum when a sample is replaced by zeros.
double influence(const std::vector<Factors>& uses, const Setting& setting, std::int64_t n = 0) {
  std::vector<Factors> without;
  for (const Factors& f : uses) {
    without.push_back({clone(f.x), clone(f.dy)});
    copy_into(zeros({}), without.back().x.select(0, n));
    copy_into(zeros({}), without.back().dy.select(0, n));
  }
  const std::vector<double> a = clipped_sum(uses, setting), b = clipped_sum(without, setting);
  double square = 0;
  for (std::size_t i = 0; i < a.size(); ++i) square += (a[i] - b[i]) * (a[i] - b[i]);
  return std::sqrt(square);
}

}  // namespace

// The norm of what remains after cancellation is exact and small; the rounding of large terms is
// not.
TEST_CASE("a sample whose terms cancel moves the sum by at most the bound") {
  PublicRandom random(15);
  for (const Setting& setting : settings()) {
    for (const float scale : {1e-6f, 1.0f, 1e6f, 1e10f}) {
      for (const std::int64_t o : {1, 64}) {
        const std::vector<float> x{1 * scale, 1e8f * scale, -1e8f * scale, -1 * scale};
        const Tensor one = Tensor::from(x, {1, 4, 1});
        const Tensor dy = full({3, 4, o}, 1);
        INFO("scale " << scale << ", " << o << " outputs");
        CHECK(influence({{concat({one, zeros({2, 4, 1})}, 0), dy}}, setting) <= 1);
      }
    }
    // A constant feature and output gradients that are odd over the positions.
    for (const double offset : {100.0, 1e4, 1e6}) {
      const Tensor half = normal_values(random, {4, 32, 16});
      const Tensor dy = concat({half, scale(half, -1)}, 1);
      INFO("offset " << offset);
      CHECK(influence({{full({4, 64, 8}, offset), dy}}, setting) <= 1);
    }
    // Two uses of one weight.
    const auto single = [](float value) {
      return concat({full({1, 1, 1}, value), zeros({1, 1, 1})}, 0);
    };
    CHECK(influence(
              {{single(1.0000001f), single(3e9f)}, {single(1.0000002f), single(-2.99999969e9f)}},
              setting) <= 1);
  }
}

// A sample may have a small norm while its terms are large: these must not swamp the digits of
// other samples in the sum.
TEST_CASE("a sample whose terms cancel leaves the parts of others in the sum") {
  constexpr std::int64_t samples = 600, place = 153;
  const auto with = [&](std::int64_t positions, std::int64_t width, float first, float last) {
    const Tensor x = full({samples, positions, width}, 1), here = x.select(0, place);
    copy_into(zeros({}), here);
    copy_into(full({}, first), here.select(0, 0));
    axpby(1, full({width}, last), 1, here.select(0, positions - 1));
    const float slope = 0.3f / static_cast<float>(positions * width);
    const Tensor dy = full({samples, positions, width}, slope);
    copy_into(full({}, 1), dy.select(0, place));
    return Factors{x, dy};
  };
  for (const Setting& setting : settings()) {
    for (const float size : {1e3f, 1e5f, 1e8f}) {
      for (const std::int64_t width : {1, 8}) {
        INFO("terms of " << size << ", width " << width);
        // In two uses of a weight, and in one that the product's blocks may divide anywhere.
        CHECK(influence({with(1, width, size, 0), with(1, width, -size, 0)}, setting, place) <=
              1.002);
        CHECK(influence({with(5, width, size, -size)}, setting, place) <= 1.002);
      }
    }
  }
}

TEST_CASE("a sample of NaN changes nothing but its own count") {
  nn::manual_seed(3);
  nn::Sequential model = small_network();
  PublicRandom random(9);
  for (const Setting& setting : settings()) {
    Clipper clipper = flat_clipper(model, 1, setting);
    Batch batch = random_batch(4, random);
    const std::vector<double> rest = clipped_sum(model, without(batch, 1), clipper);
    CHECK(clipper.statistics().not_finite == 0);
    poison(batch, 1, std::numeric_limits<float>::quiet_NaN());
    const std::vector<double> all = clipped_sum(model, batch, clipper);
    CHECK(clipper.statistics().not_finite == 1);
    CHECK(distance(all, rest) < 1e-6);
  }
}

TEST_CASE("a sample whose terms overflow while its norm is finite is left out, and no other") {
  // Two positions with products +-1e39: the gradient cancels to zero, but single precision
  // overflows.
  Parameter w(Tensor::from(std::vector<float>{1, 1}, {1, 2}));
  Clipper clipper({{{&w}, 1.0}});
  const std::vector<float> x{1e20f, 1e20f, 1e20f, 1e20f, 1, 2, 3, 4};
  const std::vector<float> weights{1e20f, -1e20f, 1, 1};
  Tape tape({.private_data = true});
  const Var y = linear(tape.input(Tensor::from(x, {2, 2, 2})), tape.use(w));
  const Var loss = sum_per_sample(mul(y, tape.input(Tensor::from(weights, {2, 2, 1}))));
  clipper.add(tape, loss);
  const std::vector<double> total = flat(clipper.clipped_sums());
  const double length = std::hypot(4.0, 6.0);
  CHECK(total[0] == Approx(4 / length).epsilon(1e-5));
  CHECK(total[1] == Approx(6 / length).epsilon(1e-5));
}

TEST_CASE("a sample whose Gram products underflow moves the sum by at most the bound", "[gate]") {
  // Inner products of inputs, 6e-46 for each feature, are 0 in single precision; the gradient's
  // norm is sqrt(3).
  constexpr std::int64_t positions = 200, features = 400, outputs = 3;
  constexpr double bound = 0.1;
  for (const Setting& setting : settings()) {
    Parameter w(zeros({outputs, features}));
    Clipper clipper({{{&w}, bound}}, {.rule = setting.rule, .norm_method = setting.norm_method},
                    setting.passes);
    Tape tape({.private_data = true});
    const Var x = tape.input(full({2, positions, features}, 2.5e-23));
    const Var grads = tape.input(full({2, positions, outputs}, 1e19));
    clipper.add(tape, sum_per_sample(mul(linear(x, tape.use(w)), grads)));
    double square = 0;
    for (const double v : flat(clipper.clipped_sums())) square += v * v;
    CHECK(std::sqrt(square) <= 2 * bound);
  }
}

TEST_CASE("a factor that its clip weight makes denormal moves the sum by at most the bound") {
  // Clip weights of 2^-91 and output gradients of 2^-49 give numbers of ten bits, which inputs
  // amplify.
  for (const Setting& setting : settings()) {
    for (const std::int64_t positions : {1, 2}) {
      for (const bool image : {false, true}) {
        for (int round = 0; round < 16; ++round) {
          const double bound = 0x1p-20 * (1 + round / 16.1);
          Parameter w(zeros(image ? Shape{1, 1, 1} : Shape{1, 1}));
          Clipper clipper({{{&w}, bound}},
                          {.rule = setting.rule, .norm_method = setting.norm_method},
                          setting.passes);
          // Gradients that are larger by a factor get clip weights that are smaller by that factor.
          clipper.set_loss_scale(round % 2 == 0 ? 1 : 0x1p24);
          const Shape shape = image ? Shape{1, 1, positions} : Shape{1, positions, 1};
          Tape tape({.private_data = true});
          const Var x = tape.input(full(shape, 0x1p120));
          const Var grads = tape.input(full(shape, 0x1p-49));
          const Var y = image ? conv(x, tape.use(w)) : linear(x, tape.use(w));
          clipper.add(tape, sum_per_sample(mul(y, grads)));
          INFO(positions << ' ' << image << ' ' << round);
          CHECK(std::abs(flat(clipper.clipped_sums())[0]) <= bound);
        }
      }
    }
  }
}

TEST_CASE("a sample whose clip weight makes its factor overflow is left out, and no other") {
  // The first gradient is (0.1, 0.1), from an output gradient of 1e35, which a clip weight of 6e6
  // makes infinite in a product with others.
  Parameter w(Tensor::from(std::vector<float>{1, 1}, {1, 2}));
  Clipper clipper({{{&w}, 1e6}},
                  {.rule = {.kind = ClipRule::Kind::auto_s}, .sum_size = {.block = 2}});
  clipper.state().begin(SumBlocks(std::vector<std::int64_t>{0, 1}, {}, {.units = 2}));
  const std::vector<float> x{1e-36f, 1e-36f, 3, 4}, grads{1e35f, 1};
  Tape tape({.private_data = true});
  const Var y = linear(tape.input(Tensor::from(x, {2, 2})), tape.use(w));
  clipper.add(tape, sum_per_sample(mul(y, tape.input(Tensor::from(grads, {2, 1})))));
  const std::vector<double> total = flat(clipper.clipped_sums());
  CHECK(total[0] == Approx(1e6 * 3 / 5.01).epsilon(1e-5));
  CHECK(total[1] == Approx(1e6 * 4 / 5.01).epsilon(1e-5));
  CHECK(clipper.statistics().not_finite == 1);
}

TEST_CASE("groups of parameters are bounded each, and together by the root of the sum of squares") {
  nn::manual_seed(4);
  nn::Sequential model = small_network();
  PublicRandom random(10);
  for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
    Clipper clipper(growing_groups(model, 0.1), {}, passes);
    const Batch batch = random_batch(5, random);
    const std::vector<double> all = clipped_sum(model, batch, clipper);
    for (std::int64_t left = 0; left < 5; ++left) {
      CHECK(distance(all, clipped_sum(model, without(batch, left), clipper)) <=
            clipper.sensitivity());
    }
    double squares = 0;
    for (const ClipGroup& group : clipper.groups()) squares += group.bound * group.bound;
    CHECK(clipper.sensitivity() == Approx(std::sqrt(squares)));
  }
}

TEST_CASE(
    "one pass and two, any norm method and any split into physical batches give the same sum") {
  nn::manual_seed(5);
  nn::Sequential model = small_network();
  PublicRandom random(11);
  const Batch batch = random_batch(9, random);
  Clipper reference = flat_clipper(model, 0.2, settings()[0]);
  const std::vector<double> expected = clipped_sum(model, batch, reference);
  for (const NormMethod norm_method :
       {NormMethod::automatic, NormMethod::ghost, NormMethod::materialize}) {
    for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
      for (const std::int64_t part : {1, 2, 4, 9}) {
        Clipper clipper = flat_clipper(model, 0.2, {{}, norm_method, passes});
        for (std::int64_t at = 0; at < 9; at += part) {
          const std::int64_t end = std::min<std::int64_t>(9, at + part);
          Tape tape({.private_data = true});
          clipper.add(tape, cross_entropy(model(tape.input(batch.images.slice(0, at, end))),
                                          batch.targets.slice(0, at, end)));
        }
        CHECK(distance(flat(clipper.clipped_sums()), expected) < 1e-5);
        CHECK(clipper.statistics().units == 9);
      }
    }
  }
}

TEST_CASE("clip factors are those of the rules, and never let a norm exceed the bound") {
  using Kind = ClipRule::Kind;
  CHECK(ClipRule{Kind::minimum}.factor(0.5, 1, 0) == 1);
  CHECK(ClipRule{Kind::minimum}.factor(0, 1, 0) == 1);
  CHECK(ClipRule{Kind::minimum}.factor(4, 1, 0) == 0.25);
  CHECK(ClipRule{Kind::opacus}.factor(1, 1, 0) == Approx(1 / 1.000001).epsilon(1e-12));
  CHECK(ClipRule{Kind::auto_s, 0.1}.factor(3, 2, 0) == Approx(2 / 3.1));
  CHECK(ClipRule{Kind::psac, 0.1}.factor(0, 1, 0) == 1);
  CHECK(ClipRule{Kind::psac, 0.1}.factor(0.4, 1, 0) == Approx(1 / 0.6));
  CHECK(ClipRule{Kind::normalize}.factor(0.25, 1, 0) == 4);
  CHECK(ClipRule{Kind::normalize}.factor(0, 1, 0) == 0);
  for (const Kind kind : {Kind::minimum, Kind::opacus, Kind::auto_s, Kind::normalize, Kind::psac}) {
    for (double norm = 1e-30; norm < 1e40; norm *= 7)
      CHECK(ClipRule{kind}.factor(norm, 0.1, 1e-6) * norm <= 0.1);
    CHECK(ClipRule{kind}.factor(std::numeric_limits<double>::infinity(), 1, 0) == 0);
    CHECK(ClipRule{kind}.factor(std::numeric_limits<double>::quiet_NaN(), 1, 0) == 0);
  }
}

TEST_CASE("a gradient that a clipper cannot bound is refused") {
  nn::manual_seed(6);
  nn::Sequential model = small_network();
  for (const auto kind : {ClipRule::Kind::auto_s, ClipRule::Kind::psac}) {
    for (const double gamma : {0.0, -1.0, HUGE_VAL, std::nan("")})
      CHECK_THROWS_AS(Clipper(flat_group(model.parameters(), 1), {.rule = {kind, gamma}}),
                      std::invalid_argument);
  }
  PublicRandom random(12);
  const Batch batch = random_batch(2, random);
  CHECK_THROWS_AS(Clipper(flat_group(model.parameters(), 0)), std::invalid_argument);
  CHECK_THROWS_AS(Clipper(flat_group(model.parameters(), std::nan(""))), std::invalid_argument);
  CHECK_THROWS_AS(Clipper({}), std::invalid_argument);
  CHECK(throws(
      [&] {
        Clipper({{model.parameters(), 1}, {{}, 1}});
      },
      "Clipper: group 1 has no trainable parameter"));
  for (const Dtype narrow : {Dtype::f16, Dtype::bf16}) {
    Parameter half(zeros({2}, narrow));
    CHECK(throws([&] { Clipper(flat_group({&half}, 1)); }, "has to be in f32 or f64"));
  }
  CHECK_THROWS_AS(Clipper({{model.parameters(), 1}, {model.parameters(), 1}}),
                  std::invalid_argument);
  // A parameter outside every group, and a tape that is not private.
  Clipper partial({{model[0].parameters(), 1}});
  Tape tape({.private_data = true});
  const Var loss = cross_entropy(model(tape.input(batch.images)), batch.targets);
  CHECK_THROWS_AS(partial.add(tape, loss), std::invalid_argument);
  Clipper clipper(flat_group(model.parameters(), 1));
  Tape open;
  CHECK_THROWS_AS(clipper.add(open, cross_entropy(model(open.input(batch.images)), batch.targets)),
                  std::invalid_argument);
  // Another number of units than in the batch.
  FullBatchSampler sampler(3);
  Tape again({.private_data = true});
  clipper.discard();
  clipper.add(again, cross_entropy(model(again.input(batch.images)), batch.targets));
  CHECK_THROWS_AS(clipper.finish(sampler.draw()), std::invalid_argument);
}

}  // namespace
}  // namespace sotto
