// Audits: what an attacker's success against a training run proves about its epsilon. An upper
// bound from an accountant holds if the program does what the proof says; a lower bound from an
// audit holds for what the program did. A lower bound above the claimed epsilon is a fault in the
// program or the claim; one below it proves nothing more. Formulas and proofs in docs/audit.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sotto {

// How many canaries are guessed to have been in (those with the highest scores) and out (lowest).
struct Guesses {
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool operator==(const Guesses&) const = default;
};

// "95 %", and "99.9999999999 %" for 0.999999999999: as many digits as keep it below 100.
std::string confidence_text(double confidence);

struct OneRunOptions {
  double confidence = 0.95;
  double delta = 1e-5;
  // Tried one after the other, each at an equal share of 1 - confidence, so that the best may be
  // taken; chosen without looking at the scores. Empty: default_guesses().
  std::vector<Guesses> guesses{};
};

// All m canaries, m/2, ..., m/16, half of the guesses on each side, and the m/8 highest alone.
std::vector<Guesses> default_guesses(std::int64_t canaries);

struct OneRunAudit {
  double epsilon = 0;  // the lower bound; 0 when nothing is proved
  Guesses guesses;     // that it comes from
  std::int64_t correct = 0;
  double lowest_in = 0;    // the score from which canaries are guessed in; infinite if none are
  double highest_out = 0;  // and up to which out; minus infinity if none are
  double delta = 0;
  double confidence = 0;
  std::int64_t canaries = 0;
  std::string in_words() const;
};

// The most that the probability of `correct` or more right answers to `guesses` questions can be,
// if each of m canaries was included by a fair coin of its own, a mechanism that is
// (epsilon, delta) private for adding or removing a canary answered that many questions of its
// choice whether a canary was in, and could be silent on the others:
//   min(1, beta + m delta beta (1 - beta) / (v P[W = v])),  beta = P[W >= v],
//   W ~ Binomial(r, e^epsilon / (1 + e^epsilon)),  v correct of r guesses.
// For delta = 0 it is theorem 5.1 of Steinke, Nasr and Jagielski (2023); the term with delta is the
// sharp one for their argument by pairs of neighbours, and takes the place of their theorem 5.2
// (docs/audit.md, section 2). Rises with epsilon. Throws std::invalid_argument unless
// 0 <= correct <= guesses <= canaries, canaries >= 1, epsilon is finite and >= 0 and delta is in
// [0, 1].
double one_run_p_value(std::int64_t canaries, std::int64_t guesses, std::int64_t correct,
                       double epsilon, double delta);

// A lower bound on epsilon from a single run (Steinke, Nasr and Jagielski 2023, algorithm 1): with
// probability of at least `confidence`, over the coins and the run, it is not above the epsilon
// that the run has for `delta`. The coins must be fair, independent and secret from whatever made
// the scores; scores may depend on one another in any way. Ties are broken by index. Throws
// std::invalid_argument unless there are as many memberships as scores, and some, none of them NaN,
// confidence is in (0, 1), delta in [0, 1], and each guess within the number of canaries.
OneRunAudit one_run_audit(std::span<const double> scores, const std::vector<bool>& included,
                          const OneRunOptions& options = {});

struct TradeOffOptions {
  double confidence = 0.95;
  double delta = 1e-5;
};

// How a test "in from this score upwards" fared.
struct TestErrors {
  double threshold = 0;
  std::int64_t false_positives = 0, without = 0;  // of so many runs
  std::int64_t false_negatives = 0, with = 0;
  // Clopper-Pearson limits of their probabilities, which hold together.
  double most_false_positives = 1, most_false_negatives = 1;
};

struct TradeOffAudit {
  // Whatever the mechanism: the larger of ln((1 - delta - FNR) / FPR) and the same with the two
  // exchanged (Kairouz, Oh and Viswanath 2015).
  double epsilon = 0;
  TestErrors errors;
  // If the two hypotheses are as hard to tell apart as N(0, 1) and N(mu, 1), as for the Gaussian
  // mechanism without sampling: mu is at least this (Nasr et al. 2023), and epsilon at least that.
  double mu = 0;
  double gaussian_epsilon = 0;
  TestErrors gaussian_errors;
  double delta = 0;
  double confidence = 0;
  std::string in_words() const;
};

// Lower bounds from scores of independent runs without and with a canary, or of independent
// canaries of one run. Each of the two bounds holds with probability of at least `confidence`; that
// both do, with twice the doubt. Thresholds are chosen on the scores with an even index, and errors
// counted on those with an odd one, so the order of the scores must not depend on their values.
// Throws std::invalid_argument unless there are two or more of each kind, none of them NaN,
// confidence is in (0, 1) and delta in (0, 1).
TradeOffAudit trade_off_audit(std::span<const double> without, std::span<const double> with,
                              const TradeOffOptions& options = {});

}  // namespace sotto
