#include "samples/report/statement_section.h"

#include <fmt/format.h>

#include "dp/numerics/directed_rounding.h"
#include "samples/report/charts.h"
#include "samples/report/page.h"

namespace sotto {

namespace {

constexpr const char* heading = "Privacy statement";

std::string facts(const PrivacyStatement& privacy) {
  NamedTexts rows = {
      {"Unit of privacy", privacy.unit},       {"Neighbouring data sets", privacy.relation},
      {"Sampling", privacy.sampling},          {"Clipping", privacy.clipping},
      {"Mechanism", privacy.mechanism},        {"Accountant", privacy.accountant},
      {"Releases", grouped(privacy.releases)}, {"Composition", privacy.composition},
  };
  if (privacy.epsilon_planned)
    rows.emplace_back("All that was planned", "ε = " + shown_epsilon(*privacy.epsilon_planned));
  return definitions("facts", rows);
}

std::string headed(const char* name, const std::vector<std::string>& texts) {
  return texts.empty() ? "" : fmt::format("<h3>{}</h3>\n{}", name, bullets(texts));
}

}  // namespace

std::string shown_epsilon(double epsilon) {
  return epsilon < 0 ? number(epsilon) : typeset(epsilon_text(epsilon));
}
std::string shown_delta(double delta) { return typeset(delta_text(delta)); }

std::string statement_section(const TrainingReport& report) {
  if (!report.privacy) {
    return section(heading,
                   "<p class=\"claim\">No privacy is claimed: the model was trained without a "
                   "differential privacy guarantee.</p>\n");
  }
  const PrivacyStatement& privacy = *report.privacy;
  if (!privacy.not_private.empty()) {
    return section(heading, "<p class=\"claim\">No privacy is claimed, because of:</p>\n" +
                                bullets(privacy.not_private) + facts(privacy));
  }
  const std::string claim = fmt::format(
      "<p class=\"claim\">Training was (ε, δ)-differentially private with ε = {} and δ = {}: for "
      "any two neighbouring data sets and any set of outcomes, its probability under one is at "
      "most e<sup>ε</sup> times its probability under the other, plus δ.</p>\n",
      shown_epsilon(privacy.epsilon), shown_delta(privacy.delta));
  const std::string covered = headed("Covered: you may publish it", privacy.covered) +
                              headed("Assumed", privacy.assumed) + headed("Notes", privacy.notes);
  const std::string others =
      headed("Not covered: keep it, or publish with care", privacy.not_covered);
  return section(heading,
                 claim + facts(privacy) +
                     fmt::format("<div class=\"columns\">\n<div>\n{}</div>\n<div>\n{}</div>\n"
                                 "</div>\n",
                                 covered, others));
}

}  // namespace sotto
