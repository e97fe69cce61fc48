// Operations and training on every GPU: values, gradients and per-sample gradients agree with the
// CPU's.
// File tags: [gpu]
#include <deque>

#include "autograd/check/op_run.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"
#include "core/devices.h"
#include "core/random/philox.h"
#include "core/random/secret_random.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/noise/noisy_update_pass.h"
#include "dp/sampling/sampler.h"
#include "kernels/host_device/optimizer_update.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/optim/optimizer.h"
#include "tests/support/dp_models.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

using namespace sotto;
using namespace sotto::testing;

namespace {

Instance on_device(Instance instance, Device device) {
  for (OpInput& input : instance.inputs) input.value = input.value.to(device);
  return instance;
}

void check_same(const Tensor& got, const Tensor& expected) {
  REQUIRE(got.defined() == expected.defined());
  if (got.defined()) check_close(got, values(expected));
}

void check_on(Device device, const OpCase& one) {
  PublicRandom random(31);
  for (int i = 0; i < 3; ++i) {
    const Instance instance = with_loss(one.make(random), random);
    const OpRun expected = run_case(instance, Dtype::f32),
                got = run_case(on_device(instance, device), Dtype::f32);
    check_same(got.output, expected.output);
    CHECK(got.output.device() == device);
    check_same(got.losses, expected.losses);
    for (std::size_t k = 0; k < got.grads.size(); ++k) {
      check_same(got.grads[k], expected.grads[k]);
      REQUIRE(got.uses[k].size() == expected.uses[k].size());
      if (got.uses[k].empty()) continue;
      check_same(rows_of_uses(got.uses[k]), rows_of_uses(expected.uses[k]));
      const PerSampleGrad &f = got.uses[k][0], &g = expected.uses[k][0];
      // Sums in double of products in float.
      check_same(to_dtype(dot(f, f), Dtype::f32), to_dtype(dot(g, g), Dtype::f32));
      check_same(f.sum(), g.sum());
      const Tensor weights = full({f.samples()}, 0.5, Dtype::f64);
      check_same(f.sum(weights), g.sum(weights));
    }
  }
}

// The parameters after three private steps on a device, with seeded noise.
std::vector<double> trained_on(Device device, NormMethod norm_method) {
  nn::manual_seed(5);
  nn::Sequential model = small_network();
  model.to(device);
  nn::Adam optimizer(model, {.learning_rate = 0.05});
  Ledger ledger;
  FullBatchSampler sampler(6);
  Clipper clipper(flat_group(model.parameters(), 0.5), {.norm_method = norm_method});
  GaussianMechanism mechanism(0.7, SecretRandom::insecure_seeded(4));
  PublicRandom random(9);
  for (int step = 0; step < 3; ++step) {
    const Batch batch = random_batch(6, random);
    Tape tape({.private_data = true});
    const Var logits = model(tape.input(batch.images.to(device)));
    CHECK(logits.value().device() == device);
    clipper.add(tape, cross_entropy(logits, batch.targets.to(device)));
    mechanism.update(clipper.finish(sampler.draw()), ledger, optimizer);
  }
  std::vector<double> all;
  for (Parameter* parameter : model.parameters()) {
    CHECK(parameter->value.device() == device);
    for (const double v : values(parameter->value)) all.push_back(v);
  }
  return all;
}

// Sums of several shapes, one of them not row-major, and their parameters.
struct Sums {
  std::deque<Parameter> parameters;
  Gradients sums;

  explicit Sums(Device device) {
    PublicRandom random(12);
    for (const Shape& shape : {Shape{3, 700}, Shape{5}, Shape{4, 30}, Shape{1}})
      parameters.emplace_back(nn::random_uniform(shape, -1, 1, random).to(device));
    for (Parameter& parameter : parameters)
      sums.push_back(
          {&parameter, nn::random_uniform(parameter.value.shape(), -2, 2, random).to(device)});
    Tensor& turned = sums[2].second;
    turned = contiguous(turned.transpose(0, 1)).transpose(0, 1);
  }
  std::vector<double> released() const {
    return all([](const auto& sum) { return sum.second; });
  }
  std::vector<double> moved() const {
    return all([](const auto& sum) { return sum.first->value; });
  }

