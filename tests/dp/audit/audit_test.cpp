// Lower bounds on epsilon from scores, against mechanisms whose privacy is known exactly.
#include "dp/audit/audit.h"
#include "dp/audit/clopper_pearson_audit.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "core/random/philox.h"
#include "dp/accounting/gdp.h"
#include "dp/numerics/binomial.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

// The probability that randomised response with this epsilon is right.
double accuracy(double epsilon) { return 1 / (1 + std::exp(-epsilon)); }

// Theorem 5.2 of Steinke et al. (2023): beta + 2 m delta max_i P[v > W >= v - i] / i.
double published_p_value(std::int64_t m, std::int64_t r, std::int64_t v, double epsilon,
                         double delta) {
  const double q = accuracy(epsilon);
  const double beta = binomial_at_least(r, v, q).probability;
  double max = 0;
  for (std::int64_t i = 1; i <= v; ++i) {
    const double between = binomial_at_least(r, v - i, q).probability - beta;
    max = std::max(max, between / static_cast<double>(i));
  }
  return std::min(1.0, beta + 2 * static_cast<double>(m) * delta * max);
}

// The largest epsilon that a p-value refutes at 5 %.
template <class PValue>
double refuted(const PValue& p_value) {
  double low = 0, high = 50;
  for (int i = 0; i < 60; ++i) {
    const double middle = (low + high) / 2;
    (p_value(middle) <= 0.05 ? low : high) = middle;
  }
  return low;
}

struct Case {
  std::int64_t canaries, guesses;
};
constexpr Case cases[] = {{1, 1}, {7, 1}, {7, 7}, {40, 13}, {300, 300}, {1000, 60}};

TEST_CASE("without a delta the p-value is randomised response's tail") {
  for (const auto& [m, r] : cases) {
    for (std::int64_t v = 0; v <= r; ++v) {
      CHECK(one_run_p_value(m, r, v, 0.7, 0) ==
            Approx(binomial_at_least(r, v, accuracy(0.7)).probability).epsilon(1e-12));
    }
  }
  CHECK(one_run_p_value(10, 10, 10, 0, 0) == Approx(std::pow(0.5, 10)));
}

TEST_CASE("the p-value rises with epsilon and delta and falls with what was right") {
  for (const auto& [m, r] : cases) {
    for (std::int64_t v = 1; v <= r; ++v) {
      for (const double delta : {0.0, 1e-6, 0.01, 0.5}) {
        double before = 0;
        for (const double epsilon : {0.0, 0.1, 0.5, 1.0, 3.0, 10.0, 50.0}) {
          const double p = one_run_p_value(m, r, v, epsilon, delta);
          CHECK(p >= before * (1 - 1e-12));
          before = p;
          CHECK(p <= one_run_p_value(m, r, v - 1, epsilon, delta) * (1 + 1e-12));
          CHECK(p <= one_run_p_value(m, r, v, epsilon, delta + 0.01) * (1 + 1e-12));
        }
      }
    }
  }
}

// The attacks of docs/appendix/proofs-audit.md, section 2, whose success is known exactly.
TEST_CASE("no attack on an (epsilon, delta) private answer does better than the p-value allows") {
  constexpr double rounding = 1 + 1e-10;
  for (const auto& [m, r] : cases) {
    for (const double epsilon : {0.0, 0.5, 2.0}) {
      for (const double delta : {1e-5, 1e-3, 0.02}) {
        const double q = accuracy(epsilon);
        // A group of r canaries is chosen among m / r; then each of its coins is published with
        // this probability, or all together.
        const double leak = std::min(1.0, delta * static_cast<double>(m / r));
        for (std::int64_t v = 1; v <= r; ++v) {
          const double p = one_run_p_value(m, r, v, epsilon, delta);
          CHECK(binomial_at_least(r, v, q + (1 - q) * leak).probability <= p * rounding);
          const double beta = binomial_at_least(r, v, q).probability;
          CHECK(beta + (1 - beta) * leak <= p * rounding);
        }
      }
    }
  }
}

