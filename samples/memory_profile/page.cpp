#include "samples/memory_profile/page.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/devices.h"
#include "samples/report/band_chart.h"
#include "samples/report/charts.h"
#include "samples/report/page.h"

namespace sotto::memory_profile {

namespace {

constexpr double min_share = 0.004;  // of the peak, from which an owner has its own band
constexpr double mebi = 1024.0 * 1024.0;
constexpr std::size_t max_rows = 25;  // rows of a table

std::string card(const char* name, std::uint64_t bytes, const std::string& below) {
  return fmt::format(
      "<div class=\"card\"><div class=\"name\">{}</div><div class=\"value\">{}</div>"
      "<div class=\"below\">{}</div></div>\n",
      name, memory_size(bytes), escape(below));
}

std::string cards(const StepProfile& found) {
  const MemoryStatistics& now = found.statistics;
  return "<div class=\"cards\">\n" + card("Peak", found.peak, "most in use at once") +
         card("Before the step", found.first, "what stays between steps") +
         card("Held", now.held_peak, "from the machine: in use and cached") +
         card("Lost to size classes", now.rounding, "of what is in use now") +
         card("Cached but unusable", now.unusable, "when other memory was needed, at most") +
         "</div>\n";
}

std::string owner(const MemoryLabel& label) {
  std::string text = name(label.kind);
  if (*label.op != '\0') text += ": " + label.op_name();
  if (*label.module != '\0') text += fmt::format(" in {}", label.module);
  return text;
}

int colour_of(MemoryKind kind) { return static_cast<int>(kind); }

Band drawn(const memory::Timeline::Band& band) {
  Band shown{.title = owner(band.label) + fmt::format(", {} at most", memory_size(band.max())),
             .colour = colour_of(band.label.kind)};
  for (const std::size_t bytes : band.bytes) shown.y.push_back(static_cast<double>(bytes) / mebi);
  return shown;
}

// The bands of the larger owners, and for each kind one band of all smaller ones.
std::vector<Band> bands_of(const StepProfile& found) {
  std::vector<Band> bands;
  for (int kind = 0; kind < memory_kinds; ++kind) {
    memory::Timeline::Band rest{{.kind = static_cast<MemoryKind>(kind)}, {}};
    rest.bytes.assign(found.curve.seconds.size(), 0);
    int smaller = 0;
    for (const memory::Timeline::Band& band : found.curve.bands) {
      if (colour_of(band.label.kind) != kind) continue;
      if (static_cast<double>(band.max()) >= min_share * static_cast<double>(found.peak)) {
        bands.push_back(drawn(band));
        continue;
      }
      ++smaller;
      for (std::size_t k = 0; k < rest.bytes.size(); ++k) rest.bytes[k] += band.bytes[k];
    }
    if (smaller == 0) continue;
    bands.push_back(drawn(rest));
    bands.back().title = fmt::format("{}: {} smaller owners, {} at most", name(rest.label.kind),
                                     smaller, memory_size(rest.max()));
  }
  return bands;
}

std::string chart(const StepProfile& found) {
  BandChart chart{.name = "Bytes in use over the step",
                  .x_name = "milliseconds",
                  .x = {},
                  .bands = bands_of(found),
                  .label = [](double size) { return short_number(size) + " MiB"; }};
  constexpr double milliseconds = 1000;
  for (const double seconds : found.curve.seconds) chart.x.push_back(milliseconds * seconds);
  return band_chart(chart);
}

using Row = std::pair<std::string, std::size_t>;

// A table of shares; rows beyond max_rows are added up in one.
std::string shares(const char* heading, const std::vector<Row>& rows, std::size_t peak,
                   const std::vector<int>& colours = {}) {
  std::string html = fmt::format(
      "<div class=\"scroll\">\n<table>\n<tr><th>{}</th><th class=\"n\">At the peak</th><th "
      "class=\"n\">Share</th><th></th>"
      "</tr>\n",
      heading);
  const auto add = [&](const std::string& name, std::size_t bytes, const std::string& key) {
    const double share =
        static_cast<double>(bytes) / static_cast<double>(std::max<std::size_t>(peak, 1));
    html += fmt::format(
        "<tr><td>{}{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>"
        "<td class=\"meter\"><div style=\"width:{:.1f}%\"></div></td></tr>\n",
        key, escape(name), memory_size(bytes), percent(share), 100 * share);
  };
  std::size_t rest = 0;
  for (std::size_t k = 0; k < rows.size(); ++k) {
    if (k >= max_rows) {
      rest += rows[k].second;
      continue;
    }
    const std::string key = k < colours.size() ? fmt::format("<span class=\"key {}\"></span>",
                                                             colour_class("back", colours[k]))
                                               : "";
    add(rows[k].first, rows[k].second, key);
  }
  if (rest > 0) add(fmt::format("{} more", rows.size() - max_rows), rest, "");
  return html + "</table>\n</div>\n";
}

std::vector<Row> rows_of(const std::vector<memory::Timeline::Share>& shares, const char* nobody) {
  std::vector<Row> rows;
  for (const auto& [name, bytes] : shares) rows.emplace_back(name.empty() ? nobody : name, bytes);
  return rows;
}

// The kinds at the peak and those of the curve, which may be absent at the peak: the chart's
// legend.
std::string kinds(const StepProfile& found) {
  std::vector<Row> rows = rows_of(found.kinds, "-");
  std::vector<int> colours;
  const auto listed = [&](const char* kind) {
    return std::any_of(rows.begin(), rows.end(), [&](const Row& row) { return row.first == kind; });
  };
  for (const memory::Timeline::Band& band : found.curve.bands) {
    if (const char* kind = name(band.label.kind); !listed(kind)) rows.emplace_back(kind, 0);
  }
  for (const Row& row : rows) {
    for (int kind = 0; kind < memory_kinds; ++kind) {
      if (row.first == name(static_cast<MemoryKind>(kind))) colours.push_back(kind);
    }
  }
  return shares("Kind", rows, found.peak, colours);
}

std::string composition(const StepProfile& found) {
  std::vector<Row> owners;
  for (const auto& [label, bytes] : found.owners) owners.emplace_back(owner(label), bytes);
  return section("Owners at the peak", shares("Owner", owners, found.peak)) +
         section("Operations at the peak",
                 shares("Operation", rows_of(found.ops, "(none)"), found.peak)) +
         section("Modules at the peak",
                 shares("Module", rows_of(found.modules, "(none)"), found.peak));
}

std::string phases(const StepProfile& found) {
  std::string html =
      "<div class=\"scroll\">\n<table>\n<tr><th>Phase</th><th class=\"n\">Peak</th><th "
      "class=\"n\">Above the start</th>"
      "<th class=\"n\">Allocated</th><th class=\"n\">Blocks</th></tr>\n";
  for (const memory::Timeline::Phase& phase : found.phases) {
    html += fmt::format(
        "<tr><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>"
        "<td class=\"n\">{}</td></tr>\n",
        phase.name.empty() ? "other" : escape(phase.name), memory_size(phase.peak),
        memory_size(phase.peak - std::min(phase.peak, found.first)), memory_size(phase.allocated),
        grouped(phase.blocks));
  }
  return section("Phases", html + "</table>\n</div>\n");
}

NamedTexts settings(const Options& o, const StepProfile& found) {
  NamedTexts all{{"Model", o.model},
                 {"Parameters", grouped(found.parameters)},
                 {"Device", name(o.device)},
                 {"Batch", grouped(o.batch)},
                 {"Physical batch", grouped(std::min(o.batch, o.memory.rows()))},
                 {"Checkpoints", memory::checkpoint_text(o.memory.checkpoint)},
                 {"Precision", memory::precision_text(o.memory.precision)},
                 {"Privacy", o.no_privacy ? "none" : "clipped and noisy"},
                 {"Optimizer", o.optimizer},
                 {"Limit", o.limit > 0 ? memory_size(o.limit) : "none"}};
  if (!o.no_privacy) {
    all.emplace_back("Clip groups", o.clip_groups);
    all.emplace_back("Clipping", o.passes);
  }
  return all;
}

nlohmann::json shares_json(const std::vector<memory::Timeline::Share>& shares) {
  nlohmann::json all = nlohmann::json::object();
  for (const auto& [name, bytes] : shares) all[name] = bytes;
  return all;
}

nlohmann::json phases_json(const StepProfile& found) {
  nlohmann::json all = nlohmann::json::array();
  for (const memory::Timeline::Phase& phase : found.phases) {
    all.push_back({{"name", phase.name},
                   {"peak", phase.peak},
                   {"allocated", phase.allocated},
                   {"blocks", phase.blocks}});
  }
  return all;
}

nlohmann::json curve_json(const memory::Timeline::Curve& curve) {
  nlohmann::json bands = nlohmann::json::array();
  for (const memory::Timeline::Band& band : curve.bands) {
    bands.push_back({{"kind", name(band.label.kind)},
                     {"op", band.label.op_name()},
                     {"module", band.label.module},
                     {"bytes", band.bytes}});
  }
  return {{"seconds", curve.seconds}, {"bands", bands}};
}

}  // namespace

std::string to_html(const Options& options, const StepProfile& found) {
  return sotto::to_html(Page{
      .title = fmt::format("Memory profile of {}", options.model),
      .body = cards(found) + section("Bytes in use over the step", chart(found) + kinds(found)) +
              phases(found) + composition(found) +
              section("Settings", definitions("settings", settings(options, found))),
      .style = band_style,
      .origin = provenance(options.device)});
}

nlohmann::json to_json(const Options& options, const StepProfile& found) {
  nlohmann::json named = nlohmann::json::object();
  for (const auto& [name, value] : settings(options, found)) named[name] = value;
  const MemoryStatistics& now = found.statistics;
  return {{"settings", named},
          {"plan", found.plan ? nlohmann::json::parse(found.plan->json()) : nlohmann::json()},
          {"parameters", found.parameters},
          {"first", found.first},
          {"peak", found.peak},
          {"statistics",
           {{"current", now.current},
            {"cached", now.cached},
            {"held_peak", now.held_peak},
            {"rounding", now.rounding},
            {"unusable", now.unusable},
            {"allocated", now.allocated},
            {"freed", now.freed},
            {"allocations", now.allocations},
            {"releases", now.releases},
            {"reused", now.reused}}},
          {"kinds", shares_json(found.kinds)},
          {"ops", shares_json(found.ops)},
          {"modules", shares_json(found.modules)},
          {"phases", phases_json(found)},
          {"curve", curve_json(found.curve)}};
}

std::string to_text(const StepProfile& found) {
  std::string text = fmt::format("peak {}, before the step {}\n", memory_size(found.peak),
                                 memory_size(found.first));
  for (const auto& [name, bytes] : found.kinds)
    text += fmt::format("  {:<16} {:>12}\n", name, memory_size(bytes));
  for (const memory::Timeline::Phase& phase : found.phases) {
    text += fmt::format("peak in {:<11} {:>12}\n", phase.name.empty() ? "other" : phase.name,
                        memory_size(phase.peak));
  }
  if (found.plan) text += found.plan->text();
  return text;
}

}  // namespace sotto::memory_profile
