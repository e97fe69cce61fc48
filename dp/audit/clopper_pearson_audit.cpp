#include "dp/audit/clopper_pearson_audit.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "core/error.h"
#include "dp/accounting/gdp.h"
#include "dp/audit/audit.h"
#include "dp/numerics/binomial.h"
#include "dp/numerics/directed_rounding.h"
#include "dp/numerics/root_search.h"

namespace sotto {

namespace {

// The number of thresholds to choose from, at equal steps in the order of the scores.
constexpr std::size_t max_thresholds = 400;

// A lower bound on a mechanism's parameter from bounds on its two error probabilities.
using Claim = double (*)(double false_positives, double false_negatives, double delta);

double epsilon_of(double false_positives, double false_negatives, double delta) {
  const auto ratio = [&](double one, double other) {
    return 1 - delta > one ? std::log((1 - delta - one) / other) : 0;
  };
  return std::max(
      {0.0, ratio(false_negatives, false_positives), ratio(false_positives, false_negatives)});
}

// The x with P[N(0, 1) > x] = p, rounded down.
double upper_quantile(double p) {
  constexpr double far = 40, tolerance = 1e-12;
  if (p >= 1) return -far;
  const auto excess = [&](double x) { return p - 0.5 * std::erfc(x / std::numbers::sqrt2); };
  return safe_root(far, -far, tolerance, excess);
}

// mu = Phi^-1(1 - FPR) - Phi^-1(FNR)
double mu_of(double false_positives, double false_negatives, double /*delta*/) {
  return std::max(0.0, upper_quantile(false_positives) + upper_quantile(false_negatives));
}

std::vector<double> every_second(std::span<const double> scores, std::size_t first) {
  std::vector<double> half;
  for (std::size_t k = first; k < scores.size(); k += 2) half.push_back(scores[k]);
  std::sort(half.begin(), half.end());
  return half;
}

// The scores of one half, each kind in increasing order.
struct Half {
  std::vector<double> without, with;

  TestErrors errors(double threshold, double confidence) const {
    const auto below = [&](const std::vector<double>& sorted) {
      return std::lower_bound(sorted.begin(), sorted.end(), threshold) - sorted.begin();
    };
    TestErrors errors{.threshold = threshold,
                      .false_positives = std::ssize(without) - below(without),
                      .without = std::ssize(without),
                      .false_negatives = below(with),
                      .with = std::ssize(with)};
    const double each = (1 + confidence) / 2;  // half of the failure probability
    errors.max_false_positives = proportion_at_most(errors.without, errors.false_positives, each);
    errors.max_false_negatives = proportion_at_most(errors.with, errors.false_negatives, each);
    return errors;
  }
};

// The threshold with the best claim on this half, at a confidence that makes all its claims hold
// together: otherwise a lucky one far out in the tails would be chosen, which the other half would
// not confirm.
double best_threshold(const Half& half, Claim claim, const ClopperPearsonOptions& options) {
  std::vector<double> all = half.without;
  all.insert(all.end(), half.with.begin(), half.with.end());
  std::sort(all.begin(), all.end());
  const std::size_t step = all.size() / max_thresholds + 1;
  const double tried = static_cast<double>((all.size() + step - 1) / step);
  const double confidence = 1 - (1 - options.confidence) / tried;
  double best = -1, threshold = 0;
  for (std::size_t k = 0; k < all.size(); k += step) {
    const TestErrors errors = half.errors(all[k], confidence);
    const double claimed =
        claim(errors.max_false_positives, errors.max_false_negatives, options.delta);
    if (claimed <= best) continue;
    best = claimed;
    threshold = all[k];
  }
  return threshold;
}

void check_scores(const char* kind, std::span<const double> scores) {
  check(scores.size() >= 2, "clopper_pearson_audit: {} scores {} the canary", scores.size(), kind);
  check(std::none_of(scores.begin(), scores.end(), [](double s) { return std::isnan(s); }),
        "clopper_pearson_audit: a score {} the canary is not a number", kind);
}

}  // namespace

ClopperPearsonAudit clopper_pearson_audit(std::span<const double> without,
                                          std::span<const double> with,
                                          const ClopperPearsonOptions& options) {
  check_scores("without", without);
  check_scores("with", with);
  check(options.confidence > 0 && options.confidence < 1,
        "clopper_pearson_audit: confidence {} is not in (0, 1)", options.confidence);
  check(options.delta > 0 && options.delta < 1, "clopper_pearson_audit: delta {} is not in (0, 1)",
        options.delta);
  const Half chosen_on{every_second(without, 0), every_second(with, 0)};
  const Half counted_on{every_second(without, 1), every_second(with, 1)};
  const auto errors = [&](Claim claim) {
    return counted_on.errors(best_threshold(chosen_on, claim, options), options.confidence);
  };
  ClopperPearsonAudit audit{.errors = errors(epsilon_of),
                            .gaussian_errors = errors(mu_of),
                            .delta = options.delta,
                            .confidence = options.confidence};
  const auto apply = [&](Claim claim, const TestErrors& e) {
    return claim(e.max_false_positives, e.max_false_negatives, options.delta);
  };
  audit.epsilon = apply(epsilon_of, audit.errors);
  audit.mu = apply(mu_of, audit.gaussian_errors);
  audit.gaussian_epsilon = gdp_epsilon(audit.mu, options.delta);
  return audit;
}

std::string ClopperPearsonAudit::in_words() const {
  return fmt::format(
      "epsilon is at least {} at delta {}, and at least {} (mu {}) if the trade-off "
      "is a Gaussian's; {} confidence each, for independent scores",
      rounded_down(epsilon), delta_text(delta), rounded_down(gaussian_epsilon), rounded_down(mu),
      confidence_text(confidence));
}

}  // namespace sotto
