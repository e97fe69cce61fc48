// The full privacy statement of a training run: what is guaranteed, for whom, and under which
// assumptions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sotto {

class Budget;
class Clipper;
class Ledger;
class Mechanism;
class Sampler;
struct EngineOptions;

struct PrivacyStatement {
  // The guarantee: epsilon is a proved bound, infinite where there is no proof.
  double epsilon = 0;
  double delta = 0;
  std::int64_t releases = 0;  // that are accounted for
  std::string unit;           // "one training example"
  std::string relation;       // "add or remove one"
  std::string sampling;
  std::string clipping;
  std::string mechanism;
  std::string accountant;
  std::vector<std::string> not_private;  // reasons for which there is no guarantee
  std::vector<std::string> covered;      // what may be published
  std::vector<std::string> not_covered;  // "the choice of settings, when ..."
  std::vector<std::string> notes;
  // Whether settings were fixed before the releases by which they could have been chosen, and what
  // the epsilon is valid for.
  std::string composition = {};
  // The epsilon of all that was planned, however the end was chosen; nothing where releases were
  // not planned.
  std::optional<double> epsilon_planned = {};
};

// What a statement is about: the parts of an engine as they are now.
struct StatementSources {
  const EngineOptions& options;
  const Ledger& ledger;
  const Budget& budget;
  const Sampler& sampler;
  const Clipper& clipper;
  const Mechanism& mechanism;
};
PrivacyStatement privacy_statement(const StatementSources& from);

// Some twenty lines for people. Epsilon and delta are rounded up.
std::string to_text(const PrivacyStatement& statement);
// An object with the names above; null for an infinite epsilon.
std::string to_json(const PrivacyStatement& statement);

}  // namespace sotto
