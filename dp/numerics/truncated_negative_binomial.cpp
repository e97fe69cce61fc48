#include "dp/numerics/truncated_negative_binomial.h"

#include <cmath>

#include "core/error.h"
#include "core/random/secret_random.h"
#include "dp/numerics/root_search.h"

namespace sotto {

namespace {

constexpr double max_eta = 100, min_mean = 1.001, max_mean = 1000, min_drawn_gamma = 1e-4;

double mean_of(double eta, double gamma) {
  const double log_gamma = std::log(gamma);
  const double ratio = eta == 0 ? -1 / log_gamma : -eta / std::expm1(eta * log_gamma);
  return ratio * (1 - gamma) / gamma;
}

// P[K = k + 1] / P[K = k]
double step(const TruncatedNegativeBinomial& of, double k) {
  return (1 - of.gamma) * (k + of.eta) / (k + 1);
}

// P[K >= k] / P[K = k] >= 1: the sum of products of steps, which fall below 1 - gamma or towards
// it, until the rest no longer counts.
double inverse_hazard(const TruncatedNegativeBinomial& of, double k) {
  constexpr double negligible = 0x1p-56;
  double sum = 1, product = 1;
  for (double j = k; product > negligible * of.gamma * sum || step(of, j) >= 1; ++j) {
    product *= step(of, j);
    sum += product;
  }
  return sum;
}

void check_eta(const char* op, double eta) {
  check(eta > -1 && eta <= max_eta, "{}: eta {} of a number of runs is not in (-1, {}]", op, eta,
        max_eta);
}

}  // namespace

TruncatedNegativeBinomial TruncatedNegativeBinomial::with_mean(double mean, double eta) {
  check_eta("number of runs", eta);
  check(mean >= min_mean && mean <= max_mean, "number of runs: a mean of {} is not in [{}, {}]",
        mean, min_mean, max_mean);
  constexpr double tolerance = 1e-12, near_one = 1 - 1e-6;
  double low = near_one;
  for (; mean_of(eta, low) < mean; low /= 2)
    check(std::isnormal(low), "number of runs: a mean of {} with eta {} has a gamma too near 0",
          mean, eta);
  const double gamma =
      safe_root(low, near_one, tolerance, [&](double g) { return mean_of(eta, g) - mean; });
  return {.eta = eta, .gamma = gamma};
}

void TruncatedNegativeBinomial::check_range(const char* op) const {
  check_eta(op, eta);
  check(gamma > 0 && gamma < 1, "{}: gamma {} of a number of runs is not in (0, 1)", op, gamma);
  check(mean() <= max_mean + 1, "{}: {} runs in the mean are more than {}", op, mean(), max_mean);
}

void TruncatedNegativeBinomial::check_draws(const char* op) const {
  check_range(op);
  check(
      gamma >= min_drawn_gamma,
      "{}: a number of runs with eta {} and gamma {} has no end in sight: gamma is below {} (take "
      "a smaller mean or a larger eta)",
      op, eta, gamma, min_drawn_gamma);
}

double TruncatedNegativeBinomial::mean() const { return mean_of(eta, gamma); }

double TruncatedNegativeBinomial::probability(std::int64_t k) const {
  double probability = mean() * std::pow(gamma, eta + 1);  // P[K = 1]
  for (std::int64_t j = 1; j < k; ++j) probability *= step(*this, static_cast<double>(j));
  return probability;
}

std::int64_t TruncatedNegativeBinomial::draw(SecretRandom& random) const {
  check_draws("draw");
  std::int64_t k = 1;
  while (random.uniform() * inverse_hazard(*this, static_cast<double>(k)) >= 1) ++k;
  return k;
}

}  // namespace sotto
