// The privacy statement of a training run: the guarantee, for whom, and under which assumptions.
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

// The guarantee of a training in words and numbers, to be published with the model.
struct PrivacyStatement {
  // The guarantee. epsilon is a proved upper bound; infinite if there is no proof.
  double epsilon = 0;
  double delta = 0;                      // of the guarantee
  std::int64_t releases = 0;             // number of releases accounted for
  std::string unit;                      // "one training example"
  std::string relation;                  // "add or remove one"
  std::string sampling;                  // the sampling in words, with its rate
  std::string clipping;                  // rule, bounds and groups
  std::string mechanism;                 // the noise, and its multiplier
  std::string accountant;                // the name of the accountant
  std::vector<std::string> not_private;  // reasons for which there is no guarantee
  std::vector<std::string> covered;      // what may be published
  std::vector<std::string> not_covered;  // what may still tell about the data
  std::vector<std::string> notes;        // further facts for readers
  // "planned: ..." or "adaptive: ...": whether all settings were fixed before the first release,
  // and for which choices epsilon holds.
  std::string composition = {};
  // The epsilon of the whole plan, which holds even if the end of training was chosen by looking at
  // releases; nullopt if the releases were not planned.
  std::optional<double> epsilon_planned = {};
  std::vector<std::string> assumed = {};  // what the proof takes for granted
};

// The parts of an engine that a statement describes, as they are now.
struct StatementSources {
  const EngineOptions& options;  // as given
  const Ledger& ledger;          // its releases and header
  const Budget& budget;          // epsilon spent and planned
  const Sampler& sampler;        // of the next step
  const Clipper& clipper;        // of the next step
  const Mechanism& mechanism;    // of the next step
};
// Engine::report() of these parts.
PrivacyStatement privacy_statement(const StatementSources& from);

// Returns about twenty lines of text. Epsilon and delta are rounded up.
std::string to_text(const PrivacyStatement& statement);
// Returns a JSON object with the member names above; an infinite epsilon is null.
std::string to_json(const PrivacyStatement& statement);
// Returns the statement of such a text; an epsilon of null is infinite. Throws
// std::invalid_argument for any other text.
PrivacyStatement statement_from_json(const std::string& text);

}  // namespace sotto
