// Rounding never moves neighbouring sums further apart than the noise is scaled for.
// File tags: [optimised]
#include "dp/noise/noise_grid.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <vector>

#include "core/random/philox.h"
#include "dp/noise/noisy_update_pass.h"
#include "kernels/host_device/optimizer_update.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

struct Scales {
  double noise_multiplier, sensitivity;
  std::int64_t elements;
};

std::vector<Scales> all_scales() {
  std::vector<Scales> scales;
  for (const double multiplier : {1e-3, 0.3, 1.0, 1.1, 50.0}) {
    for (const double sensitivity : {1e-30, 0.1, 1.0, 1.5, 1e30}) {
      for (const std::int64_t elements : {1, 2, 26'010, 100'000'000}) {
        scales.push_back({multiplier, sensitivity, elements});
      }
    }
  }
  return scales;
}

NoiseGrid grid_for(const Scales& s) {
  return noise_grid(s.noise_multiplier, s.sensitivity, s.elements);
}

// The distance between the rounded sums, in spacings.
double rounded_distance(const NoiseGrid& grid, const std::vector<double>& a,
                        const std::vector<double>& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto d = static_cast<double>(grid.rounded(a[i]) - grid.rounded(b[i]));
    squares += d * d;
  }
  return std::sqrt(squares);
}

