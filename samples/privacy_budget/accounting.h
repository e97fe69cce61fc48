// Everything this tool asks of the library's accountants; the only file that knows which there are.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sotto/dp/event.h>
#include "samples/privacy_budget/training_phases.h"

namespace sotto::budget {

// gdp evaluates a limit and guarantees nothing.
enum class Method { pld, rdp, gdp, prv };
// Those that `compare` shows, in this order.
inline constexpr Method methods[] = {Method::pld, Method::prv, Method::rdp, Method::gdp};
const char* name(Method method);

// What ran, or is to run, in order.
using History = std::vector<std::pair<Event, std::int64_t>>;

// The releases of a phase; those of a pass that its first batch pays for are marked so. A pass that
// was begun counts.
History releases_of(const Phase& phase);

// What is between two sides. Only PLD and PRV know the lower one.
struct Bounds {
  double upper = 0;
  std::optional<double> lower{};
};

// Why the method has no answer for such releases; empty when it has one.
std::string refusal(Method method, NeighboringRelation relation, const Event& event);
std::string refusal(Method method, NeighboringRelation relation, const History& history);

// The tighter one of the methods that prove something about the history, or the one that is named.
// Throws std::invalid_argument when there is none.
Method choose_method(const std::optional<Method>& wanted, NeighboringRelation relation,
                     const History& history);

// Bounds of epsilon for this delta and of delta for this epsilon. Throw std::invalid_argument when
// there is a refusal.
Bounds epsilon(Method method, NeighboringRelation relation, const History& history, double delta);
Bounds delta(Method method, NeighboringRelation relation, const History& history, double epsilon);
// The same for a history whose settings, but for the plans, could have been chosen by looking at
// it.
Bounds adaptive_epsilon(NeighboringRelation relation, const History& plans, const History& history,
                        double delta);

struct Target {
  double epsilon, delta;
};

// The smallest noise multiplier, the most steps, the largest sampling rate, and, where a pass over
// the population is cut into batches, the largest of those, with which the phase meets the target;
// what they replace in it is not read. Throw std::invalid_argument when there is
// a refusal, or nothing meets the target.
double least_noise(Method method, NeighboringRelation relation, const Phase& phase,
                   const Target& target);
std::int64_t most_steps(Method method, NeighboringRelation relation, const Phase& phase,
                        const Target& target);
double largest_rate(Method method, NeighboringRelation relation, const Phase& phase,
                    const Target& target);
std::int64_t largest_batch(Method method, NeighboringRelation relation, const Phase& phase,
                           const Target& target);

// Why the bound of truncated Poisson batches is too small for the target, with one that would do;
// empty where it is not.
std::string cut_refusal(const Phase& phase, const Target& target);
// The same for the first such phase of a training, at the epsilon that it spends at delta.
std::string cut_refusal(Method method, NeighboringRelation relation,
                        const std::vector<Phase>& phases, double delta);

struct LedgerFacts {
  std::string unit;
  NeighboringRelation relation;
  History history;
  std::vector<std::string> reasons;  // why it is not private; or none
  std::optional<std::int64_t> population;
  // As in sotto::History.
  bool adaptive = false, whole_plan = false;
  History plans = {};
};

// A ledger as it stands, read without holding it, so that a training can go on meanwhile. Throws
// SystemFailure, naming the option, when it cannot be read or is damaged.
LedgerFacts read_ledger(const char* option, const std::string& path);

}  // namespace sotto::budget
