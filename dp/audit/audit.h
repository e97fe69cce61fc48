// Audits: lower bounds on epsilon from an attacker's success against a training run. An
// accountant's upper bound holds if the program matches the proof; an audit's lower bound holds for
// the program as it ran. A lower bound above the claimed epsilon shows a fault in the program or
// the claim. One below it proves no more than itself. Formulas and proofs in
// docs/appendix/proofs-audit.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace sotto {

// The number of canaries guessed to be in (those with the highest scores) and out (the lowest).
struct Guesses {
  std::int64_t in = 0;   // guessed to have taken part
  std::int64_t out = 0;  // guessed not to have
  bool operator==(const Guesses&) const = default;
};

// Formats a confidence: "95 %", and "99.9999999999 %" for 0.999999999999, with enough digits to
// stay below 100.
std::string confidence_text(double confidence);

struct OneRunOptions {
  double confidence = 0.95;  // in (0, 1)
  double delta = 1e-5;       // in [0, 1]
  // The numbers of guesses to try, each with an equal share of 1 - confidence; the result is the
  // best of them. Choose them without looking at the scores. Empty: default_guesses().
  std::vector<Guesses> guesses{};
};

// All m canaries, m/2, ..., m/16, half of the guesses on each side, and the m/8 highest only.
std::vector<Guesses> default_guesses(std::int64_t canaries);

struct OneRunAudit {
  double epsilon = 0;         // the lower bound; 0 when none is proved
  Guesses guesses;            // the guesses that prove it
  std::int64_t correct = 0;   // right answers among them
  double lowest_in = 0;       // the lowest score guessed in; infinity if none is
  double highest_out = 0;     // the highest score guessed out; -infinity if none is
  double delta = 0;           // as in the options
  double confidence = 0;      // as in the options
  std::int64_t canaries = 0;  // number of canaries
  // A sentence with the bound, its confidence and delta, rounded down.
  std::string in_words() const;
};

// An upper bound on the probability that at least `correct` of `guesses` guesses are right. A fair
// coin decides for each of m canaries whether it is included. A mechanism that is (epsilon, delta)
// private for adding or removing a canary then guesses for `guesses` canaries of its choice whether
// they were included:
//   min(1, beta + m delta beta (1 - beta) / (v P[W = v])),  beta = P[W >= v],
//   W ~ Binomial(r, e^epsilon / (1 + e^epsilon)),  v correct of r guesses.
// For delta = 0 it is theorem 5.1 of Steinke, Nasr and Jagielski (2023); the term with delta is the
// sharp one for their argument by pairs of neighbouring inputs, and replaces their theorem 5.2
// (docs/appendix/proofs-audit.md, section 2). Increases with epsilon. Throws std::invalid_argument
// unless 0 <= correct <= guesses <= canaries, canaries >= 1, epsilon is finite and >= 0 and delta
// is in [0, 1].
double one_run_p_value(std::int64_t canaries, std::int64_t guesses, std::int64_t correct,
                       double epsilon, double delta);

// A lower bound on epsilon from a single run (Steinke, Nasr and Jagielski 2023, algorithm 1): with
// probability at least `confidence`, over the coins and the run, it is not above the epsilon that
// the run has for `delta`. The coins must be fair, independent and secret from whatever made the
// scores; scores may depend on one another in any way. Ties are broken by index. Throws
// std::invalid_argument unless there are as many memberships as scores, at least one, none of them
// NaN, confidence is in (0, 1), delta in [0, 1], and each number of guesses within that of
// canaries.
OneRunAudit one_run_audit(std::span<const double> scores, const std::vector<bool>& included,
                          const OneRunOptions& options = {});

}  // namespace sotto
