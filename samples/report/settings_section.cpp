#include "samples/report/settings_section.h"

#include <algorithm>

#include <fmt/format.h>

#include "samples/report/charts.h"
#include "samples/report/page.h"

namespace sotto {

namespace {

constexpr std::size_t longest_in_grid = 60;
constexpr const char* rest = "Model and data";

struct Group {
  const char* name;
  std::vector<std::string> settings;
};

const std::vector<Group>& groups() {
  static const std::vector<Group> all = {
      {"Privacy",
       {"epsilon", "delta", "noise multiplier", "clip bound", "clip rule", "clip groups",
        "adaptive quantile", "accountant", "sampling", "largest batch", "unit", "privacy"}},
      {"Training",
       {"batch", "epochs", "steps", "planned steps", "optimizer", "learning rate", "momentum",
        "schedule", "warmup", "average", "average warmup", "seed"}},
      {rest, {"data", "train size", "test size", "validation"}},
      {"Computation",
       {"device", "threads", "captured", "precision", "passes", "physical batch", "accumulation",
        "checkpoint", "memory limit"}}};
  return all;
}

// "privacy" is what the rest of the page is about.
bool shown(const TrainingReport::Setting& setting) {
  static const std::vector<std::string> off = {"", "false", "0", "0.0", "[]"};
  const bool is_off = std::find(off.begin(), off.end(), setting.value) != off.end();
  return setting.name != "privacy" && (setting.name == "seed" || !is_off);
}

bool is_long(const std::string& value) {
  return value.size() > longest_in_grid || value.find('\n') != value.npos;
}

// "256" for "256.0".
std::string shortened(const std::string& value) {
  return value.ends_with(".0") ? value.substr(0, value.size() - 2) : value;
}

}  // namespace

std::string group_of(const std::string& setting) {
  for (const Group& group : groups()) {
    if (std::find(group.settings.begin(), group.settings.end(), setting) != group.settings.end())
      return group.name;
  }
  return rest;
}

std::string settings_section(const std::vector<TrainingReport::Setting>& settings) {
  if (settings.empty()) return "";
  std::string html, below;
  for (const Group& group : groups()) {
    NamedTexts rows;
    for (const TrainingReport::Setting& setting : settings) {
      if (group_of(setting.name) != group.name || !shown(setting)) continue;
      if (!is_long(setting.value)) {
        rows.emplace_back(setting.name, shortened(setting.value));
      } else {
        below += fmt::format("<h3>{}</h3>\n<pre>{}</pre>\n", escape(setting.name),
                             escape(setting.value));
      }
    }
    if (!rows.empty())
      html += fmt::format("<h3>{}</h3>\n{}", group.name, definitions("settings", rows));
  }
  return section("Settings",
                 html + below + "<p class=\"note\">Settings that are off are left out.</p>\n");
}

}  // namespace sotto
