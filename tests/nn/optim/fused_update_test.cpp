// Noise, division and update in one pass give the same bits as one after another.
#include <cmath>

#include "autograd/ops.h"
#include "core/devices.h"
#include "core/random/philox.h"
#include "core/random/secret_random.h"
#include "dp/clipping/clipper.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/sampling/sampler.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

// Two parameters, one of them of many blocks, and a gradient for each.
struct Training {
  explicit Training(Dtype dtype = Dtype::f32)
      : large(full({300, 1000}, 0.5, dtype)), small(full({7}, -1, dtype)) {}
  Parameter large, small;
  Ledger ledger;
  FullBatchSampler sampler{2};

  ClippedSum sum() {
    Clipper clipper(flat_group({&large, &small}, 2));
    Tape tape({.private_data = true});
    const Dtype dtype = large.value.dtype();
    const Var x = tape.input(full({2, 300, 1000}, 0.01, dtype));
    const Var y = tape.input(full({2, 7}, 3, dtype));
    clipper.add(tape, sum_per_sample(x * tape.use(large)) + sum_per_sample(y * tape.use(small)));
    return clipper.finish(sampler.draw());
  }
  std::vector<double> values() const {
    std::vector<double> all = to_dtype(large.value, Dtype::f64).to_vector<double>();
    for (const double v : to_dtype(small.value, Dtype::f64).to_vector<double>()) all.push_back(v);
    return all;
  }
};

template <class Optimizer, class Rule>
void check_fused(const Rule& rule, GaussianNoise noise, Dtype dtype = Dtype::f32) {
  Training apart(dtype), fused(dtype);
  const auto group = [&](Training& t) {
    return std::vector<typename Optimizer::Group>{{{&t.large, &t.small}, rule}};
  };
  Optimizer one(group(apart)), other(group(fused));
  GaussianMechanism first(1.5, SecretRandom::insecure_seeded(4), noise);
  GaussianMechanism second(1.5, SecretRandom::insecure_seeded(4), noise);
  for (int step = 0; step < 3; ++step) {
    const NoisyGradient released = first.release(apart.sum(), apart.ledger);
    one.step(released.gradients(), released.noise_variance());
    const NoisyGradient together = second.update(fused.sum(), fused.ledger, other);
    CHECK(together.noise_variance() == released.noise_variance());
  }
  const bool same = apart.values() == fused.values();
  CHECK(same);
  CHECK(fused.ledger.releases() == 3);
}

TEST_CASE("an update fused with the noise equals the update after it, to the bit") {
  for (const GaussianNoise noise : {GaussianNoise::discretized, GaussianNoise::floating_point}) {
    check_fused<nn::Sgd>(nn::SgdRule{.learning_rate = 0.1}, noise);
    check_fused<nn::Sgd>(nn::SgdRule{.momentum = 0.9, .nesterov = true}, noise);
    check_fused<nn::Adam>(nn::AdamRule<false>{.amsgrad = true}, noise, Dtype::f64);
    check_fused<nn::DpAdam>(nn::DpAdamRule{}, noise);
    check_fused<nn::Lamb>(nn::LambRule{}, noise);  // needs whole parameters
  }
}

TEST_CASE("an impossible update is refused before anything is recorded") {
  Training t;
  nn::Sgd of_one(std::vector<nn::Sgd::Group>{{{&t.large}, {}}});
  GaussianMechanism mechanism(1, SecretRandom::insecure_seeded(1));
  CHECK(throws([&] { mechanism.update(t.sum(), t.ledger, of_one); },
               "step: a gradient of shape (7) is of a parameter not in the optimizer"));
  CHECK(t.ledger.releases() == 0);
}

TEST_CASE("an ordinary step on a GPU refuses a gradient that is not finite, whichever it is",
          "[gpu]") {
  for (const DeviceInfo& info : devices()) {
    if (info.device == cpu) continue;
    for (const auto& [dtype, bad] :
         {std::pair(Dtype::f32, HUGE_VAL), std::pair(Dtype::f64, std::nan(""))}) {
      Parameter a(zeros({3}, dtype, info.device)), b(zeros({2}, dtype, info.device));
      nn::Sgd optimizer({{{&a, &b}, {.learning_rate = 1}}});
      const Tensor grad = full({2}, 1, dtype, info.device);
      const Gradients both{{&a, full({3}, 1, dtype, info.device)}, {&b, grad}};
      optimizer.step(both);
      copy_into(full({}, bad, dtype), grad.select(0, 1));
      CHECK(throws([&] { optimizer.step(both); }, "gradient of a parameter (2) is not finite"));
      CHECK(sum(a.value).item() == -3);
    }
  }
}

}  // namespace
}  // namespace sotto
