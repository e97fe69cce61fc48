// Noise, division and the optimizer's update in one pass.
#include "dp/noise/noisy_update_pass.h"

#include <memory>

#include "core/random/philox.h"
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
  return [](std::int64_t first, std::span<std::int64_t> room) {
    for (std::size_t k = 0; k < room.size(); ++k)
      room[k] = (first + static_cast<std::int64_t>(k)) % 1000 - 500;
    return room;
  };
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

TEST_CASE("a step for parameters that the optimizer does not have is refused") {
  const Sums sums, others;
  nn::Sgd optimizer(std::vector<nn::Sgd::Group>{{others.all(), {}}});
  NoisyUpdate update(sums.sums, sums.room(), 7);
  CHECK_THROWS_AS(update.make_step(optimizer, 0.5), std::invalid_argument);
}
