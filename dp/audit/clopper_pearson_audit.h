// Lower bounds on epsilon from the two error probabilities of a test that guesses from a score
// whether a canary took part, by the limits of Clopper and Pearson. dp/audit/audit.h has bounds
// from the coins of a single run.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace sotto {

struct ClopperPearsonOptions {
  double confidence = 0.95;  // in (0, 1)
  double delta = 1e-5;       // in (0, 1)
};

// The errors of the test that guesses "in" from the threshold upwards.
struct TestErrors {
  double threshold = 0;                           // the lowest score guessed "in"
  std::int64_t false_positives = 0, without = 0;  // out of `without` runs
  std::int64_t false_negatives = 0, with = 0;     // out of `with` runs
  // Clopper-Pearson limits of their probabilities, which hold together.
  double max_false_positives = 1, max_false_negatives = 1;
};

struct ClopperPearsonAudit {
  // For any mechanism: the larger of ln((1 - delta - FNR) / FPR) and ln((1 - delta - FPR) / FNR)
  // (Kairouz, Oh and Viswanath 2015).
  double epsilon = 0;
  TestErrors errors;  // counted, for epsilon
  // If the two hypotheses are as hard to distinguish as N(0, 1) and N(mu, 1), as for the Gaussian
  // mechanism without sampling: lower bounds on mu (Nasr et al. 2023), and on its epsilon.
  double mu = 0;
  double gaussian_epsilon = 0;  // at delta, if that holds
  TestErrors gaussian_errors;   // counted, for mu
  double delta = 0;             // as in the options
  double confidence = 0;        // as in the options
  // A sentence with the bounds, their confidence and delta, rounded down.
  std::string in_words() const;
};

// Lower bounds from scores of independent runs without and with a canary, or of independent
// canaries of one run. Each of the two bounds holds with probability at least `confidence`; both
// hold together with at least 2 confidence - 1. Thresholds are chosen on the scores with an even
// index, and errors counted on those with an odd one, so the order of the scores must not depend on
// their values. Throws std::invalid_argument unless there are two or more scores of each kind, none
// of them NaN, confidence is in (0, 1) and delta in (0, 1).
ClopperPearsonAudit clopper_pearson_audit(std::span<const double> without,
                                          std::span<const double> with,
                                          const ClopperPearsonOptions& options = {});

}  // namespace sotto