// P[answer | coins] for all coins of four canaries and all answers with two or four guesses; bit k
// of `coins` and of `values` is canary k's, and `asked` has the bits of the guessed canaries.
struct Answer {
  unsigned asked, values;
};
using Mechanism = std::vector<std::vector<double>>;  // [coins][answer]
constexpr unsigned four = 4, all_coins = 1U << four;

std::vector<Answer> answers(int guesses) {
  std::vector<Answer> all;
  for (unsigned asked = 0; asked < all_coins; ++asked) {
    for (unsigned values = 0; values < all_coins; ++values) {
      if (std::popcount(asked) == guesses && (values & ~asked) == 0) all.push_back({asked, values});
    }
  }
  return all;
}

int right(const Answer& answer, unsigned coins) {
  return std::popcount(answer.asked & ~(answer.values ^ coins));
}

// Prefers right answers, by a random power, a little or a lot.
Mechanism random_mechanism(const std::vector<Answer>& to, PublicRandom& random) {
  const double power = 4 * random.uniform(), noise = 3 * random.uniform();
  Mechanism mechanism(all_coins);
  for (unsigned coins = 0; coins < all_coins; ++coins) {
    double total = 0;
    for (const Answer& answer : to) {
      mechanism[coins].push_back(std::exp(power * right(answer, coins) + noise * random.normal()));
      total += mechanism[coins].back();
    }
    for (double& p : mechanism[coins]) p /= total;
  }
  return mechanism;
}

// The smallest delta with which the mechanism is private for this epsilon.
double delta_of(const Mechanism& mechanism, double epsilon) {
  double max = 0;
  for (unsigned coins = 0; coins < all_coins; ++coins) {
    for (unsigned k = 0; k < four; ++k) {
      const std::vector<double>& other = mechanism[coins ^ (1U << k)];
      double excess = 0;
      for (std::size_t t = 0; t < other.size(); ++t)
        excess += std::max(0.0, mechanism[coins][t] - std::exp(epsilon) * other[t]);
      max = std::max(max, excess);
    }
  }
  return max;
}

TEST_CASE("random mechanisms are right no more often than their epsilon and delta allow") {
  double closest = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    PublicRandom random(seed, 5);
    const int guesses = seed % 2 == 0 ? 4 : 2;
    const std::vector<Answer> to = answers(guesses);
    const Mechanism mechanism = random_mechanism(to, random);
    for (const double epsilon : {0.0, 0.5, 1.0, 2.0, 4.0}) {
      const double delta = delta_of(mechanism, epsilon);
      for (int v = 1; v <= guesses; ++v) {
        double as_often = 0;
        for (unsigned coins = 0; coins < all_coins; ++coins) {
          for (std::size_t t = 0; t < to.size(); ++t)
            as_often += right(to[t], coins) >= v ? mechanism[coins][t] / all_coins : 0;
        }
        const double allowed = one_run_p_value(four, guesses, v, epsilon, delta);
        CHECK(as_often <= allowed * (1 + 1e-12));
        if (allowed < 1) closest = std::max(closest, as_often / allowed);
      }
    }
  }
  CHECK(closest > 0.95);
}

TEST_CASE("the p-value is sharp for a single guess and where every guess was right") {
  for (const double epsilon : {0.0, 1.0, 4.0}) {
    const double q = accuracy(epsilon), delta = 0.01;
    CHECK(one_run_p_value(9, 1, 1, epsilon, delta) == Approx(q + (1 - q) * 9 * delta));
    const double all = std::pow(q, 20);
    CHECK(one_run_p_value(20, 20, 20, epsilon, delta) == Approx(all + (1 - all) * delta));
  }
}