// Groups of sums that f64 holds exactly are added in f64. A group with a larger sum is added in
// integers.
template <class T>
void check_on_grid(const std::vector<T>& sums, const std::vector<std::int64_t>& noise,
                   const NoiseGrid& grid, double divisor) {
  const auto size = std::ssize(sums);
  const Tensor total = Tensor::from(sums, {size});
  const auto draw = [&](NoisePlace place, auto out) {
    std::copy_n(noise.begin() + place.first, out.size(), out.begin());
    return out;
  };
  const Tensor block = clone(total);
  const bool known = add_on_grid(block, block, 0, noise, grid, divisor);
  const Gradients in_place{{nullptr, total}};
  NoisyUpdate(in_place, in_place, divisor).on_cpu(grid, draw);
  CHECK(block.template to_vector<T>() == total.template to_vector<T>());
  const std::vector<T> got = total.template to_vector<T>();
  CHECK((!known || std::all_of(got.begin(), got.end(), [](T x) { return std::isfinite(x); })));
  std::int64_t wrong = 0;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const T expected = on_grid<T>(sums[i], noise[i], grid.spacing, divisor);
    wrong += std::bit_cast<std::array<std::byte, sizeof(T)>>(got[i]) ==
                     std::bit_cast<std::array<std::byte, sizeof(T)>>(expected)
                 ? 0
                 : 1;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("the spacing is the largest power of two within the share, the noise is for both") {
  for (const Scales& s : all_scales()) {
    const NoiseGrid grid = grid_for(s);
    int exponent = 0;
    CHECK(std::frexp(grid.spacing, &exponent) == 0.5);
    const double rounding = grid.spacing * std::sqrt(static_cast<double>(s.elements));
    const double share = 0x1p-20 * s.sensitivity * std::min(s.noise_multiplier, 1.0);
    CHECK(rounding <= share * (1 + 1e-15));
    CHECK(2 * rounding > share * (1 - 1e-15));
    const double stddev = grid.stddev * grid.spacing;
    CHECK(stddev >= s.noise_multiplier * (s.sensitivity + rounding));
    CHECK(stddev <= s.noise_multiplier * s.sensitivity * (1 + 0x1.01p-20));
    CHECK(grid.stddev >= 0x1p20 * std::sqrt(static_cast<double>(s.elements)) * (1 - 1e-15));
  }
}

// Sums at the maximum distance, in random directions and places, and sums close to each other
// around the midpoints between grid points, where rounding moves most.
TEST_CASE("rounded neighbouring sums are no further apart than the noise is scaled for") {
  PublicRandom random(1);
  const auto uniform = [&] { return 2 * random.uniform() - 1; };
  for (const Scales& s : all_scales()) {
    const NoiseGrid grid = grid_for(s);
    const double scaled_for = grid.stddev / s.noise_multiplier;
    const auto elements = static_cast<std::size_t>(std::min<std::int64_t>(s.elements, 30'000));
    for (const double distance : {1.0, 1e-3, 0.0}) {
      for (const double size : {1.0, 1e4}) {
        std::vector<double> a(elements), step(elements), b(elements);
        double squares = 0;
        for (double& x : step) {
          x = uniform();
          squares += x * x;
        }
        for (std::size_t i = 0; i < elements; ++i) {
          const double middle = static_cast<double>(grid.rounded(size * uniform() * s.sensitivity));
          a[i] = (middle + 0.5 + 1e-4 * uniform()) * grid.spacing;
          b[i] = a[i] + step[i] * (distance * s.sensitivity / std::sqrt(squares)) +
                 2e-4 * uniform() * grid.spacing * (distance < 1);
        }
        CHECK(rounded_distance(grid, a, b) <= scaled_for);
      }
    }
  }
}

TEST_CASE("rounding goes to the nearest multiple, and stops at 2^61 of them") {
  const NoiseGrid grid{0.25, 1e9};
  CHECK(grid.rounded(0) == 0);
  CHECK(grid.rounded(0.12) == 0);
  CHECK(grid.rounded(0.13) == 1);
  CHECK(grid.rounded(-0.13) == -1);
  CHECK(grid.rounded(-7) == -28);
  CHECK(grid.rounded(1e300) == std::int64_t{1} << 61);
  CHECK(grid.rounded(-HUGE_VAL) == -(std::int64_t{1} << 61));
  const NoiseGrid fine = noise_grid(1, 1e-30, 26'010);
  CHECK(std::abs(static_cast<double>(fine.rounded(3e-31)) * fine.spacing - 3e-31) <=
        fine.spacing / 2);
  CHECK(fine.rounded(1e-45) == 0);
}

TEST_CASE("sums of any size become the same multiples with their noise") {
  PublicRandom random(4);
  const auto number = [&](int bits) {
    return (random.uniform() - 0.5) * std::ldexp(2.0, static_cast<int>(bits * random.uniform()));
  };
  for (const int exponent : {-990, -40, -3, 0, 5, 900}) {
    const NoiseGrid grid{std::ldexp(1.0, exponent), 1};
    for (const int bits : {1, 30, 50, 53, 62}) {
      std::vector<double> sums, centered_count;
      std::vector<float> singles;
      std::vector<std::int64_t> noise;
      for (int i = 0; i < 3000; ++i) {
        sums.push_back(number(bits) * grid.spacing);
        centered_count.push_back((std::floor(number(bits)) + 0.5) * grid.spacing);
        singles.push_back(static_cast<float>(sums.back()));
        noise.push_back(std::llrint(number(bits)));
      }
      sums[5] = -0.0;
      sums[2000] = HUGE_VAL;
      singles[7] = -HUGE_VALF;
      noise[2900] = -(std::int64_t{1} << 62);
      for (const double divisor : {1.0, 0.3, 64.0}) {
        check_on_grid(sums, noise, grid, divisor);
        check_on_grid(centered_count, noise, grid, divisor);
        check_on_grid(singles, noise, grid, divisor);
      }
    }
  }
}

TEST_CASE("usual sums are known to be finite, and those that noise may make infinite are not") {
  const auto known = [](float sum, double spacing) {
    const Tensor total = Tensor::from(std::vector<float>{sum}, {1});
    const std::vector<std::int64_t> noise{1};
    return add_on_grid(total, total, 0, noise, {spacing, 1}, 0.5);
  };
  CHECK(known(1.5f, 0x1p-40));
  CHECK(!known(3e38f, 0x1p-40));
  CHECK(!known(3e38f, 0x1p100));
}

TEST_CASE("a sum that is not a number is refused") {
  const Tensor total = Tensor::from(std::vector<float>{1, 2, std::nanf(""), 4}, {4});
  const auto draw = [](NoisePlace, auto noise) {
    std::fill(noise.begin(), noise.end(), 1);
    return noise;
  };
  const Gradients in_place{{nullptr, total}};
  CHECK_THROWS_AS(NoisyUpdate(in_place, in_place, 1).on_cpu({1, 1}, draw), std::invalid_argument);
}

TEST_CASE("scales without a grid are refused") {
  CHECK_THROWS_AS(noise_grid(0, 1, 1), std::invalid_argument);
  CHECK_THROWS_AS(noise_grid(1, 0, 1), std::invalid_argument);
  CHECK_THROWS_AS(noise_grid(1, 1, 0), std::invalid_argument);
  CHECK_THROWS_AS(noise_grid(std::nan(""), 1, 1), std::invalid_argument);
  CHECK_THROWS_AS(noise_grid(1, 1e-300, 1), std::invalid_argument);
  CHECK_THROWS_AS(noise_grid(1, 1e305, 1), std::invalid_argument);
  CHECK_THROWS_AS(noise_grid(1e-300, 1, 1), std::invalid_argument);
  CHECK_THROWS_AS(noise_grid(1e30, 1, 1), std::invalid_argument);
  CHECK_NOTHROW(noise_grid(1e5, 1, 100'000'000));
}