 private:
  template <class F>
  std::vector<double> all(F&& f) const {
    std::vector<double> y;
    for (const auto& sum : sums) {
      for (const double v : values(f(sum))) y.push_back(v);
    }
    return y;
  }
};

}  // namespace

TEST_CASE("secret noise on a device has the CPU's bits, one array after the other") {
  const std::vector<std::int64_t> counts{1, 7, 0, 8, 1024, 1025, 4000};
  for (const double stddev : {0.3, 5.0, 1e9}) {
    const RoundedGaussian gaussian(stddev);
    SecretRandom random = SecretRandom::insecure_seeded(3);
    ChaChaStream stream = random.reserve(5);
    stream.block =
        (std::uint64_t{1} << 32) - 100;  // carries into the other word of the block number
    std::uint64_t blocks = 0;
    for (const std::int64_t count : counts)
      blocks += RoundedGaussian::blocks_for(static_cast<std::size_t>(count));
    const auto room = static_cast<std::int64_t>(8 * blocks);
    // From an element of memory on that begins a pack of two, or not.
    const auto drawn = [&](std::int64_t first) {
      const Tensor y = Tensor::empty({first + room}, Dtype::i64).slice(0, first, first + room);
      backend(cpu).rounded_gaussian(gaussian, stream, counts, y.view());
      std::vector<std::int64_t> all;
      std::int64_t at = 0;
      for (const std::int64_t count : counts) {
        const auto part = y.slice(0, at, at + count).to_vector<std::int64_t>();
        all.insert(all.end(), part.begin(), part.end());
        at += (count + 7) / 8 * 8;
      }
      return all;
    };
    const std::vector<std::int64_t> expected = drawn(0);
    CHECK(expected.size() == 6065);
    for_each_device_code([&] {
      for (const std::int64_t first : {0, 1}) {
        const bool same = drawn(first) == expected;
        CHECK(same);
      }
    });
  }
}

namespace {

// Arrays for all rules, with up to three states each, and the tensors that they update.
struct Updates {
  std::vector<Tensor> tensors;
  std::vector<UpdateArray> arrays;

  Updates(Random& random, Dtype dtype, bool noisy, bool first) {
    constexpr int states[UpdateRules::size] = {1, 3, 3, 1, 2, 2, 2, 0};
    for (int rule = 0; rule < UpdateRules::size; ++rule) {
      const std::int64_t count = between(random, rule == 3 ? 0 : 1, 50);
      const auto some = [&] {
        tensors.push_back(full({count}, 0.1, dtype));
        axpby(0.05, random_tensor(random, {count}, dtype), 1, tensors.back());
        return tensors.back().view().data;
      };
      UpdateArray array{.rule = rule, .dtype = dtype, .count = count, .first = first};
      array.constants = {.rate = 0.1,
                         .decay = 0.01,
                         .decoupled_decay = 0.9,
                         .momentum = 0.8,
                         .one_minus_dampening = 0.7,
                         .beta2 = 0.9,
                         .correction = 1.2,
                         .offset = 0.001,
                         .eps = 1e-3,
                         .nesterov = first,
                         .maximize = !first,
                         .centered = noisy};
      array.start = rule == 3 ? 0.5 : 0;
      array.value = some();
      array.gradient = some();
      for (int k = 0; k < states[rule]; ++k) array.state[k] = some();
      if (noisy) {
        tensors.push_back(
            to_dtype(scale(random_tensor(random, {count}, Dtype::f64), 9), Dtype::i64));
        array.noise = tensors.back().view().as<std::int64_t>();
        array.spacing = 0x1p-5;
        array.divisor = 3;
      }
      arrays.push_back(array);
    }
  }
};

}  // namespace

TEST_CASE("on a device: all update rules in one launch, with noise and without") {
  for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
    for (int round = 0; round < 8; ++round) {
      const bool noisy = round % 2 == 1, first = round / 2 % 2 == 1;
      const auto seed = static_cast<unsigned>(57 + round);
      Random random(seed);
      const Updates expected(random, dtype, noisy, first);
      backend(cpu).update(expected.arrays, zeros({update_faults}, Dtype::i32).view());
      for_each_device_code([&] {
        Random again(seed);
        const Updates got(again, dtype, noisy, first);
        const Tensor faults = zeros({update_faults}, Dtype::i32);
        backend(cpu).update(got.arrays, faults.view());
        for (std::size_t k = 0; k < got.tensors.size(); ++k)
          check_close(to_dtype(got.tensors[k], dtype), values(expected.tensors[k]));
        CHECK(faults.to_vector<std::int32_t>() == std::vector<std::int32_t>{0, 0});
      });
    }
  }
}

