// The bound lies above the binomial tail, and close to it where it claims to.
// File tags: [sanitized]
#include "dp/numerics/binomial_tail.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/catch.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

// The sum itself, of up to 100 terms, in long double.
double tail(int n, double q, int max) {
  long double sum = 0;
  for (int k = n; k > max; --k) {
    long double term = 1;
    for (int i = 1; i <= k; ++i) term *= static_cast<long double>(n - k + i) / i * q;
    for (int i = 0; i < n - k; ++i) term *= 1 - static_cast<long double>(q);
    sum += term;
  }
  return static_cast<double>(sum);
}

TEST_CASE("the bound is above the tail, and by 2 % at most away from the middle") {
  for (const int n : {1, 2, 3, 7, 30, 100}) {
    for (const double q : {1e-9, 1e-3, 0.04, 0.5, 0.9, 0.999}) {
      for (int max = 0; max < n; ++max) {
        const double truth = tail(n, q, max), bound = binomial_tail(n, q, max);
        CHECK(bound >= truth);
        if (max >= n * q)
          CHECK(bound <= std::max(1.02 * truth, std::numeric_limits<double>::min()));
        else
          CHECK(bound <= 2 * truth);
      }
    }
  }
}

TEST_CASE("tails of large populations, to 1e-4, by summation with 40 digits") {
  struct Case {
    std::int64_t n;
    double rate;
    std::int64_t max;
    double tail;
  };
  for (const auto& [n, rate, max, tail] :
       {Case{60'001, 256.0 / 60'000, 400, 2.9934607365093913e-17},
        Case{60'001, 256.0 / 60'000, 257, 0.45860989594201586},
        Case{1'000'001, 1e-3, 1100, 8.629943192068805e-4},
        Case{1'000'000'000, 1e-5, 10'500, 3.421353145774991e-7},
        Case{50'001, 0.02, 2300, 7.2325323322825901e-278},
        Case{1000, 0.99, 995, 0.028686399999004562}}) {
    CHECK(binomial_tail(n, rate, max) >= tail);
    CHECK(binomial_tail(n, rate, max) < tail * (max < 990 || max > 1000 ? 1.0001 : 1.02));
  }
}

TEST_CASE("a possible event never has a bound of 0, and an impossible one has") {
  // 1.2e-401.
  CHECK(binomial_tail(60'001, 256.0 / 60'000, 1200) == std::numeric_limits<double>::min());
  CHECK(binomial_tail(1'000'000, 1e-19, 999'999) == std::numeric_limits<double>::min());
  CHECK(binomial_tail(60'001, 256.0 / 60'000, 60'001) == 0);
  CHECK(binomial_tail(10, 1, 10) == 0);
  CHECK(binomial_tail(10, 1, 9) == 1);
  CHECK(binomial_tail(10, 0.5, 4) == 1);
}

TEST_CASE("impossible binomials are refused") {
  for (const double rate : {0.0, -1.0, 1.5, std::nan("")})
    CHECK(throws([&] { binomial_tail(10, rate, 3); }, "more than 3 of 10 units at rate"));
  CHECK(throws([] { binomial_tail(0, 0.5, 3); }, "of 0 units"));
  CHECK(throws([] { binomial_tail((std::int64_t{1} << 53) + 1, 0.5, 3); }, "of 9007199254740993"));
  CHECK(throws([] { binomial_tail(10, 0.5, -1); }, "more than -1"));
}

}  // namespace
}  // namespace sotto
