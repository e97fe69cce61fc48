#include "dp/accounting/pld/tilted_sum.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>
#include <vector>

#include "dp/accounting/pld/large_losses.h"
#include "dp/accounting/pld/pld_accountant.h"
#include "dp/numerics/fourier.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

// The number of large allocations that succeed before one fails; negative: all do.
std::atomic<int> large_left = -1;

}  // namespace

void* operator new(std::size_t size) {
  constexpr std::size_t large = 1 << 15;
  if (size >= large && large_left >= 0 && large_left-- == 0) throw std::bad_alloc();
  if (void* const place = std::malloc(std::max<std::size_t>(size, 1))) return place;
  throw std::bad_alloc();
}
void operator delete(void* place) noexcept { std::free(place); }
void operator delete(void* place, std::size_t) noexcept { std::free(place); }

namespace {

// A normal loss with this standard deviation in spacings, rounded to whole spacings.
DiscretePld normal(double stddev) {
  constexpr double reach = 9;
  DiscretePld pair{.spacing = 1e-3, .atoms = {}};
  const double log_norm = std::log(stddev * std::sqrt(2 * std::acos(-1.0)));
  const auto last = static_cast<std::int64_t>(reach * stddev);
  for (std::int64_t i = -last; i <= last; ++i) {
    const double z = static_cast<double>(i) / stddev;
    pair.atoms.push_back({i, -0.5 * z * z - log_norm});
  }
  return pair;
}

// The curve of n such losses, without a tilt.
DeltaCurve curve(const DiscretePld& pair, int n, Bound bound) {
  constexpr double reach = 10;  // spacings
  TiltedSum sum(0, pair.spacing, 64);
  if (n > 0) sum.add(sum.tilted(pair), n);
  return {sum, {.low = -reach * pair.spacing, .high = reach * pair.spacing}, bound};
}

// delta of n losses, by enumeration.
double enumerated(const DiscretePld& pair, int n, double epsilon) {
  if (n == 0) return std::max(-std::expm1(epsilon), 0.0);
  double sum = 0;
  for (const auto& atom : pair.atoms) {
    sum += std::exp(atom.log_mass) * enumerated(pair, n - 1, epsilon - pair.loss(atom));
  }
  return sum;
}

}  // namespace

TEST_CASE("a Fourier transform is its formula, and its inverse gives the sequence back") {
  for (const std::int64_t size : {4, 6, 8, 12, 16, 24, 64, 96, 128, 192}) {
    std::vector<double> x(static_cast<std::size_t>(size));
    for (std::size_t j = 0; j < x.size(); ++j) x[j] = std::sin(static_cast<double>(j * j) + 0.3);
    FourierTransform& transform = fourier_transform(size);
    const auto spectrum = transform.forward(x);
    REQUIRE(std::ssize(spectrum) == size / 2 + 1);
    const double turn = 2 * std::acos(-1.0) / static_cast<double>(size);
    double error = 0;
    for (std::int64_t k = 0; k <= size / 2; ++k) {
      std::complex<double> sum = 0;
      for (std::int64_t j = 0; j < size; ++j)
        sum +=
            std::polar(x[static_cast<std::size_t>(j)], -turn * static_cast<double>(j * k % size));
      error = std::max(error, std::abs(sum - spectrum[static_cast<std::size_t>(k)]));
    }
    const std::vector<double> back = transform.inverse(spectrum);
    for (std::size_t j = 0; j < x.size(); ++j) error = std::max(error, std::abs(back[j] - x[j]));
    CAPTURE(size);
    CHECK(error < 1e-13);
  }
}

// The transform of a smooth loss is nearly 0 nearly everywhere, but that of its most likely value
// is not.
TEST_CASE("a sum is as accurate as its own bound") {
  for (const double stddev : {8.0, 30.0, 100.0}) {
    for (const int n : {1, 2, 8, 9}) {
      const DiscretePld loss = normal(stddev), exact = normal(stddev * std::sqrt(n));
      TiltedSum sum(0, loss.spacing, 1 << 13);
      sum.add(sum.tilted(loss), n);
      const std::vector<double> folded = sum.folded();
      const std::int64_t origin = std::lround(sum.offset() / loss.spacing);
      double error = 0;
      for (const auto& atom : exact.atoms) {
        const auto place =
            static_cast<std::size_t>(atom.index - origin + sum.size()) % folded.size();
        error = std::max(error, std::abs(folded[place] - std::exp(atom.log_mass)));
      }
      CAPTURE(stddev, n, error);
      CHECK(error <= sum.rounding());
    }
  }
}

