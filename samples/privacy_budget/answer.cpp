#include "samples/privacy_budget/answer.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "core/io/utf8.h"

#include "samples/report/charts.h"
#include "samples/report/page.h"

namespace sotto::budget {

namespace {

constexpr const char* gap = "  ";

// Counts characters, not bytes.
std::size_t length(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::string padding(std::size_t width, const std::string& text) {
  return std::string(width - std::min(width, length(text)), ' ');
}

std::vector<std::size_t> widths(const Table& table) {
  std::vector<std::size_t> widths;
  for (std::size_t column = 0; column < table.head.size(); ++column) {
    std::size_t width = length(table.head[column]);
    for (const auto& row : table.rows) width = std::max(width, length(row[column]));
    widths.push_back(width);
  }
  return widths;
}

std::string to_text(const Table& table) {
  const std::vector<std::size_t> width = widths(table);
  const auto line = [&](const std::vector<std::string>& cells) {
    std::string text;
    for (std::size_t k = 0; k < cells.size(); ++k) {
      const std::string space = padding(width[k], cells[k]);
      const bool words = table.named && k == 0;
      text += fmt::format("{}{}{}", gap, words ? cells[k] : space, words ? space : cells[k]);
    }
    return text + "\n";
  };
  std::string text = table.caption.empty() ? "" : table.caption + "\n";
  text += line(table.head);
  for (const auto& row : table.rows) text += line(row);
  return text;
}

std::string to_html(const Table& table) {
  const auto line = [&](const char* cell, const std::vector<std::string>& texts) {
    std::string html = "<tr>";
    for (std::size_t k = 0; k < texts.size(); ++k) {
      html += fmt::format("<{}{}>{}</{}>", cell, table.named && k == 0 ? "" : " class=\"n\"",
                          escape(texts[k]), cell);
    }
    return html + "</tr>\n";
  };
  std::string html = "<div class=\"scroll\">\n<table>\n" + line("th", table.head);
  for (const auto& row : table.rows) html += line("td", row);
  return section(table.caption, html + "</table>\n</div>\n");
}

std::string body(const Answer& answer) {
  std::string html, charts;
  for (const std::string& alarm : answer.alarms) html += banner("Not private.", escape(alarm));
  for (const Table& table : answer.tables) html += to_html(table);
  html += section("", definitions("facts", answer.facts));
  for (const CurveChart& chart : answer.charts) {
    charts += fmt::format("<figure>\n<figcaption>{}</figcaption>\n{}</figure>\n",
                          escape(chart.name), curve_chart(chart));
  }
  if (!charts.empty()) html += section("Curves", "<div class=\"charts\">\n" + charts + "</div>\n");
  return answer.notes.empty() ? html : html + section("Notes", bullets(answer.notes));
}

}  // namespace

nlohmann::ordered_json json_number(double value) {
  if (std::isinf(value)) return "infinity";
  return value;
}

std::string to_text(const Answer& answer) {
  std::size_t width = 0;
  for (const auto& fact : answer.facts) width = std::max(width, length(fact.first));
  std::string text;
  for (const std::string& alarm : answer.alarms)
    text += fmt::format("NOT PRIVATE: {}\n", printable(alarm));
  for (const auto& [name, value] : answer.facts) {
    text += fmt::format("{}{}{}{}\n", name, padding(width, name), gap, printable(value));
  }
  for (const Table& table : answer.tables) text += fmt::format("\n{}", to_text(table));
  if (!answer.notes.empty()) text += "\n";
  for (const std::string& note : answer.notes) text += fmt::format("note: {}\n", note);
  return text;
}

std::string to_html(const Answer& answer) {
  return sotto::to_html(Page{
      .title = answer.title, .body = body(answer), .style = curve_style, .origin = provenance()});
}

}  // namespace sotto::budget
