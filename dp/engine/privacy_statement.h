// The privacy statement of a training run: the guarantee, for whom, and under which assumptions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sotto::inline dp {

class Budget;
class Clipper;
class Ledger;
class Mechanism;
class Sampler;
struct EngineOptions;

struct PrivacyStatement {
  // The guarantee. epsilon is a proved upper bound; infinite if there is no proof.
  double epsilon = 0;
  double delta = 0;
  std::int64_t releases = 0;  // number of releases accounted for
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
  // "planned: ..." or "adaptive: ...": whether all settings were fixed before the first release,
  // and for which choices epsilon holds.
  std::string composition = {};
  // The epsilon of the whole plan, which holds even if the end of training was chosen by looking at
  // releases; nullopt if the releases were not planned.
  std::optional<double> epsilon_planned = {};
};

// The parts of an engine that a statement describes, as they are now.
struct StatementSources {
  const EngineOptions& options;
  const Ledger& ledger;
  const Budget& budget;
  const Sampler& sampler;
  const Clipper& clipper;
  const Mechanism& mechanism;
};
PrivacyStatement privacy_statement(const StatementSources& from);

// Returns about twenty lines of text. Epsilon and delta are rounded up.
std::string to_text(const PrivacyStatement& statement);
// Returns a JSON object with the member names above; an infinite epsilon is null.
std::string to_json(const PrivacyStatement& statement);

}  // namespace sotto::inline dp
