#include "dp/audit/audit.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "dp/numerics/binomial.h"
#include "dp/numerics/directed_rounding.h"
#include "dp/numerics/root_search.h"

namespace sotto {

namespace {

constexpr double tolerance = 1e-9;
constexpr double infinity = std::numeric_limits<double>::infinity();

// The largest epsilon that the guesses refute at this level, rounded down; 0 when they refute none.
double refuted(std::int64_t canaries, std::int64_t guesses, std::int64_t correct, double delta,
               double level) {
  const auto excess = [&](double epsilon) {
    return one_run_p_value(canaries, guesses, correct, epsilon, delta) - level;
  };
  if (excess(0) > 0) return 0;
  double high = 1;
  while (excess(high) <= 0) high *= 2;
  return safe_root(high, 0.0, tolerance, excess);
}

// Indices in increasing order of the scores.
std::vector<std::size_t> ranked(std::span<const double> scores) {
  std::vector<std::size_t> order(scores.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return scores[a] < scores[b]; });
  return order;
}

// Counts right guesses; `order` lists the canaries in increasing order of their scores.
std::int64_t right_guesses(const std::vector<std::size_t>& order, const std::vector<bool>& included,
                           const Guesses& guesses) {
  std::int64_t correct = 0;
  for (std::int64_t k = 0; k < guesses.out; ++k)
    correct += included[order[static_cast<std::size_t>(k)]] ? 0 : 1;
  for (std::int64_t k = 0; k < guesses.in; ++k)
    correct += included[order[order.size() - 1 - static_cast<std::size_t>(k)]] ? 1 : 0;
  return correct;
}

void check_one_run(std::span<const double> scores, const std::vector<bool>& included,
                   const OneRunOptions& options) {
  check(!scores.empty(), "one_run_audit: no scores");
  check(scores.size() == included.size(), "one_run_audit: {} scores and {} memberships",
        scores.size(), included.size());
  check(std::none_of(scores.begin(), scores.end(), [](double s) { return std::isnan(s); }),
        "one_run_audit: a score is not a number");
  check(options.confidence > 0 && options.confidence < 1,
        "one_run_audit: confidence {} is not in (0, 1)", options.confidence);
  for (const auto& [in, out] : options.guesses) {
    check(in >= 0 && out >= 0 && in + out >= 1 && in + out <= std::ssize(scores),
          "one_run_audit: {} guesses in and {} out of {} canaries", in, out, scores.size());
  }
}

}  // namespace

std::vector<Guesses> default_guesses(std::int64_t canaries) {
  constexpr std::int64_t min_part = 16, highest_part = 8;
  check(canaries >= 1, "default_guesses: {} canaries", canaries);
  std::vector<Guesses> all;
  for (std::int64_t part = 1; part <= min_part && canaries / part >= 1; part *= 2) {
    const std::int64_t guesses = canaries / part;
    all.push_back({.in = guesses - guesses / 2, .out = guesses / 2});
  }
  if (canaries >= highest_part) all.push_back({.in = canaries / highest_part, .out = 0});
  return all;
}

double one_run_p_value(std::int64_t canaries, std::int64_t guesses, std::int64_t correct,
                       double epsilon, double delta) {
  check(correct >= 0 && correct <= guesses && guesses <= canaries && canaries >= 1,
        "one_run_p_value: {} correct of {} guesses of {} canaries", correct, guesses, canaries);
  check(epsilon >= 0 && std::isfinite(epsilon),
        "one_run_p_value: epsilon {} is not a finite number >= 0", epsilon);
  check(delta >= 0 && delta <= 1, "one_run_p_value: delta {} is not in [0, 1]", delta);
  if (correct == 0) return 1;
  const BinomialTail tail = binomial_at_least(guesses, correct, 1 / (1 + std::exp(-epsilon)));
  const double beta = tail.probability;
  if (delta == 0 || beta >= 1) return std::min(beta, 1.0);
  const double added = static_cast<double>(canaries) * delta * (1 - beta) * tail.over_mass;
  return std::min(1.0, beta + added / static_cast<double>(correct));
}

OneRunAudit one_run_audit(std::span<const double> scores, const std::vector<bool>& included,
                          const OneRunOptions& options) {
  check_one_run(scores, included, options);
  const std::vector<Guesses> tried =
      options.guesses.empty() ? default_guesses(std::ssize(scores)) : options.guesses;
  const double level = (1 - options.confidence) / static_cast<double>(tried.size());
  const std::vector<std::size_t> order = ranked(scores);
  OneRunAudit best{.epsilon = -1};
  for (const Guesses& guesses : tried) {
    const std::int64_t correct = right_guesses(order, included, guesses);
    const double epsilon =
        refuted(std::ssize(scores), guesses.in + guesses.out, correct, options.delta, level);
    if (epsilon <= best.epsilon) continue;
    best.epsilon = epsilon;
    best.guesses = guesses;
    best.correct = correct;
  }
  const auto [in, out] = best.guesses;
  best.lowest_in = in > 0 ? scores[order[order.size() - static_cast<std::size_t>(in)]] : infinity;
  best.highest_out = out > 0 ? scores[order[static_cast<std::size_t>(out) - 1]] : -infinity;
  best.delta = options.delta;
  best.confidence = options.confidence;
  best.canaries = std::ssize(scores);
  return best;
}

std::string confidence_text(double confidence) {
  const double percent = 100 * confidence;
  int digits = 6;
  while (digits < 17 && fmt::format("{:.{}g}", percent, digits) == "100") ++digits;
  return fmt::format("{:.{}g} %", percent, digits);
}

std::string OneRunAudit::in_words() const {
  const std::string found = fmt::format("{} of {} guesses about {} canaries were right", correct,
                                        guesses.in + guesses.out, canaries);
  if (epsilon == 0) return found + ": this proves no epsilon above 0";
  return fmt::format("{}: epsilon is at least {} at delta {}, with {} confidence", found,
                     rounded_down(epsilon), delta_text(delta), confidence_text(confidence));
}

}  // namespace sotto
