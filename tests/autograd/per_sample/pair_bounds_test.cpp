// The bounds of norms hold what processors' instructions for pairs of bf16 terms do to sums: they
// add in orders of their own, and take subnormal numbers for zeros.
#include <cmath>

#include "autograd/per_sample/forms.h"
#include "autograd/per_sample/grouping.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "core/random/philox.h"
#include "kernels/backend.h"
#include "kernels/host_device/gemm_blocking.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/emulated_pairs.h"

namespace sotto {
namespace {

constexpr PairInstructions all_instructions[] = {PairInstructions::tiles, PairInstructions::dots};
constexpr NormMethod methods[] = {NormMethod::automatic, NormMethod::ghost,
                                  NormMethod::materialize};
constexpr double u = 0x1p-24;

std::int64_t up_to(PublicRandom& random, std::int64_t most) {
  return 1 + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(most)));
}

// bf16 numbers of any sign whose exponents lie from `smallest` on; some are zeros.
Tensor factor(PublicRandom& random, const Shape& shape, int smallest) {
  std::vector<double> values;
  const std::uint64_t spread = 1 + random.below(12);
  for (std::int64_t k = 0; k < shape.numel(); ++k) {
    const double size =
        std::ldexp(1 + random.uniform(), smallest + static_cast<int>(random.below(spread)));
    values.push_back(random.below(6) == 0 ? 0 : random.below(2) == 0 ? size : -size);
  }
  return to_dtype(Tensor::from(values, shape), Dtype::bf16);
}

// A sample's gradient from bf16 factors, and in f64.
struct Gradients {
  PerSampleGrad narrow, exact;
};

Tensor wide(const Tensor& x) { return to_dtype(x, Dtype::f64); }

// Products of the factors are about 2^exponent.
Gradients products(PublicRandom& random, int exponent) {
  const std::int64_t t = up_to(random, 70), o = up_to(random, 9), i = up_to(random, 40);
  const int of_b = static_cast<int>(random.below(240)) - 130;
  const Tensor b = factor(random, {1, t, o}, of_b), a = factor(random, {1, t, i}, exponent - of_b);
  return {PerSampleGrad::outer(b, a, {o, i}), PerSampleGrad::outer(wide(b), wide(a), {o, i})};
}

Gradients images(PublicRandom& random, int exponent) {
  const std::int64_t side = 2 + up_to(random, 6), o = 2 + up_to(random, 3),
                     i = 2 + up_to(random, 3);
  const int of_dy = static_cast<int>(random.below(240)) - 130;
  const Tensor dy = factor(random, {1, o, 1, side - 1, side - 1}, of_dy),
               x = factor(random, {1, i, 1, side, side}, exponent - of_dy);
  const Window window{.kernel = {1, 2, 2}};
  const Shape shape{o, i, 2, 2};
  return {PerSampleGrad::patches(dy, x, window, shape),
          PerSampleGrad::patches(wide(dy), wide(x), window, shape)};
}

// The distance of the sum from the exact gradient, and the norm of that, over what is charged.
void check_bounds(const Gradients& g) {
  const std::vector<double> sum = wide(g.narrow.sum()).to_vector<double>(),
                            exact = g.exact.sum().to_vector<double>();
  double off = 0, square = 0;
  for (std::size_t k = 0; k < sum.size(); ++k) {
    off += std::pow(sum[k] - exact[k], 2);
    square += exact[k] * exact[k];
  }
  for (const NormMethod method : methods) {
    NormErrorBounds bounds;
    const double norm = std::sqrt(squared_norm({g.narrow}, method, &bounds).item());
    const double charged = norm + bounds.error_bounds[0] + 0x1p-120;
    CHECK(std::sqrt(off) <= bounds.error_bounds[0] + 0x1p-120);
    CHECK(std::sqrt(square) + std::sqrt(off) <= charged * (1 + 0x1p-20));
  }
}

TEST_CASE("what instructions for pairs round and flush is within the error bound") {
  for (const PairInstructions instructions : all_instructions) {
    const EmulatedPairs emulated(instructions);
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      INFO("seed " << seed);
      PublicRandom random(seed);
      const int exponent = -140 + static_cast<int>(random.below(40));
      check_bounds(random.below(2) == 0 ? products(random, exponent) : images(random, exponent));
    }
  }
}

TEST_CASE("products of pairs round a term as often as is charged, at most") {
  for (const PairInstructions instructions : all_instructions) {
    const EmulatedPairs emulated(instructions);
    for (const std::int64_t terms : {1, 2, 31, 33, 96, 97, 385, 1000, 9000}) {
      // Each term is just above half a last place of the sum so far.
      std::vector<double> values(static_cast<std::size_t>(terms), 0x1.02p-24);
      values[0] = 1;
      const Tensor b = full({1, terms, 3}, 1, Dtype::bf16),
                   a = to_dtype(Tensor::from(values, {1, terms, 1}).expand({1, terms, 3}),
                                Dtype::bf16);
      const PerSampleGrad g = PerSampleGrad::outer(b, a, {3, 3});
      const double exact = 1 + static_cast<double>(terms - 1) * 0x1.02p-24,
                   chain = static_cast<double>(backend(cpu).chain_of_products(Dtype::bf16));
      const double off = std::abs(static_cast<double>(g.sum().at({0, 0})) - exact);
      CHECK(off <= roundings(static_cast<double>(terms), chain) * u * exact);
      NormErrorBounds bounds;
      squared_norm({g}, NormMethod::materialize, &bounds);
      CHECK(3 * off <= bounds.error_bounds[0]);
    }
  }
}

// Joined pictures are added up as one product, which has more roundings than a convolution has.
TEST_CASE("pictures that are joined have the error bound of their product") {
  const EmulatedPairs emulated(PairInstructions::tiles);
  constexpr std::int64_t rows = 16, side = 64, channels = 3;
  const PerSampleGrad pictures = PerSampleGrad::patches(
      full({rows, channels, 1, side, side}, 1, Dtype::bf16),
      full({rows, channels, 1, side, side}, 1, Dtype::bf16), Window{}, {channels, channels});
  NormErrorBounds bounds;
  squared_norm({pictures.group({.unit_of_row = std::vector<std::int64_t>(rows), .units = 1})},
               NormMethod::materialize, &bounds);
  constexpr double positions = rows * side * side, terms = positions * channels;
  const double chain = static_cast<double>(backend(cpu).chain_of_products(Dtype::bf16));
  CHECK(bounds.error_bounds[0] >= 2 * (roundings(positions, chain) + 1) * u * terms);
}

}  // namespace
}  // namespace sotto