TEST_CASE("delta below the window keeps its digits") {
  const DeltaCurve nothing = curve({.spacing = 1e-14, .atoms = {}}, 0, Bound::upper);
  for (const double epsilon : {-1e-11, -3.3e-12, -1e-12}) {
    const double truth = -std::expm1(epsilon);
    CAPTURE(epsilon);
    CHECK(nothing.delta(epsilon) >= truth);
    CHECK(nothing.delta(epsilon) <= truth * (1 + 1e-9));
  }
}

// Half of the tilted mass may lie outside the window, which ends at 2.
TEST_CASE("far from a tilted window a lower bound stays what it was, and an upper one falls") {
  constexpr double tilt = 4;
  const DiscretePld loss{.spacing = 0.5, .atoms = {{-2, std::log(0.8)}, {2, std::log(0.2)}}};
  TiltedSum sum(tilt, loss.spacing, 16);
  sum.add(sum.tilted(loss), 2);
  const LossWindow window{.low = -2, .high = 2, .outside_mass = 1e-5};
  const DeltaCurve lower(sum, window, Bound::lower), upper(sum, window, Bound::upper);
  double last = 1;
  for (double epsilon = -1.5; epsilon < 12; epsilon += 0.1) {
    const double truth = enumerated(loss, 2, epsilon), below = lower.delta(epsilon);
    CAPTURE(epsilon, truth);
    CHECK(below <= std::min(truth, last));
    CHECK(upper.delta(epsilon) >= truth);
    last = below;
  }
  CHECK(lower.delta(-1.5) > 0.03);
  CHECK(upper.delta(12) < 1e-4 * upper.delta(8));
}

TEST_CASE("delta with large losses is bounded from both sides") {
  constexpr int n = 3;
  constexpr double jump = 0.01, two_jumps = 1e-3;
  DiscretePld rest{.spacing = 0.05, .atoms = {{-1, std::log(0.5)}, {1, std::log(0.49)}}},
      all = rest;
  all.atoms.push_back({40, std::log(jump)});
  const double loss = all.loss(all.atoms.back()), mass = 1 - jump;
  const double shift = log_moment(rest, -1) - log_moment(rest, 0);
  const auto sum = curve(rest, n, Bound::upper), less = curve(rest, n, Bound::lower);
  LargeLossCurve upper(sum, curve(rest, n - 1, Bound::upper), Bound::upper, {shift, mass});
  upper.add({loss, n * jump});
  LargeLossCurve from_all(sum, sum, Bound::upper, {});
  from_all.add({loss + shift, n * jump / mass});
  LargeLossCurve lower(less, curve(rest, n - 1, Bound::lower), Bound::lower, {.kept = mass * mass});
  lower.add({loss, n * jump});
  for (const double epsilon : {0.0, 0.01, 0.1, 0.7, 1.9, 1.98, 2.05, 2.5}) {
    const double truth = enumerated(all, n, epsilon);
    CAPTURE(epsilon, truth);
    CHECK(upper.delta(epsilon) >= truth);
    CHECK(upper.delta(epsilon) <= truth + 2 * two_jumps);
    CHECK(from_all.delta(epsilon) >= truth);
    CHECK(from_all.delta(epsilon) <= truth + 3 * two_jumps);
    CHECK(lower.delta(epsilon) <= truth);
    CHECK(lower.delta(epsilon) >= truth - two_jumps);
  }
}

TEST_CASE("an answer that ran out of memory leaves no half-added terms for the next") {
  constexpr double delta = 1e-5;
  const auto history = [](int kinds) {
    PldAccountant accountant;
    for (int i = 0; i < kinds; ++i) accountant.compose({1.0 + 0.5 * i, Sampling::poisson, 0.05}, 9);
    return accountant;
  };
  for (const int kinds : {1, 3}) {
    const double truth = history(kinds).epsilon(delta);
    bool failed = true;
    for (int place = 0; failed; ++place) {
      const PldAccountant accountant = history(kinds);
      large_left = place;
      try {
        accountant.epsilon(delta);
        failed = false;
      } catch (const std::bad_alloc&) {
      }
      large_left = -1;
      CAPTURE(kinds, place);
      CHECK(accountant.epsilon(delta) == truth);
    }
  }
}
