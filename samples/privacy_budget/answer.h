// What a command found out, for every way of showing it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "samples/report/curve_chart.h"

namespace sotto::budget {

// The first column holds words when `named`; numbers stand to the right of their columns.
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
  // The same facts with all their digits. JSON has no infinity: it is the string "infinity".
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
};

// A number for `Answer::json`.
nlohmann::ordered_json json_number(double value);

// Lines for a terminal, the last with its newline.
std::string to_text(const Answer& answer);

// A page that needs nothing else; UTF-8, well-formed as XML.
std::string to_html(const Answer& answer);

}  // namespace sotto::budget
