// Clipping gradients of standardised weights, which one pass computes again when their norms are
// known: the sums have the bits of those of two passes, which write them out.
#include <cmath>

#include "autograd/ops.h"
#include "autograd/per_sample/grouping.h"
#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "dp/clipping/clipper_state.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/functional.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"

namespace sotto {
namespace {

constexpr std::int64_t count = 8;
constexpr double bound = 0.3;

// Two convolutions whose weights are standardised, the second one's used twice.
struct Network {
  Parameter first, gain, second;

  explicit Network(PublicRandom& random)
      : first(random_values(random, {16, 4, 3, 3})),
        gain(random_values(random, {16, 1, 1, 1})),
        second(random_values(random, {16, 16, 3, 3})) {}
  static Tensor random_values(PublicRandom& random, const Shape& shape) {
    return to_dtype(uniform_values(random, shape, -1, 1), Dtype::f32);
  }
  std::vector<Parameter*> all() { return {&first, &gain, &second}; }
  Var loss(Tape& tape, const Tensor& images) {
    const Var w = nn::standardized_weight(tape.use(first), 1e-3, tape.use(gain)),
              v = nn::standardized_weight(tape.use(second), 1e-3);
    Var y = conv(tape.input(images), w, {}, {.padding = {1}});
    for (int k = 0; k < 2; ++k) y = conv(tanh(y), v, {}, {.padding = {1}});
    return cast(sum_per_sample(square(y)), Dtype::f32);
  }
};

struct Policy {
  ClipPasses passes = ClipPasses::one;
  Dtype precision = Dtype::f32;
  bool by_parameter = false;
  std::vector<std::int64_t> unit_of_row = {};
};

struct Clipped {
  std::vector<double> sums, norms;
  double sensitivity;
};

Clipped clipped(Network& network, const Tensor& images, const Policy& policy) {
  std::vector<ClipGroup> groups = flat_group(network.all(), bound);
  if (policy.by_parameter) {
    groups.clear();
    for (Parameter* parameter : network.all()) groups.push_back({{parameter}, bound});
  }
  Clipper clipper(groups, {}, policy.passes);
  Tape tape({.private_data = true, .precision = policy.precision});
  Grouping grouping{.unit_of_row = policy.unit_of_row};
  for (const std::int64_t unit : grouping.unit_of_row)
    grouping.units = std::max(grouping.units, unit + 1);
  const Var loss = network.loss(tape, images);
  clipper.add(tape, loss, grouping.units > 0 ? &grouping : nullptr);
  Clipped y{{}, {}, clipper.sensitivity()};
  for (const auto& [parameter, sum] : clipper.clipped_sums()) {
    for (const double value : sum.to_vector<double>()) y.sums.push_back(value);
  }
  for (const auto& norms : clipper.statistics().norms)
    y.norms.insert(y.norms.end(), norms.begin(), norms.end());
  return y;
}

double distance(const Clipped& a, const Clipped& b) {
  double square = 0;
  for (std::size_t i = 0; i < a.sums.size(); ++i)
    square += (a.sums[i] - b.sums[i]) * (a.sums[i] - b.sums[i]);
  return std::sqrt(square);
}

TEST_CASE("one pass over computed weights and two have the same bits") {
  PublicRandom random(7);
  Network network(random);
  const Tensor images = Network::random_values(random, {count, 4, 4, 4});
  for (const Dtype precision : {Dtype::f32, Dtype::bf16}) {
    for (const bool by_parameter : {false, true}) {
      for (const std::vector<std::int64_t>& units :
           {std::vector<std::int64_t>{}, {0, 0, 1, 1, 2, 2, 3, 3}, {0, 2, 1, -1, 0, 0, 1, 3}}) {
        CAPTURE(precision, by_parameter, units);
        const Clipped one = clipped(network, images,
                                    {ClipPasses::one, precision, by_parameter, units}),
                      two = clipped(network, images,
                                    {ClipPasses::two, precision, by_parameter, units});
        CHECK(one.norms == two.norms);
        CHECK(one.sums == two.sums);
      }
    }
  }
}

TEST_CASE("a sum over computed weights is that of samples that are clipped alone, in f64") {
  PublicRandom random(8);
  Network network(random);
  const Tensor images = Network::random_values(random, {count, 4, 4, 4});
  const Clipped got = clipped(network, images, {});
  std::vector<double> expected(got.sums.size());
  for (std::int64_t n = 0; n < count; ++n) {
    Tape tape({.precision = Dtype::f64});
    PerSampleGradSink sink;
    tape.backward(network.loss(tape, images.slice(0, n, n + 1)), sink);
    const double norm = std::sqrt(sink.squared_norms().item()),
                 factor = std::min(1.0, bound / norm);
    CHECK(std::abs(got.norms[static_cast<std::size_t>(n)] / norm - 1) < 1e-4);
    std::size_t at = 0;
    for (Parameter* parameter : network.all()) {
      for (const double value : values(sink.rows(*parameter))) expected[at++] += factor * value;
    }
  }
  CHECK(distance(got, {expected, {}, 0}) < 1e-4 * bound * count);
}

TEST_CASE("a hostile neighbour moves a sum over computed weights by at most the sensitivity") {
  PublicRandom random(9);
  Network network(random);
  for (const double size : {1.0, 1e-30, 1e12, 1e30, std::nan(""), HUGE_VAL}) {
    for (const Dtype precision : {Dtype::f32, Dtype::bf16}) {
      CAPTURE(size, precision);
      const Tensor images = Network::random_values(random, {count, 4, 4, 4});
      fill(images.slice(0, 3, 4), [&] { return size * (random.uniform() < 0.9 ? 1 : -1); });
      const Tensor rest = concat({images.slice(0, 0, 3), images.slice(0, 4, count)}, 0);
      const Clipped with = clipped(network, images, {.precision = precision}),
                    without = clipped(network, rest, {.precision = precision});
      CHECK(distance(with, without) <= with.sensitivity);
      CHECK(with.norms[4] == without.norms[3]);
    }
  }
}

}  // namespace
}  // namespace sotto
