#include "samples/audit/page.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "dp/numerics/directed_rounding.h"
#include "samples/report/charts.h"
#include "samples/report/page.h"

namespace sotto::audit {

namespace {

constexpr std::size_t bars = 60;

// Formats epsilon: a claim, which is an upper bound, is rounded up; an attack's lower bound down.
std::string shown_epsilon(double epsilon, bool claimed) {
  return typeset(claimed ? epsilon_text(epsilon) : rounded_down(epsilon));
}

std::string card(const char* name, double epsilon, const std::string& below, bool alarm = false) {
  const bool claimed = below.starts_with("claimed");
  return fmt::format(
      "<div class=\"card{}\"><div class=\"name\">{}</div><div class=\"value\">ε {} {}</div>"
      "<div class=\"below\">{}</div></div>\n",
      alarm ? " alarm" : "", name, claimed ? "=" : "≥", shown_epsilon(epsilon, claimed),
      escape(below));
}

std::string cards(const AuditFindings& found) {
  const std::string sure =
      fmt::format("with {} confidence", confidence_text(found.one_run.confidence));
  return "<div class=\"cards\">\n" +
         card("Claim", found.claim, "claimed, at δ = " + typeset(delta_text(found.one_run.delta))) +
         card("Proven", found.one_run.epsilon, sure, found.contradicted()) +
         card("If canaries are independent", found.trade_off.epsilon, sure,
              found.trade_off.epsilon > found.claim) +
         card("And the trade-off a Gaussian's", found.trade_off.gaussian_epsilon, sure,
              found.sampling_rate == 1 && found.trade_off.gaussian_epsilon > found.claim) +
         "</div>\n";
}

// A table with bars from 0 on one scale.
std::string comparison(const AuditFindings& found) {
  struct Row {
    const char* name;
    double epsilon;
    bool claimed = false;
  };
  const Row rows[] = {
      {"Proven by one run", found.one_run.epsilon},
      {"If canaries are independent", found.trade_off.epsilon},
      {"And the trade-off a Gaussian's", found.trade_off.gaussian_epsilon},
      {"Claimed", found.claim, true},
      {"Accountant", found.accountant, true},
  };
  double max = std::numeric_limits<double>::min();
  for (const auto& [name, epsilon, claimed] : rows) {
    if (std::isfinite(epsilon)) max = std::max(max, epsilon);
  }
  std::string html = "<table>\n<tr><th></th><th class=\"n\">ε</th><th></th></tr>\n";
  for (const auto& [name, epsilon, claimed] : rows) {
    html += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"meter\" style=\"width:45%\">"
        "<div style=\"width:{:.1f}%\"></div></td></tr>\n",
        name, shown_epsilon(epsilon, claimed), std::isfinite(epsilon) ? 100 * epsilon / max : 100);
  }
  return html + "</table>\n";
}

// The edges of the bars, from the lowest to the highest score, for canaries in and out alike.
std::vector<double> edges_of(const std::vector<double>& scores) {
  const auto [low, high] = std::minmax_element(scores.begin(), scores.end());
  const double width = std::max((*high - *low) / bars, 1e-9 * (1 + std::abs(*high)));
  std::vector<double> edges;
  for (std::size_t k = 0; k <= bars; ++k) edges.push_back(*low + width * static_cast<double>(k));
  return edges;
}

std::string histogram(const AuditFindings& found, bool included) {
  HistogramChart chart{.edges = edges_of(found.scores),
                       .counts = std::vector<std::int64_t>(bars, 0),
                       .bound = found.one_run.lowest_in,
                       .bound_name = "guessed in from here",
                       .x_name = "score",
                       .y_name = "number of canaries"};
  const double first = chart.edges.front(), width = chart.edges[1] - first;
  for (std::size_t k = 0; k < found.scores.size(); ++k) {
    if (found.included[k] != included) continue;
    const auto at = static_cast<std::size_t>((found.scores[k] - first) / width);
    ++chart.counts[std::min(at, bars - 1)];
  }
  return fmt::format("<figure>\n<figcaption>Canaries that were {}</figcaption>\n{}</figure>\n",
                     included ? "in" : "out", histogram_chart(chart));
}

NamedTexts settings(const Options& o, const AuditFindings& found) {
  return {{"Data", samples::files_of(o.data) ? "from files" : "drawn by the program"},
          {"Canaries", grouped(o.canaries)},
          {"Canaries on", o.on.empty() ? "all parameters" : o.on},
          {"Score", o.score},
          {"Noise multiplier", typeset(noise_text(found.noise_multiplier))},
          {"Clip bound", number(o.clip_bound)},
          {"Sampling rate", number(found.sampling_rate)},
          {"Steps", grouped(o.steps)},
          {"Learning rate", number(o.learning_rate)},
          {"Seed", fmt::to_string(o.seed)}};
}

std::string meaning(const AuditFindings& found) {
  return section(
      "Meaning of the bounds",
      fmt::format("<p class=\"claim\">{}.</p>\n<p class=\"claim\">{}.</p>\n"
                  "<p>A lower bound above the claim is a fault of the program or the claim. One "
                  "below it proves nothing more: a better attack may exist, and the claim rests on "
                  "its proof. The first bound holds whatever the program does; the others need "
                  "scores of canaries that do not depend on one another, and the last is an "
                  "estimate where batches are sampled.</p>\n",
                  escape(found.one_run.in_words()), escape(found.trade_off.in_words())));
}

std::string banners(const AuditFindings& found) {
  const std::string secret = secret_banner(
      "It holds the scores of canaries and which of them were in. The model was "
      "trained with canaries: do not publish it.");
  if (!found.contradicted() && !found.doubtful()) return secret;
  return banner(found.contradicted() ? "The claim is contradicted." : "The claim is in doubt.",
                escape(verdict(found))) +
         secret;
}

nlohmann::json errors_json(const TestErrors& errors) {
  return {{"threshold", errors.threshold},
          {"false_positives", errors.false_positives},
          {"without", errors.without},
          {"false_negatives", errors.false_negatives},
          {"with", errors.with}};
}

nlohmann::json one_run_json(const OneRunAudit& audit) {
  return {{"epsilon", audit.epsilon},
          {"guessed_in", audit.guesses.in},
          {"guessed_out", audit.guesses.out},
          {"correct", audit.correct}};
}

}  // namespace