TEST_CASE("on a device: an element that is NaN or becomes infinite is not updated") {
  for_each_device_code([] {
    const Tensor value = full({3}, 1),
                 noise = Tensor::from(std::vector<std::int64_t>{1, 0, 0}, {3});
    const Tensor gradient = Tensor::from({1, std::nan(""), 3e38}, {3}, Dtype::f32);
    const Tensor faults = zeros({update_faults}, Dtype::i32);
    UpdateArray array{.rule = UpdateRules::index<SgdStep>(),
                      .constants = {.rate = 1},
                      .count = 3,
                      .value = value.view().data,
                      .gradient = gradient.view().data,
                      .noise = noise.view().as<std::int64_t>(),
                      .spacing = 0x1p100,
                      .divisor = 0.5};
    backend(cpu).update(std::span(&array, 1), faults.view());
    CHECK(values(value)[0] == 1 - 2 * 0x1p100);
    CHECK(value.select(0, 1).item() == 1);
    CHECK(value.select(0, 2).item() == 1);
    CHECK(faults.to_vector<std::int32_t>() == std::vector<std::int32_t>{1, 1});
  });
}

TEST_CASE("noise drawn on a GPU and the released sums have the CPU's bits") {
  const NoiseGrid grid{0x1p-24, 1e6};
  const RoundedGaussian gaussian(grid.stddev);
  SecretRandom random = SecretRandom::insecure_seeded(8);
  Sums expected(cpu);
  NoisyUpdate(expected.sums, expected.sums, 7)
      .on_cpu(grid, [&](NoisePlace, std::span<std::int64_t> noise) {
        gaussian.fill(random, noise);
        return noise;
      });
  for (const DeviceInfo& info : devices()) {
    if (info.device == cpu) continue;
    for (const std::int64_t max_draws : {std::int64_t{1024}, std::int64_t{1} << 22}) {
      Sums got(info.device);
      SecretRandom same = SecretRandom::insecure_seeded(8);
      NoisyUpdate(got.sums, got.sums, 7)
          .on_gpu(grid, {.gaussian = gaussian, .random = same, .max_draws = max_draws});
      CHECK(got.released() == expected.released());
      CHECK(got.moved() == Sums(cpu).moved());
    }
  }
}

TEST_CASE("on a GPU, noise and every rule's step in one pass equal the two passes") {
  const NoiseGrid grid{0x1p-24, 1e6};
  const RoundedGaussian gaussian(grid.stddev);
  for (const DeviceInfo& info : devices()) {
    if (info.device == cpu) continue;
    const auto check_rule = [&]<class Optimizer>(auto rule, std::type_identity<Optimizer>) {
      Sums together(info.device), apart(info.device);
      const auto group = [&](Sums& s) {
        std::vector<Parameter*> all;
        for (Parameter& parameter : s.parameters) all.push_back(&parameter);
        return std::vector<typename Optimizer::Group>{{all, rule}};
      };
      Optimizer one(group(together)), other(group(apart));
      SecretRandom first = SecretRandom::insecure_seeded(8),
                   second = SecretRandom::insecure_seeded(8);
      for (int step = 0; step < 2; ++step) {
        NoisyUpdate update(together.sums, together.sums, 7);
        update.make_step(one, 0.5);
        update.on_gpu(grid, {gaussian, first});
        NoisyUpdate(apart.sums, apart.sums, 7).on_gpu(grid, {gaussian, second});
        other.step(apart.sums, 0.5);
        CHECK(together.moved() == apart.moved());
        CHECK(together.released() == apart.released());
      }
    };
    check_rule(nn::SgdRule{.momentum = 0.9}, std::type_identity<nn::Sgd>{});
    check_rule(nn::DpAdamRule{}, std::type_identity<nn::DpAdam>{});
    check_rule(nn::LambRule{}, std::type_identity<nn::Lamb>{});  // needs whole parameters
  }
}

