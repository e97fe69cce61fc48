// Binomial tails and limits against closed forms, sums and published values.
// File tags: [sanitized]
#include "dp/numerics/binomial.h"

#include <cmath>

#include "tests/support/catch.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

TEST_CASE("tails of few trials are the sums of their terms") {
  for (const double p : {0.0, 1e-9, 0.1, 0.5, 0.73, 1 - 1e-9, 1.0}) {
    double choose = 1;  // 12 choose j
    double mass[13], above = 0;
    for (int j = 0; j <= 12; ++j) {
      mass[j] = choose * std::pow(p, j) * std::pow(1 - p, 12 - j);
      choose = choose * (12 - j) / (j + 1);
    }
    for (int k = 12; k >= 0; --k) {
      above += mass[k];
      const BinomialTail tail = binomial_at_least(12, k, p);
      CHECK(tail.probability == Approx(above).epsilon(1e-12));
      if (mass[k] > 0) CHECK(tail.over_mass == Approx(above / mass[k]).epsilon(1e-7));
    }
  }
}

// Summed with rational numbers.
TEST_CASE("tails of many trials are exact, out to where they are tiny") {
  CHECK(binomial_at_least(1000, 550, 0.5).probability ==
        Approx(8.652680424881588e-4).epsilon(1e-11));
  CHECK(binomial_at_least(1000, 500, 0.5).probability == Approx(0.5126125090891804).epsilon(1e-11));
  CHECK(binomial_at_least(1000, 1000, 0.5).probability ==
        Approx(std::pow(0.5, 1000)).epsilon(1e-10));
  CHECK(binomial_at_least(1000, 0, 0.5).probability == 1);
}

TEST_CASE("the ratio of a tail to the mass is accurate even if the tail underflows") {
  const BinomialTail tail = binomial_at_least(10'000, 9'999, 0.5);
  CHECK(tail.probability == 0);
  CHECK(tail.over_mass == Approx(1 + 1e-4).epsilon(1e-14));
}

TEST_CASE("the limit for an event that was never seen is 1 - (1 - confidence)^(1/n)") {
  for (const std::int64_t n : {1, 10, 1000, 1'000'000}) {
    for (const double confidence : {0.6, 0.95, 1 - 1e-9}) {
      const double exact = -std::expm1(std::log(1 - confidence) / static_cast<double>(n));
      CHECK(proportion_at_most(n, 0, confidence) == Approx(exact).epsilon(1e-9));
    }
  }
  CHECK(proportion_at_most(7, 7, 0.95) == 1);
}

TEST_CASE("at the limit, at most the count seen has probability 1 - confidence") {
  for (const std::int64_t n : {5, 100, 3000}) {
    for (const std::int64_t k : {std::int64_t{1}, n / 3, n - 1}) {
      const double p = proportion_at_most(n, k, 0.975);
      CHECK(p > static_cast<double>(k) / static_cast<double>(n));
      CHECK(1 - binomial_at_least(n, k + 1, p).probability == Approx(0.025).epsilon(1e-7));
    }
  }
  // The Clopper-Pearson interval for 10 of 100 at 95 % ends at 0.1762.
  CHECK(proportion_at_most(100, 10, 0.975) == Approx(0.17622).epsilon(1e-4));
}

TEST_CASE("counts and probabilities out of range are refused") {
  CHECK(throws([] { binomial_at_least(3, 4, 0.5); }, "4 of 3"));
  CHECK(throws([] { binomial_at_least(3, -1, 0.5); }, "-1 of 3"));
  CHECK(throws([] { binomial_at_least(3, 1, 1.5); }, "1.5"));
  CHECK(throws([] { binomial_at_least(3, 1, std::nan("")); }, "nan"));
  CHECK(throws([] { proportion_at_most(0, 0, 0.9); }, "0 of 0"));
  CHECK(throws([] { proportion_at_most(3, 1, 0.5); }, "confidence"));
  CHECK(throws([] { proportion_at_most(3, 1, 1.0); }, "confidence"));
}

}  // namespace
}  // namespace sotto