std::string verdict(const AuditFindings& found) {
  const char* judged = "no contradiction";
  if (found.doubtful()) judged = "A CONTRADICTION, IF CANARIES ARE INDEPENDENT";
  if (found.contradicted()) judged = "THE CLAIM IS CONTRADICTED";
  return fmt::format("ε ≥ {} with {} confidence, claimed: ε = {} (δ = {}): {}",
                     rounded_down(found.one_run.epsilon), confidence_text(found.one_run.confidence),
                     epsilon_text(found.claim), delta_text(found.one_run.delta), judged);
}

std::string to_html(const Options& options, const AuditFindings& found) {
  return sotto::to_html(Page{
      .title = "Privacy audit",
      .body =
          banners(found) + cards(found) + section("Lower bounds and the claim", comparison(found)) +
          section("Scores", "<div class=\"charts\">\n" + histogram(found, true) +
                                histogram(found, false) + "</div>\n") +
          meaning(found) + section("Settings", definitions("settings", settings(options, found))),
      .style = "",
      .origin = provenance(options.device)});
}

nlohmann::json to_json(const Options& options, const AuditFindings& found) {
  nlohmann::json named = nlohmann::json::object();
  for (const auto& [name, value] : settings(options, found)) named[name] = value;
  return {{"settings", named},
          {"delta", options.delta},
          {"confidence", options.confidence},
          {"claim", found.claim},
          {"accountant", found.accountant},
          {"contradicted", found.contradicted()},
          {"doubtful", found.doubtful()},
          {"one_run", one_run_json(found.one_run)},
          {"trade_off",
           {{"epsilon", found.trade_off.epsilon},
            {"errors", errors_json(found.trade_off.errors)},
            {"mu", found.trade_off.mu},
            {"gaussian_epsilon", found.trade_off.gaussian_epsilon},
            {"gaussian_errors", errors_json(found.trade_off.gaussian_errors)}}},
          {"seconds", found.seconds},
          {"scores", found.scores},
          {"included", found.included}};
}

}  // namespace sotto::audit
