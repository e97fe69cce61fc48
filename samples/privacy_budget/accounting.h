// The accounting of this program; the only file that knows which accountants exist.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dp/event.h"
#include "dp/ledger/ledger_contents.h"
#include "samples/privacy_budget/training_phases.h"

namespace sotto::budget {

// gdp evaluates a limit and guarantees nothing.
enum class Method { pld, rdp, gdp, prv };
// The methods that `compare` shows, in this order.
inline constexpr Method methods[] = {Method::pld, Method::prv, Method::rdp, Method::gdp};
const char* name(Method method);

// Past or planned releases, in order.
using History = std::vector<std::pair<Event, std::int64_t>>;

// The releases of a phase. In an epoch, all batches but the first are marked paid; an epoch that is
// begun counts.
History releases_of(const Phase& phase);

// A number's upper and lower bound. Only PLD and PRV have the lower one.
struct Bounds {
  double upper = 0;
  std::optional<double> lower{};
};

// Why the method has no answer for such releases; empty when it has one.
std::string refusal(Method method, NeighboringRelation relation, const Event& event);
std::string refusal(Method method, NeighboringRelation relation, const History& history);

// Returns `wanted`, or the tightest method that has a proof for the history. Throws
// std::invalid_argument when there is none.
Method choose_method(const std::optional<Method>& wanted, NeighboringRelation relation,
                     const History& history);

// Bounds on epsilon for this delta, and on delta for this epsilon. Throw std::invalid_argument when
// there is a refusal.
// With a private selection, of whose runs the history contains one.
Bounds epsilon(Method method, NeighboringRelation relation, const History& history, double delta,
               const std::optional<PrivateSelection>& selection = {});
Bounds delta(Method method, NeighboringRelation relation, const History& history, double epsilon,
             const std::optional<PrivateSelection>& selection = {});
// Bounds on epsilon for a history whose settings, except for the plans, could have been chosen by
// looking at releases.
Bounds adaptive_epsilon(NeighboringRelation relation, const History& plans, const History& history,
                        double delta, const std::optional<PrivateSelection>& selection = {});

struct Target {
  double epsilon, delta;
};

// The smallest noise multiplier, the largest number of steps, the largest sampling rate, and, for
// samplings whose epochs are cut into batches, the largest batch, with which the phase meets the
// target. The phase's own value of it is ignored. Throw std::invalid_argument when there is a
// refusal, or nothing meets the target.
double min_noise(Method method, NeighboringRelation relation, const Phase& phase,
                 const Target& target);
std::int64_t max_steps(Method method, NeighboringRelation relation, const Phase& phase,
                       const Target& target);
double max_rate(Method method, NeighboringRelation relation, const Phase& phase,
                const Target& target);
std::int64_t max_batch_size(Method method, NeighboringRelation relation, const Phase& phase,
                            const Target& target);

// Why the bound on truncated Poisson batches is too small for the target, and a bound that would
// do; empty if it is large enough.
std::string truncation_refusal(const Phase& phase, const Target& target);
// The refusal of the first such phase of a training, at the epsilon that it spends at delta.
std::string truncation_refusal(Method method, NeighboringRelation relation,
                               const std::vector<Phase>& phases, double delta);

struct LedgerFacts {
  std::string unit;
  NeighboringRelation relation;
  History history;
  std::vector<std::string> reasons;  // why it is not private; empty if it is
  std::optional<std::int64_t> population;
  // As in sotto::History.
  bool adaptive = false, whole_plan = false;
  History plans = {};
  std::optional<PrivateSelection> selection = {};
};

LedgerFacts facts_of(const LedgerContents& ledger);
// The epsilon of all that is listed, which is infinite where it is not private. Throws
// std::invalid_argument where no accountant has a proof.
double epsilon(const LedgerFacts& ledger, NeighboringRelation relation, double delta);

// Reads a ledger without locking it, so that a training can continue meanwhile. Throws
// SystemFailure, with the option's name, when it cannot be read or is damaged.
LedgerFacts read_ledger(const char* option, const std::string& path);

}  // namespace sotto::budget
