#include "dp/clipping/clip_rule.h"

#include <algorithm>

#include "core/error.h"

namespace sotto {

namespace {

struct NamedRule {
  ClipRule::Kind kind;
  const char* name;
};
constexpr NamedRule rules[] = {{ClipRule::Kind::minimum, "minimum"},
                               {ClipRule::Kind::opacus, "opacus"},
                               {ClipRule::Kind::auto_s, "auto-s"},
                               {ClipRule::Kind::normalize, "normalize"},
                               {ClipRule::Kind::psac, "psac"}};

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

}  // namespace sotto