TEST_CASE("a sum on a GPU that is not a number is refused") {
  const NoiseGrid grid{0x1p-24, 1e6};
  const RoundedGaussian gaussian(grid.stddev);
  SecretRandom random = SecretRandom::insecure_seeded(8);
  for (const DeviceInfo& info : devices()) {
    if (info.device == cpu) continue;
    Parameter parameter(zeros({3}));
    const Gradients sums{
        {&parameter, Tensor::from({1, std::nan(""), 2}, {3}, Dtype::f32).to(info.device)}};
    CHECK(throws(
        [&] {
          NoisyUpdate(sums, sums, 1).on_gpu(grid, {gaussian, random});
        },
        "release: a sum is not a number"));
  }
}

TEST_CASE("private training on a GPU is that on the CPU") {
  for (const NormMethod norm_method : {NormMethod::ghost, NormMethod::materialize}) {
    const std::vector<double> expected = trained_on(cpu, norm_method);
    for (const DeviceInfo& info : devices()) {
      if (info.device == cpu) continue;
      INFO(info.name);
      CHECK(distance(trained_on(info.device, norm_method), expected) < 1e-3);
    }
  }
}

TEST_CASE("every operation runs on every GPU, forward and backward, as on the CPU") {
  for (const DeviceInfo& info : devices()) {
    if (info.device == cpu) continue;
    for (const OpCase& one : op_cases()) {
      if (cpu_alone(one)) continue;
      INFO(one.op << ", " << one.what << " on " << info.name);
      CHECK_NOTHROW(check_on(info.device, one));
    }
  }
}

TEST_CASE("labels and word ids on a GPU give the losses of the CPU") {
  PublicRandom random(17);
  std::vector<std::int64_t> ids(24);
  for (std::int64_t& id : ids) id = random.below(5);
  const Tensor targets = Tensor::from(ids, {4, 6});
  const Tensor scores = nn::random_uniform({4, 5, 6}, -2, 2, random);
  const Tensor table = nn::random_uniform({5, 3}, -1, 1, random);
  const auto losses = [&](Device device, const CrossEntropyOptions& options) {
    Tape tape;
    const Var x = tape.input(scores.to(device), 0, true);
    const Var y = cross_entropy(x, targets.to(device), options);
    SumSink sums;
    tape.backward(y, sums);
    return std::pair(y.value(), tape.grad(x));
  };
  const auto learned = [&](Device device) {
    Parameter words(table.to(device));
    Tape tape({.private_data = true});
    const Var y = embedding(tape.use(words), tape.input(targets.to(device)), 2);
    CollectSink rows;
    tape.backward(sum_per_sample(square(y)), rows);
    return rows_of_uses(rows.uses(words));
  };
  for (const DeviceInfo& info : devices()) {
    if (info.device == cpu) continue;
    const Tensor weights = Tensor::from({1, 2, 0.5, 1, 3}, {5}, Dtype::f32);
    for (const CrossEntropyOptions& options :
         {CrossEntropyOptions{.label_smoothing = 0.2, .ignore_index = 3},
          CrossEntropyOptions{.ignore_index = 3, .class_weights = weights},
          CrossEntropyOptions{.label_smoothing = 0.2, .class_weights = weights}}) {
      const auto got = losses(info.device, options), expected = losses(cpu, options);
      check_same(got.first, expected.first);
      check_same(got.second, expected.second);
    }
    check_same(learned(info.device), learned(cpu));
  }
}

TEST_CASE("an invalid class on a GPU makes its own loss NaN, and no other") {
  for (const DeviceInfo& info : devices()) {
    if (info.device == cpu) continue;
    for (const std::int64_t wrong : {4, -1}) {
      Tape tape;
      const Var x = tape.input(full({3, 4}, 0.5).to(info.device), 0, true);
      const Tensor targets = Tensor::from(std::vector<std::int64_t>{1, wrong, 2}, {3});
      const Var y = cross_entropy(x, targets.to(info.device), {.label_smoothing = 0.2});
      SumSink sums;
      tape.backward(y, sums);
      const std::vector<double> losses = values(y.value()), dx = values(tape.grad(x));
      for (std::size_t k = 0; k < 3; ++k) {
        CHECK(std::isnan(losses[k]) == (k == 1));
        CHECK(std::isnan(dx[4 * k]) == (k == 1));
      }
    }
  }
}
