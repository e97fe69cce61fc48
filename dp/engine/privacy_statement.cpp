#include "dp/engine/privacy_statement.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dp/numerics/directed_rounding.h"

namespace sotto {

namespace {

std::string list(const char* title, const std::vector<std::string>& lines) {
  if (lines.empty()) return "";
  std::string text = fmt::format("{}:\n", title);
  for (const std::string& line : lines) text += fmt::format("  - {}\n", line);
  return text;
}

}  // namespace

std::string to_text(const PrivacyStatement& s) {
  std::string text = s.not_private.empty()
                         ? fmt::format("(epsilon, delta) = ({}, {}) differential privacy\n",
                                       epsilon_text(s.epsilon), delta_text(s.delta))
                         : "NO PRIVACY IS GUARANTEED\n" + list("because of", s.not_private);
  const std::pair<const char*, const std::string&> rows[] = {
      {"unit of privacy", s.unit},    {"neighbouring data sets", s.relation},
      {"sampling", s.sampling},       {"clipping", s.clipping},
      {"mechanism", s.mechanism},     {"accountant", s.accountant},
      {"composition", s.composition},
  };
  for (const auto& [name, value] : rows) text += fmt::format("{}: {}\n", name, value);
  if (s.epsilon_planned)
    text += fmt::format("epsilon of all that was planned: {}\n", rounded_up(*s.epsilon_planned));
  text += fmt::format("releases accounted for: {}\n", s.releases);
  return text + list("covered", s.covered) + list("not covered", s.not_covered) +
         list("notes", s.notes);
}

std::string to_json(const PrivacyStatement& s) {
  using Json = nlohmann::ordered_json;
  const Json object = {{"epsilon", std::isfinite(s.epsilon) ? Json(s.epsilon) : Json(nullptr)},
                       {"delta", s.delta},
                       {"releases", s.releases},
                       {"unit", s.unit},
                       {"relation", s.relation},
                       {"sampling", s.sampling},
                       {"clipping", s.clipping},
                       {"mechanism", s.mechanism},
                       {"accountant", s.accountant},
                       {"composition", s.composition},
                       {"epsilon_planned", s.epsilon_planned && std::isfinite(*s.epsilon_planned)
                                               ? Json(*s.epsilon_planned)
                                               : Json(nullptr)},
                       {"not_private", s.not_private},
                       {"covered", s.covered},
                       {"not_covered", s.not_covered},
                       {"notes", s.notes}};
  return object.dump();
}

}  // namespace sotto
