// Noise, division and the optimizer's update in one pass.
#include "dp/noise/noisy_update_pass.h"

#include <memory>

#include "core/random/philox.h"
#include "core/ranks/thread_ranks.h"
#include "dp/noise/noise_grid.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

// A parameter of several blocks, a small one in f64, and sums for both.
struct Sums {
  std::vector<std::unique_ptr<Parameter>> parameters;
  Gradients sums;

  Sums() {
    PublicRandom random(4);
    for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
      const std::int64_t count = dtype == Dtype::f32 ? noise_block_size + 3 : 5;
      parameters.push_back(std::make_unique<Parameter>(zeros({count}, dtype)));
      std::vector<double> values(static_cast<std::size_t>(count));
      for (double& value : values) value = 2 * random.uniform() - 1;
      sums.emplace_back(parameters.back().get(), Tensor::from(values, {count}));
    }
  }
  Gradients room() const {
    Gradients released;
    for (const auto& [parameter, sum] : sums)
      released.emplace_back(parameter, zeros(sum.shape(), parameter->value.dtype()));
    return released;
  }
  std::vector<Parameter*> all() const { return {parameters[0].get(), parameters[1].get()}; }
  std::vector<double> moved() const {
    std::vector<double> values;
    for (const auto& parameter : parameters) {
      const auto more = to_dtype(parameter->value, Dtype::f64).to_vector<double>();
      values.insert(values.end(), more.begin(), more.end());
    }
    return values;
  }
};

WholeNoise numbered() {
  return [](NoisePlace place, std::span<std::int64_t> room) {
    for (std::size_t k = 0; k < room.size(); ++k)
      room[k] = (place.first + static_cast<std::int64_t>(k)) % 1000 - 500;
    return room;
  };
}

// Draws from one keystream, from the places of the elements.
WholeNoise from_keystream(const RoundedGaussian& gaussian) {
  return [&gaussian](NoisePlace place, std::span<std::int64_t> room) {
    const ChaChaStream stream{.key = {{1, 2, 3}}, .block = 40 + place.block};
    gaussian.fill(stream, room);
    return room;
  };
}

// One of several ranks' ends of an update: its parameters, of which it updates its part.
template <class Optimizer>
struct Owner {
  template <class Rule>
  Owner(std::shared_ptr<Ranks> ranks, const Rule& rule, bool bf16_state)
      : optimizer(std::vector<typename Optimizer::Group>{{whole.all(), rule, bf16_state}}),
        shards(std::make_shared<nn::Shards>(std::move(ranks), optimizer.parameters())) {
    optimizer.divide(shards);
    for (const auto& [parameter, sum] : whole.sums) {
      const nn::ElementRange own = shards->range(*parameter);
      sums.emplace_back(parameter, clone(sum.slice(0, own.first, own.end)));
      released.emplace_back(parameter, zeros({own.size()}, parameter->value.dtype()));
    }
  }
  void step(const NoiseGrid& grid, const WholeNoise& noise) {
    NoisyUpdate update(sums, released, 7, shards.get());
    update.make_step(optimizer, 0.5);
    update.on_cpu(grid, noise);
  }

  Sums whole;
  Optimizer optimizer;
  std::shared_ptr<nn::Shards> shards;
  Gradients sums, released;
};

// The values of all elements, each from its owner.
template <class Optimizer>
std::vector<double> together(const std::vector<std::unique_ptr<Owner<Optimizer>>>& owners) {
  std::vector<double> values = owners[0]->whole.moved();
  for (const auto& owner : owners) {
    const std::vector<double> theirs = owner->whole.moved();
    std::ptrdiff_t before = 0;
    for (const auto& parameter : owner->whole.parameters) {
      const nn::ElementRange own = owner->shards->range(*parameter);
      std::copy(theirs.begin() + before + own.first, theirs.begin() + before + own.end,
                values.begin() + before + own.first);
      before += parameter->value.numel();
    }
  }
  return values;
}

template <class Optimizer>
void check_owners(int ranks, const auto& rule, bool bf16_state = false) {
  const NoiseGrid grid{0x1p-24, 1e6};
  const RoundedGaussian gaussian(grid.stddev);
  const Sums alone;
  Optimizer optimizer(std::vector<typename Optimizer::Group>{{alone.all(), rule, bf16_state}});
  std::vector<std::unique_ptr<Owner<Optimizer>>> owners;
  for (auto& rank : make_thread_ranks(ranks))
    owners.push_back(std::make_unique<Owner<Optimizer>>(std::move(rank), rule, bf16_state));
  for (int step = 0; step < 3; ++step) {
    NoisyUpdate update(alone.sums, alone.room(), 7);
    update.make_step(optimizer, 0.5);
    update.on_cpu(grid, from_keystream(gaussian));
    for (const auto& owner : owners) owner->step(grid, from_keystream(gaussian));
    CHECK(together(owners) == alone.moved());
  }
}

template <class Optimizer>
void check_rule(const auto& rule) {
  const NoiseGrid grid{0x1p-24, 1e6};
  const Sums together, in_turn;
  using Groups = std::vector<typename Optimizer::Group>;
  Optimizer one(Groups{{together.all(), rule}}), other(Groups{{in_turn.all(), rule}});
  for (int step = 0; step < 2; ++step) {
    NoisyUpdate update(together.sums, together.room(), 7);
    update.make_step(one, 0.5);
    update.on_cpu(grid, numbered());
    NoisyUpdate alone(in_turn.sums, in_turn.room(), 7);
    alone.on_cpu(grid, numbered());
    other.step(alone.released(), 0.5);
    CHECK(together.moved() == in_turn.moved());
  }
}

}  // namespace

TEST_CASE("noise and every rule's step in one pass are one after the other") {
  check_rule<nn::Sgd>(nn::SgdRule{.momentum = 0.9});
  check_rule<nn::DpAdam>(nn::DpAdamRule{});
  check_rule<nn::Lamb>(nn::LambRule{});  // needs whole parameters
}

TEST_CASE("the parts of an update, each by its owner, are the whole update bit for bit", "[gate]") {
  for (const int ranks : {1, 2, 3, 4, 7, 100}) {
    check_owners<nn::Sgd>(ranks, nn::SgdRule{.momentum = 0.9});
    check_owners<nn::AdamW>(ranks, nn::AdamRule<true>{});
    check_owners<nn::AdamW>(ranks, nn::AdamRule<true>{}, true);
    check_owners<nn::DpAdam>(ranks, nn::DpAdamRule{});
  }
}

TEST_CASE("a step for parameters that the optimizer does not have is refused") {
  const Sums sums, others;
  nn::Sgd optimizer(std::vector<nn::Sgd::Group>{{others.all(), {}}});
  NoisyUpdate update(sums.sums, sums.room(), 7);
  CHECK_THROWS_AS(update.make_step(optimizer, 0.5), std::invalid_argument);
}
