#include "sotto/dp/clip_rule.h"

#include <algorithm>
#include <cmath>

#include "sotto/core/error.h"

namespace sotto {

namespace {

struct NamedRule {
  ClipRule::Kind kind;
  const char* name;
};
constexpr NamedRule rules[] = {{ClipRule::Kind::minimum, "minimum"},
                               {ClipRule::Kind::opacus, "opacus"},
                               {ClipRule::Kind::automatic, "automatic"},
                               {ClipRule::Kind::normalise, "normalise"},
                               {ClipRule::Kind::adaptive, "adaptive"}};

}  // namespace

const char* name(ClipRule::Kind kind) {
  return std::find_if(std::begin(rules), std::end(rules),
                      [&](const NamedRule& rule) { return rule.kind == kind; })
      ->name;
}

ClipRule::Kind clip_rule_kind(const std::string& name) {
  const auto* const rule = std::find_if(std::begin(rules), std::end(rules),
                                        [&](const NamedRule& r) { return r.name == name; });
  check(rule != std::end(rules), "clip rule: none is called {}", name);
  return rule->kind;
}

std::vector<std::string> clip_rule_names() {
  std::vector<std::string> names;
  for (const NamedRule& rule : rules) names.emplace_back(rule.name);
  return names;
}

double ClipRule::factor(double norm, double bound, double margin, double error) const {
  constexpr double opacus_eps = 1e-6;
  constexpr double smallest = 0x1p-100;
  if (!std::isfinite(norm) || !std::isfinite(error)) return 0;
  double wanted = 1;
  switch (kind) {
    case Kind::minimum: break;
    case Kind::opacus: wanted = std::min(1.0, bound / (norm + opacus_eps)); break;
    case Kind::automatic: wanted = bound / (norm + gamma); break;
    case Kind::normalise: wanted = norm > 0 ? bound / norm : 0; break;
    case Kind::adaptive: wanted = bound / (norm + gamma / (norm + gamma)); break;
  }
  const double most = bound * (1 - margin) / (norm + error);  // infinite for 0
  const double factor = std::min(wanted, most);
  return factor < smallest ? 0 : factor;
}

}  // namespace sotto
