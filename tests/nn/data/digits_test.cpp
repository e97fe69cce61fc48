#include "nn/data/digits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "tests/support/catch.h"

#include "tests/support/threads.h"

using namespace sotto;

namespace {

constexpr std::int64_t pixels = 28 * 28;
constexpr std::size_t classes = 10;

std::vector<float> values(const Dataset& digits) { return digits.inputs.to_vector<float>(); }

std::vector<std::int64_t> labels(const Dataset& digits) {
  return digits.targets.to_vector<std::int64_t>();
}

struct ClassMeans {
  std::vector<double> image = std::vector<double>(classes * pixels);
  std::array<double, classes> ink{};
  std::array<std::int64_t, classes> count{};
};

ClassMeans class_means(const Dataset& digits) {
  ClassMeans means;
  const std::vector<float> all = values(digits);
  const std::vector<std::int64_t> label = labels(digits);
  for (std::size_t k = 0; k < label.size(); ++k) {
    const auto c = static_cast<std::size_t>(label[k]);
    ++means.count[c];
    for (std::size_t p = 0; p < pixels; ++p) means.image[c * pixels + p] += all[k * pixels + p];
  }
  for (std::size_t c = 0; c < classes; ++c) {
    for (std::size_t p = 0; p < pixels; ++p) {
      double& mean = means.image[c * pixels + p];
      mean /= static_cast<double>(means.count[c]);
      means.ink[c] += mean / pixels;
    }
  }
  return means;
}

std::int64_t nearest(const ClassMeans& means, const float* image) {
  double best = std::numeric_limits<double>::infinity();
  std::int64_t label = 0;
  for (std::size_t c = 0; c < classes; ++c) {
    double distance = 0;
    for (std::size_t p = 0; p < pixels; ++p) {
      distance += std::pow(means.image[c * pixels + p] - image[p], 2);
    }
    if (distance < best) {
      best = distance;
      label = static_cast<std::int64_t>(c);
    }
  }
  return label;
}

}  // namespace

TEST_CASE("digits are a function of the seed and the index") {
  const Dataset whole = make_digits(40, 7);
  CHECK(values(make_digits(40, 7)) == values(whole));
  CHECK(labels(make_digits(40, 7)) == labels(whole));
  const Dataset part = make_digits(15, 7, 20);
  CHECK(values(part) == values(whole.slice(20, 35)));
  CHECK(labels(part) == labels(whole.slice(20, 35)));
  CHECK(values(make_digits(40, 8)) != values(whole));
}

TEST_CASE("digits do not depend on the number of threads") {
  const auto drawn = [](int threads) {
    const Threads scope(threads);
    return values(make_digits(200, 3));
  };
  const std::vector<float> alone = drawn(1);
  CHECK(drawn(2) == alone);
  CHECK(drawn(5) == alone);
}

TEST_CASE("digits are grey images of 28 x 28 in 256 levels with labels 0 to 9") {
  const Dataset digits = make_digits(500, 1);
  CHECK(digits.inputs.shape() == Shape{500, 1, 28, 28});
  CHECK(digits.targets.shape() == Shape{500});
  for (const float value : values(digits)) {
    REQUIRE((value >= 0 && value <= 1));
    REQUIRE(value == std::round(255 * value) / 255);
  }
  for (const std::int64_t label : labels(digits)) REQUIRE((label >= 0 && label <= 9));
}

TEST_CASE("each digit has ink, and paper around it") {
  const std::vector<float> all = values(make_digits(2000, 2));
  for (std::size_t k = 0; k < 2000; ++k) {
    const float* image = &all[k * pixels];
    const auto inked = std::count_if(image, image + pixels, [](float v) { return v > 0.3f; });
    REQUIRE((inked >= 12 && inked <= pixels / 2));
  }
}

// Counts are binomial(20000, 0.1) with standard deviation 42.4. A bound of 4.5 standard deviations
// is exceeded by chance with probability 7e-6 for a class, 7e-5 for the test.
TEST_CASE("the ten digits are equally likely") {
  const ClassMeans means = class_means(make_digits(20000, 4));
  for (const std::int64_t count : means.count) CHECK(std::abs(count - 2000) < 191);
}

// Zeros and eights have more ink than ones and sevens in every hand.
TEST_CASE("digits differ in their mean ink") {
  const ClassMeans means = class_means(make_digits(5000, 5));
  for (const std::size_t many : {0, 8}) {
    for (const std::size_t few : {1, 7}) CHECK(means.ink[many] > 1.2 * means.ink[few]);
  }
  CHECK(means.ink[7] > 1.2 * means.ink[1]);
}

TEST_CASE("no two of two thousand digits are equal") {
  const std::vector<float> all = values(make_digits(2000, 6));
  std::set<std::vector<float>> distinct;
  for (std::size_t k = 0; k < 2000; ++k) {
    distinct.emplace(&all[k * pixels], &all[k * pixels] + pixels);
  }
  CHECK(distinct.size() == 2000);
}

// The nearest class mean classifies about 75 % of them: far above chance, far below all.
TEST_CASE("digits can be told apart, but not by their class means alone") {
  const ClassMeans means = class_means(make_digits(5000, 7));
  const Dataset test = make_digits(2000, 7, 5000);
  const std::vector<float> all = values(test);
  const std::vector<std::int64_t> label = labels(test);
  int right = 0;
  for (std::size_t k = 0; k < label.size(); ++k) {
    right += nearest(means, &all[k * pixels]) == label[k] ? 1 : 0;
  }
  CHECK(right > 2000 * 60 / 100);
  CHECK(right < 2000 * 95 / 100);
}

TEST_CASE("no digits are a data set of none, and ranges that cannot be are refused") {
  CHECK(make_digits(0, 1).size() == 0);
  CHECK_THROWS_AS(make_digits(-1, 1), std::invalid_argument);
  CHECK_THROWS_AS(make_digits(1, 1, -1), std::invalid_argument);
  CHECK_THROWS_AS(make_digits(1, 1, std::int64_t{1} << 48), std::invalid_argument);
  CHECK_THROWS_AS(make_digits(1, 1, std::numeric_limits<std::int64_t>::max()),
                  std::invalid_argument);
  CHECK(make_digits(1, 1, (std::int64_t{1} << 48) - 1).size() == 1);
}
