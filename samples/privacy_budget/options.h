// The command line of the sample privacy_budget.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "samples/privacy_budget/accounting.h"
#include "samples/privacy_budget/training_phases.h"

namespace sotto::budget {

enum class Command { spent, noise, steps, batch, compare, inspect };

struct Options {
  Command command = Command::spent;
  std::vector<PhaseOptions> phases{};  // one, or several for `spent`; none with a ledger
  std::string ledger{};                // empty: phases; the file to `inspect`
  std::vector<double> deltas{}, epsilons{};
  std::optional<NeighboringRelation> relation{};
  std::optional<Method> accountant{};
  std::optional<std::int64_t> groups{};  // of cyclic_poisson, for `compare`
  bool json = false;
  std::string html{};  // empty: no page
};

// Returns nullopt when the program has already answered (--help). Throws std::invalid_argument, in
// one line with the option's name, for a wrong argument.
std::optional<Options> parse_options(int argc, const char* const* argv);

}  // namespace sotto::budget