TEST_CASE("bounds are those published without a delta, and above the published ones with one") {
  for (const auto& [m, r, v] : {std::array<std::int64_t, 3>{1000, 1000, 1000},
                                {1000, 1000, 700},
                                {1000, 200, 190},
                                {1000, 100, 100},
                                {10'000, 1000, 900}}) {
    const auto bounds = [canaries = m, guesses = r, correct = v](double delta) {
      return std::pair(
          refuted([&](double e) { return one_run_p_value(canaries, guesses, correct, e, delta); }),
          refuted(
              [&](double e) { return published_p_value(canaries, guesses, correct, e, delta); }));
    };
    CHECK(bounds(0).first == Approx(bounds(0).second).epsilon(1e-9));
    for (const double delta : {1e-6, 1e-5, 1e-4}) {
      const auto [ours, theirs] = bounds(delta);
      CHECK(ours >= theirs);
      CHECK(ours <= bounds(0).first);
    }
  }
  // All of 1000 right at delta 1e-5: 5.78 by the published procedure.
  CHECK(refuted([](double e) { return published_p_value(1000, 1000, 1000, e, 1e-5); }) ==
        Approx(5.7823).epsilon(1e-4));
  CHECK(refuted([](double e) { return one_run_p_value(1000, 1000, 1000, e, 1e-5); }) ==
        Approx(5.8090).epsilon(1e-4));
}

// Scores that randomised response with this epsilon gives to `count` canaries.
std::vector<double> responses(const std::vector<bool>& included, double epsilon,
                              PublicRandom& random) {
  std::vector<double> scores;
  for (const bool in : included) {
    const bool honest = random.uniform() < accuracy(epsilon);
    scores.push_back((in == honest ? 1 : -1) + 1e-3 * random.uniform());
  }
  return scores;
}

std::vector<bool> coins(std::int64_t count, PublicRandom& random) {
  std::vector<bool> included;
  for (std::int64_t k = 0; k < count; ++k) included.push_back(random.below(2) == 1);
  return included;
}

TEST_CASE("randomised response is bounded just below its epsilon, from all guesses") {
  PublicRandom random(1);
  const std::vector<bool> included = coins(20'000, random);
  const OneRunAudit audit =
      one_run_audit(responses(included, 1.5, random), included, {.delta = 1e-9});
  CHECK(audit.epsilon < 1.5);
  CHECK(audit.epsilon > 1.4);
  CHECK(audit.guesses.in + audit.guesses.out == 20'000);
  CHECK(audit.in_words().find("of 20000 guesses") != std::string::npos);
}

// 500 audits at 80 % confidence, of which 100 may fail on average; more than 137 have a probability
// below 1e-4 (binomial).
TEST_CASE("bounds are above the truth no more often than the confidence says", "[gate]") {
  int one_run = 0, general = 0, gaussian = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    PublicRandom random(seed, 2);
    const std::vector<bool> included = coins(100, random);
    one_run += one_run_audit(responses(included, 1, random), included,
                             {.confidence = 0.8, .delta = 0, .guesses = {{50, 50}, {10, 10}}})
                   .epsilon > 1;
    std::vector<double> without, with;
    for (int k = 0; k < 150; ++k) {
      without.push_back(random.normal());
      with.push_back(random.normal() + 1);
    }
    const ClopperPearsonAudit audit =
        clopper_pearson_audit(without, with, {.confidence = 0.8, .delta = 0.01});
    general += audit.epsilon > gdp_epsilon(1, 0.01);
    gaussian += audit.mu > 1;
  }
  CHECK(one_run <= 137);
  CHECK(one_run > 0);
  CHECK(general <= 137);
  CHECK(gaussian <= 137);
  CHECK(gaussian > 0);
}

TEST_CASE("guesses that chance explains prove nothing") {
  PublicRandom random(3);
  const std::vector<bool> included = coins(500, random);
  std::vector<double> scores;
  for (int k = 0; k < 500; ++k) scores.push_back(random.normal());
  const OneRunAudit audit = one_run_audit(scores, included);
  CHECK(audit.epsilon == 0);
  CHECK(audit.in_words().find("no epsilon above 0") != std::string::npos);
  CHECK(clopper_pearson_audit(scores, scores).epsilon == 0);
  CHECK(clopper_pearson_audit(scores, scores).gaussian_epsilon == 0);
}

TEST_CASE("the guesses are the highest and the lowest scores, and ties are broken by index") {
  const std::vector<double> scores{3, 1, 2, 2, 5, 0};
  const std::vector<bool> included{true, false, false, true, false, true};
  const OneRunAudit audit =
      one_run_audit(scores, included, {.confidence = 0.5, .guesses = {{3, 2}}});
  CHECK(audit.correct == 3);  // in: 5 (wrong), 3, the later 2; out: 0 (wrong), 1
  CHECK(audit.lowest_in == 2);
  CHECK(audit.highest_out == 1);
  CHECK(one_run_audit(scores, included, {.guesses = {{1, 0}}}).highest_out ==
        -std::numeric_limits<double>::infinity());
}

TEST_CASE("a Gaussian mechanism's mu is found, and its epsilon from it") {
  PublicRandom random(4);
  std::vector<double> without, with;
  for (int k = 0; k < 20'000; ++k) {
    without.push_back(random.normal());
    with.push_back(random.normal() + 2);
  }
  const ClopperPearsonAudit audit = clopper_pearson_audit(without, with);
  CHECK(audit.mu < 2);
  CHECK(audit.mu > 1.9);
  CHECK(audit.gaussian_epsilon == gdp_epsilon(audit.mu, 1e-5));
  CHECK(audit.epsilon < audit.gaussian_epsilon);
  CHECK(audit.epsilon > 4);
  CHECK(audit.gaussian_errors.without == 10'000);
}

TEST_CASE("scores that tell all apart are bounded by their number") {
  const std::vector<double> without(2000, 0), with(2000, 1);
  const ClopperPearsonAudit audit = clopper_pearson_audit(without, with);
  const double max = proportion_at_most(1000, 0, 0.975);
  CHECK(audit.epsilon == Approx(std::log((1 - 1e-5 - max) / max)));
  CHECK(audit.errors.false_positives == 0);
  CHECK(audit.errors.false_negatives == 0);
}

TEST_CASE("audits refuse what they cannot judge") {
  const std::vector<double> scores{1, 2};
  const std::vector<bool> included{true, false};
  CHECK(throws([&] { one_run_audit({}, {}); }, "no scores"));
  CHECK(throws([&] { one_run_audit(scores, {true}); }, "2 scores and 1 memberships"));
  CHECK(throws([&] { one_run_audit(std::vector<double>{1, NAN}, included); }, "not a number"));
  CHECK(throws([&] { one_run_audit(scores, included, {.confidence = 1}); }, "confidence 1"));
  CHECK(throws([&] { one_run_audit(scores, included, {.delta = -1}); }, "delta -1"));
  CHECK(throws([&] { one_run_audit(scores, included, {.guesses = {{2, 1}}}); }, "2 guesses in"));
  CHECK(throws([&] { one_run_audit(scores, included, {.guesses = {{0, 0}}}); }, "0 guesses in"));
  CHECK(throws([&] { one_run_p_value(1, 2, 1, 1, 0); }, "1 correct of 2 guesses of 1 canaries"));
  CHECK(throws([&] { one_run_p_value(2, 2, 1, -1, 0); }, "epsilon -1"));
  CHECK(throws([&] { clopper_pearson_audit(std::vector<double>{1}, scores); }, "1 scores without"));
  CHECK(throws(
      [&] {
        clopper_pearson_audit(scores, std::vector<double>{1, NAN});
      },
      "with the canary"));
  CHECK(throws([&] { clopper_pearson_audit(scores, scores, {.delta = 0}); }, "delta 0"));
  CHECK(throws([&] { clopper_pearson_audit(scores, scores, {.confidence = 0}); }, "confidence 0"));
}

TEST_CASE("a confidence below 1 is told as less than 100 %") {
  CHECK(confidence_text(0.95) == "95 %");
  CHECK(confidence_text(0.57) == "57 %");
  CHECK(confidence_text(0.999999999999) == "99.9999999999 %");
  CHECK(confidence_text(std::nextafter(1.0, 0.0)).starts_with("99.99999999999"));
}

}  // namespace
}  // namespace sotto
