// File tags: [sanitized]
#include "nn/data/images/scattering.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/support/catch.h"

#include "core/random/philox.h"
#include "nn/data/images/lane_fft.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

// The picture whose figures are below, a function of the pixel's place.
Tensor formula_picture(std::int64_t h, std::int64_t w) {
  Tensor x = Tensor::empty({1, 1, h, w});
  for (std::int64_t i = 0; i < h; ++i) {
    for (std::int64_t j = 0; j < w; ++j) {
      x.data<float>()[i * w + j] =
          static_cast<float>((7 * i * i + 13 * j + 5 * i * j) % 256) / 255.0f;
    }
  }
  return x;
}

struct Figure {
  std::int64_t path, row, column;
  double value;
};

void check_figures(const Tensor& y, double sum, const std::vector<Figure>& figures) {
  double total = 0;
  for (const float value : y.to_vector<float>()) total += value;
  CHECK(total == Approx(sum).epsilon(1e-6));
  for (const Figure& figure : figures) {
    INFO("path " << figure.path);
    CHECK(y.at({0, figure.path, figure.row, figure.column}) == Approx(figure.value).epsilon(2e-6));
  }
}

Tensor random_pictures(std::int64_t n, std::int64_t c, std::int64_t h, std::int64_t w) {
  Tensor x = Tensor::empty({n, c, h, w});
  for (std::int64_t k = 0; k < x.numel(); ++k) {
    x.data<float>()[k] = uniform_float({5, 6}, static_cast<std::uint64_t>(k));
  }
  return x;
}

}  // namespace

// The figures are those of Kymatio 0.3.0, kymatio.numpy.Scattering2D(J=2, shape=(h, w), L=8) in
// float32, with numpy 2.4.6 and scipy 1.17.1.
TEST_CASE("scattering features are Kymatio's") {
  const Tensor square = scattering_features(formula_picture(32, 32));
  CHECK(square.shape() == Shape{1, 81, 8, 8});
  check_figures(square, 94.67924,
                {{0, 0, 0, 0.16216835},
                 {0, 3, 5, 0.4946315},
                 {1, 0, 0, 0.020781467},
                 {1, 4, 4, 0.1053814},
                 {5, 6, 2, 0.03140875},
                 {8, 1, 6, 0.030545874},
                 {9, 2, 2, 0.025804512},
                 {16, 6, 0, 0.0081829261},
                 {17, 0, 0, 0.0035373112},
                 {20, 3, 3, 0.0092932004},
                 {40, 5, 5, 0.0046971412},
                 {60, 2, 6, 0.011231392},
                 {80, 6, 6, 0.0060631763}});
  const Tensor oblong = scattering_features(formula_picture(28, 36));
  CHECK(oblong.shape() == Shape{1, 81, 7, 9});
  check_figures(oblong, 93.49763,
                {{0, 0, 0, 0.1622829},
                 {1, 4, 4, 0.10538138},
                 {9, 2, 2, 0.025800129},
                 {16, 6, 0, 0.0095446613},
                 {40, 5, 5, 0.0047303499},
                 {80, 6, 6, 0.0077574011}});
}

TEST_CASE("a channel's features do not depend on the pictures beside it") {
  constexpr std::int64_t n = 7, c = 3;
  const Tensor x = random_pictures(n, c, 12, 8);
  const Tensor together = scattering_features(x);
  CHECK(together.shape() == Shape{n, 81 * c, 3, 2});
  for (std::int64_t k = 0; k < n; ++k) {
    for (std::int64_t channel = 0; channel < c; ++channel) {
      const Tensor plane = x.slice(0, k, k + 1).slice(1, channel, channel + 1);
      const Tensor alone =
          scattering_features(Tensor::from(plane.to_vector<float>(), {1, 1, 12, 8}));
      const Tensor part = together[k].slice(0, 81 * channel, 81 * (channel + 1));
      REQUIRE(part.to_vector<float>() == alone.to_vector<float>());
    }
  }
}

TEST_CASE("progress counts the pictures up to their number") {
  std::vector<std::int64_t> done;
  scattering_features(random_pictures(500, 2, 8, 8), [&](std::int64_t at, std::int64_t total) {
    CHECK(total == 500);
    done.push_back(at);
  });
  CHECK(done.size() > 1);
  CHECK(std::is_sorted(done.begin(), done.end()));
  CHECK(done.back() == 500);
  CHECK(scattering_features(random_pictures(0, 3, 8, 8)).shape() == Shape{0, 243, 2, 2});
}

TEST_CASE("pictures that cannot be scattered are refused by their shape") {
  CHECK(throws([] { scattering_features(random_pictures(1, 1, 30, 32)); },
               "scattering: pictures (1, 1, 30, 32): a side of 30 is no multiple of 4"));
  CHECK(throws([] { scattering_features(random_pictures(1, 1, 8, 4)); }, "a side of 4"));
  CHECK(throws([] { scattering_features(Tensor::empty({0, 1, 500, 8})); }, "from 8 to 496"));
  CHECK(throws([] { scattering_features(Tensor::empty({8, 8})); }, "four axes"));
  CHECK(throws(
      [] {
        scattering_features(Tensor::empty({1, 1, 8, 8}, Dtype::u8));
      },
      "row-major f32"));
}

TEST_CASE("a transform of lanes is the sum that defines it") {
  for (const std::int64_t n : {1, 2, 3, 4, 5, 8, 20, 36, 40, 44, 63, 254}) {
    std::vector<ComplexLanes> x(static_cast<std::size_t>(2 * n)), y(static_cast<std::size_t>(n));
    const auto value = [](std::int64_t k, int lane) {
      return normal({7, static_cast<std::uint64_t>(lane)}, static_cast<std::uint64_t>(k));
    };
    for (std::int64_t k = 0; k < n; ++k) {
      for (int lane = 0; lane < fft_lanes; ++lane) {
        x[static_cast<std::size_t>(2 * k)].re[lane] = static_cast<float>(value(k, lane));
        x[static_cast<std::size_t>(2 * k)].im[lane] = static_cast<float>(value(k + n, lane));
      }
    }
    LaneFft(n).transform(x.data(), 2, y.data());
    for (std::int64_t k = 0; k < n; ++k) {
      const int lane = static_cast<int>(k % fft_lanes);
      std::complex<double> sum;
      for (std::int64_t j = 0; j < n; ++j) {
        sum += std::complex(value(j, lane), value(j + n, lane)) *
               unit_root(-static_cast<double>(j * k % n) / static_cast<double>(n));
      }
      const ComplexLanes& got = y[static_cast<std::size_t>(k)];
      const double margin = 1e-6 * static_cast<double>(n);
      REQUIRE(std::abs(sum - std::complex<double>(got.re[lane], got.im[lane])) < margin);
    }
  }
  CHECK(throws([] { LaneFft(131); }, "the prime 131 is above 127"));
}
