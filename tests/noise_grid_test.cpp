// Rounding never moves neighbouring sums further apart than the noise is scaled for.
#include "sotto/dp/noise_grid.h"

#include <cmath>
#include <vector>

#include "catch.h"
#include "sotto/core/philox.h"

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

// In spacings: how far apart the rounded sums are.
double rounded_distance(const NoiseGrid& grid, const std::vector<double>& a,
                        const std::vector<double>& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto d = static_cast<double>(grid.rounded(a[i]) - grid.rounded(b[i]));
    squares += d * d;
  }
  return std::sqrt(squares);
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
    const double deviation = grid.deviation * grid.spacing;
    CHECK(deviation >= s.noise_multiplier * (s.sensitivity + rounding));
    CHECK(deviation <= s.noise_multiplier * s.sensitivity * (1 + 0x1.01p-20));
    CHECK(grid.deviation >= 0x1p20 * std::sqrt(static_cast<double>(s.elements)) * (1 - 1e-15));
  }
}

// Sums as far apart as they may be, in random directions and places, and sums next to each other
// around the middles between grid points, where rounding moves the most.
TEST_CASE("rounded neighbours are no further apart than the noise is scaled for") {
  PublicRandom random(1);
  const auto uniform = [&] { return 2 * random.uniform() - 1; };
  for (const Scales& s : all_scales()) {
    const NoiseGrid grid = grid_for(s);
    const double scaled_for = grid.deviation / s.noise_multiplier;
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
