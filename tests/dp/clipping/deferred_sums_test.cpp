// A batch that is one physical batch is summed while it is released: the step has the same bits,
// and neither the sums nor the released gradients are ever in memory as a whole.
#include <utility>

#include "autograd/ops.h"
#include "core/allocator/allocator.h"
#include "core/random/philox.h"
#include "core/random/secret_random.h"
#include "dp/clipping/clipper_state.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/sampling/sampler.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/optimizer.h"
#include "tests/support/catch.h"

namespace sotto {
namespace {

constexpr std::int64_t samples = 4, positions = 6, words = 6000, width = 32, outputs = 4100;

Tensor normal(const Shape& shape, std::uint64_t stream) {
  PublicRandom random(3, stream);
  std::vector<float> all(static_cast<std::size_t>(shape.numel()));
  for (float& value : all) value = static_cast<float>(random.normal());
  return Tensor::from(all, shape);
}

// A table and a matrix of several chunks each, and a bias that is too small to be deferred.
struct Training {
  Parameter table{normal({words, width}, 1)}, matrix{normal({outputs, width}, 2)},
      bias{normal({width}, 3)};
  Clipper clipper{flat_group({&table, &matrix, &bias}, 2)};
  Ledger ledger;
  FullBatchSampler sampler{samples};

  void add(std::int64_t begin, std::int64_t end) {
    std::vector<std::int64_t> ids;
    for (std::int64_t at = begin * positions; at < end * positions; ++at)
      ids.push_back(at * 7919 % (words - 1000));
    Tape tape({.private_data = true});
    const Var words = tape.input(Tensor::from(ids, {end - begin, positions}));
    const Var y = linear(embedding(tape.use(table), words) + tape.use(bias), tape.use(matrix));
    clipper.add(tape, sum_per_sample(y * y));
  }
  // Clips all samples, `step` at a time.
  SampledBatch clip(std::int64_t step = samples) {
    SampledBatch draw = sampler.draw();
    clipper.state().defer_sums();
    clipper.begin(draw);
    for (std::int64_t at = 0; at < samples; at += step) add(at, at + step);
    return draw;
  }
  ClippedSum sum(std::int64_t step = samples) {
    SampledBatch draw = clip(step);
    return clipper.finish(std::move(draw));
  }
  std::int64_t elements() const {
    return table.value.numel() + matrix.value.numel() + bias.value.numel();
  }
  std::vector<float> values() const {
    std::vector<float> all;
    for (const Parameter* parameter : {&table, &matrix, &bias})
      for (const float value : parameter->value.to_vector<float>()) all.push_back(value);
    return all;
  }
};

template <class Optimizer, class Rule>
void check_same(const Rule& rule, GaussianNoise noise) {
  Training apart, fused, halves;
  const auto group = [&](Training& t) {
    return std::vector<typename Optimizer::Group>{{{&t.table, &t.matrix, &t.bias}, rule}};
  };
  Optimizer one(group(apart)), two(group(fused)), three(group(halves));
  const auto mechanism = [&] {
    return GaussianMechanism(1.5, SecretRandom::insecure_seeded(4), noise);
  };
  GaussianMechanism first = mechanism(), second = mechanism(), third = mechanism();
  for (int step = 0; step < 2; ++step) {
    const NoisyGradient released = first.release(apart.sum(), apart.ledger);
    one.step(released.gradients(), released.noise_variance());
    second.update(fused.sum(), fused.ledger, two);
    third.update(halves.sum(samples / 2), halves.ledger, three);
  }
  const bool as_released = fused.values() == apart.values(),
             as_halves = halves.values() == apart.values();
  CHECK(as_released);
  CHECK(as_halves);
}

TEST_CASE("a batch that is summed while it is released makes the step of any other", "[gate]") {
  for (const GaussianNoise noise : {GaussianNoise::discretized, GaussianNoise::floating_point}) {
    check_same<nn::Sgd>(nn::SgdRule{.learning_rate = 0.1}, noise);
    check_same<nn::Adam>(nn::AdamRule<false>{}, noise);  // its first step needs whole gradients
    check_same<nn::Lamb>(nn::LambRule{}, noise);         // and all of these
  }
}

TEST_CASE("a release of one physical batch holds neither its sums nor its gradients") {
  Training t;
  nn::Sgd optimizer({{{&t.table, &t.matrix, &t.bias}, {.learning_rate = 0.1}}});
  GaussianMechanism mechanism(1, SecretRandom::insecure_seeded(4));
  SampledBatch draw = t.clip();
  const auto before = allocator(cpu).statistics().current;
  allocator(cpu).reset_peak();
  mechanism.update(t.clipper.finish(std::move(draw)), t.ledger, optimizer);
  const auto more = allocator(cpu).statistics().peak - before;
  CHECK(more < static_cast<std::size_t>(t.elements()) * sizeof(float));
}

TEST_CASE("a deferred sum is what it would be, where it is looked at or the clipper goes on") {
  Training whole, halves;
  whole.clip();
  halves.clip(samples / 2);
  const Gradients &one = whole.clipper.clipped_sums(), &other = halves.clipper.clipped_sums();
  for (std::size_t k = 0; k < one.size(); ++k) {
    const bool same = one[k].second.to_vector<double>() == other[k].second.to_vector<double>();
    CHECK(same);
  }
  whole.clipper.discard();
  ClippedSum kept = whole.sum();
  whole.clip(1);  // while the sum that is kept is still to be computed
  const auto released = [](ClippedSum sum) {
    Ledger ledger;
    GaussianMechanism mechanism(1, SecretRandom::insecure_seeded(4));
    const NoisyGradient gradient = mechanism.release(std::move(sum), ledger);
    return gradient.gradients()[1].second.to_vector<float>();
  };
  halves.clipper.discard();
  const bool same = released(std::move(kept)) == released(halves.sum(samples / 2));
  CHECK(same);
}

}  // namespace
}  // namespace sotto
