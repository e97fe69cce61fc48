// The answer of a command, and its forms: text, page and JSON.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "samples/report/curve_chart.h"

namespace sotto::budget {

// A table. If `named`, the first column contains words; numbers are right-aligned.
struct Table {
  std::string caption{};
  bool named = false;
  std::vector<std::string> head{};
  std::vector<std::vector<std::string>> rows{};
};

struct Answer {
  std::string title;
  std::vector<std::string> alarms{};  // why there is no privacy
  std::vector<std::pair<std::string, std::string>> facts{};
  std::vector<Table> tables{};
  std::vector<std::string> notes{};
  std::vector<CurveChart> charts{};
  std::string failure{};  // that the program ends with, once all is shown; or none
  // The same facts as JSON, with all digits. JSON has no infinity: it is the string "infinity".
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
};

// Formats a number for `Answer::json`.
nlohmann::ordered_json json_number(double value);

// Returns lines for a terminal, with a newline after the last.
std::string to_text(const Answer& answer);

// Returns a self-contained page: UTF-8, well-formed as XML.
std::string to_html(const Answer& answer);

}  // namespace sotto::budget
