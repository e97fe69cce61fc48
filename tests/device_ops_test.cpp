// Operations and training on every GPU there is: values, gradients and per-sample gradients agree
// with the CPU's.
#include "sotto/core/devices.h"
#include "sotto/dp/mechanism.h"
#include "sotto/kernels/compute.h"
#include "sotto/nn/init.h"
#include "sotto/nn/optimizer.h"
#include "sotto/testing/op_run.h"
#include "tests/dp_models.h"
#include "tests/kernel_cases.h"
#include "tests/op_cases.h"

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
      const PerSample &f = got.uses[k][0], &g = expected.uses[k][0];
      // Sums in double of products in float.
      check_same(to_dtype(dot(f, f), Dtype::f32), to_dtype(dot(g, g), Dtype::f32));
      check_same(f.sum(), g.sum());
      const Tensor weights = full({f.samples()}, 0.5, Dtype::f64);
      check_same(f.sum(weights), g.sum(weights));
    }
  }
}

// The parameters after three private steps on a device, with seeded noise.
std::vector<double> trained_on(Device device, Route route) {
  nn::manual_seed(5);
  nn::Sequential model = small_network();
  model.to(device);
  nn::Adam optimizer(model, {.learning_rate = 0.05});
  Ledger ledger;
  FullBatchSampler sampler(6);
  Clipper clipper(flat_group(model.parameters(), 0.5), {.route = route});
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

}  // namespace

TEST_CASE("private training on a GPU is that on the CPU") {
  for (const Route route : {Route::gram, Route::rows}) {
    const std::vector<double> expected = trained_on(cpu, route);
    for (const DeviceInfo& info : devices()) {
      if (info.device == cpu) continue;
      INFO(info.name);
      CHECK(distance(trained_on(info.device, route), expected) < 1e-3);
    }
  }
}

TEST_CASE("every operation runs on every GPU, forward and backward, as on the CPU") {
  for (const DeviceInfo& info : devices()) {
    if (info.device == cpu) continue;
    for (const OpCase& one : op_cases()) {
      INFO(one.op << ", " << one.what << " on " << info.name);
      CHECK_NOTHROW(check_on(info.device, one));
    }
  }
}
