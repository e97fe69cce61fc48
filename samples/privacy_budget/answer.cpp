#include "samples/privacy_budget/answer.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "core/io/utf8.h"

#include "samples/report/charts.h"
#include "samples/report/report_style.h"

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

std::string section(const std::string& heading, const std::string& body) {
  return fmt::format("<section>\n{}{}</section>\n",
                     heading.empty() ? "" : fmt::format("<h2>{}</h2>\n", escape(heading)), body);
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
  std::string html = "<table>\n" + line("th", table.head);
  for (const auto& row : table.rows) html += line("td", row);
  return section(table.caption, html + "</table>\n");
}

std::string facts(const Answer& answer) {
  std::string html = "<dl class=\"facts\">\n";
  for (const auto& [name, value] : answer.facts) {
    html += fmt::format("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(value));
  }
  return section("", html + "</dl>\n");
}

std::string body(const Answer& answer) {
  std::string html = fmt::format("<h1>{}</h1>\n", escape(answer.title));
  for (const std::string& alarm : answer.alarms) {
    html +=
        fmt::format("<div class=\"banner\" role=\"alert\"><strong>Not private.</strong> {}</div>\n",
                    escape(alarm));
  }
  for (const Table& table : answer.tables) html += to_html(table);
  html += facts(answer);
  for (const CurveChart& chart : answer.charts) {
    html += section(chart.name, "<figure>\n" + curve_chart(chart) + "</figure>\n");
  }
  if (answer.notes.empty()) return html;
  std::string notes = "<ul>\n";
  for (const std::string& note : answer.notes) notes += fmt::format("<li>{}</li>\n", escape(note));
  return html + section("Notes", notes + "</ul>\n");
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
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n"
      "<meta name=\"color-scheme\" content=\"light dark\"/>\n"
      "<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n<main>\n{}</main>\n</body>\n"
      "</html>\n",
      escape(answer.title), report_style, curve_style, body(answer));
}

}  // namespace sotto::budget
