// The number of runs of a private selection: its probabilities, mean and draws.
// File tags: [sanitized]
#include "dp/numerics/truncated_negative_binomial.h"

#include <cmath>
#include <vector>

#include "core/random/secret_random.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

const std::vector<TruncatedNegativeBinomial> all = {
    {1, 0.1}, {0, 0.05}, {0.5, 0.2}, {-0.5, 0.01}, {3, 0.3}};

TEST_CASE("the probabilities of a number of runs add up to 1, and have the mean told") {
  for (const TruncatedNegativeBinomial& runs : all) {
    CAPTURE(runs.eta, runs.gamma);
    double sum = 0, mean = 0;
    for (std::int64_t k = 1; k <= 4000; ++k) {
      const double probability = runs.probability(k);
      sum += probability;
      mean += static_cast<double>(k) * probability;
    }
    CHECK(sum == Approx(1).epsilon(1e-11));
    CHECK(runs.mean() == Approx(mean).epsilon(1e-9));
  }
}

TEST_CASE("eta 1 is the geometric distribution, and eta 0 the logarithmic one") {
  const TruncatedNegativeBinomial geometric{1, 0.1}, logarithmic{0, 0.1};
  for (int k = 1; k < 40; ++k) {
    CHECK(geometric.probability(k) == Approx(0.1 * std::pow(0.9, k - 1)).epsilon(1e-12));
    CHECK(logarithmic.probability(k) ==
          Approx(std::pow(0.9, k) / (k * std::log(10.0))).epsilon(1e-12));
  }
}

TEST_CASE("a distribution with a mean has it") {
  for (const double eta : {-0.9, -0.5, 0.0, 1e-9, 0.5, 1.0, 10.0}) {
    for (const double mean : {1.001, 1.5, 3.0, 10.0, 1000.0}) {
      CAPTURE(eta, mean);
      CHECK(TruncatedNegativeBinomial::with_mean(mean, eta).mean() == Approx(mean).epsilon(1e-9));
    }
  }
}

// A false alarm at one of some 50 counts, at five standard deviations, has a probability of 3e-5;
// the seed is fixed.
TEST_CASE("numbers of runs are drawn with their probabilities", "[gate]") {
  constexpr int draws = 40000;
  for (const TruncatedNegativeBinomial& runs : all) {
    CAPTURE(runs.eta, runs.gamma);
    SecretRandom random = SecretRandom::insecure_seeded(7);
    std::vector<int> counts(12);
    for (int i = 0; i < draws; ++i) {
      const std::int64_t k = runs.draw(random);
      REQUIRE(k >= 1);
      if (k < 12) ++counts[static_cast<std::size_t>(k)];
    }
    for (int k = 1; k < 12; ++k) {
      const double p = runs.probability(k);
      CAPTURE(k, p);
      CHECK(std::abs(counts[static_cast<std::size_t>(k)] - draws * p) <=
            5 * std::sqrt(draws * p * (1 - p)));
    }
  }
}

TEST_CASE("numbers of runs out of range are refused with their values") {
  SecretRandom random = SecretRandom::insecure_seeded(1);
  CHECK(throws([] { TruncatedNegativeBinomial::with_mean(1); },
               "a mean of 1 is not in [1.001, 1000]"));
  CHECK_THROWS_AS(TruncatedNegativeBinomial::with_mean(1001), std::invalid_argument);
  CHECK_THROWS_AS(TruncatedNegativeBinomial::with_mean(std::nan("")), std::invalid_argument);
  CHECK_THROWS_AS(TruncatedNegativeBinomial::with_mean(10, -1), std::invalid_argument);
  CHECK(throws([] { TruncatedNegativeBinomial::with_mean(1000, -0.999); }, "gamma too near 0"));
  for (const auto& [eta, gamma] :
       std::vector<std::pair<double, double>>{{-1, 0.1}, {1, 0}, {1, 1}, {1, 1e-5}, {NAN, 0.1}}) {
    CAPTURE(eta, gamma);
    const TruncatedNegativeBinomial runs{eta, gamma};
    CHECK_THROWS_AS(runs.draw(random), std::invalid_argument);
  }
}

// Before it was bounded, a draw with a gamma of 2.5e-7 took 1e8 operations for each number passed.
TEST_CASE("no number of runs is drawn without end, over the range of means and shapes") {
  SecretRandom random = SecretRandom::insecure_seeded(2);
  int drawn = 0;
  for (const double eta : {-0.99, -0.9, -0.5, -0.1, 0.0, 0.5, 1.0, 100.0}) {
    for (const double mean : {1.001, 2.0, 30.0, 1000.0}) {
      CAPTURE(eta, mean);
      try {
        const auto number = TruncatedNegativeBinomial::with_mean(mean, eta).draw(random);
        drawn += number < 1e6 ? 1 : 0;
      } catch (const std::invalid_argument&) {
        CHECK(eta < 0);
        CHECK(mean > 1.001);
      }
    }
  }
  CHECK(drawn >= 20);
  CHECK(throws([&] { TruncatedNegativeBinomial::with_mean(1000, -0.5).draw(random); },
               "draw: a number of runs with eta -0.5 and gamma 2.5"));
}

}  // namespace
}  // namespace sotto
