#include "nn/data/tables/header_guess.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "core/join.h"
#include "nn/data/tables/field_text.h"

namespace sotto {

namespace {

constexpr std::size_t max_texts = 100;

std::string in_small_letters(std::string_view text) {
  std::string y(text);
  for (char& c : y) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return y;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// Names that columns have everywhere, and that are hardly ever a value.
constexpr std::array<std::string_view, 46> usual_names{
    "id",      "index",    "name",       "names",    "label",     "labels",     "class",
    "classes", "category", "target",     "outcome",  "y",         "text",       "sentence",
    "title",   "comment",  "date",       "time",     "datetime",  "timestamp",  "year",
    "age",     "sex",      "gender",     "city",     "country",   "state",      "region",
    "email",   "phone",    "address",    "type",     "status",    "color",      "colour",
    "price",   "amount",   "income",     "salary",   "education", "occupation", "description",
    "user",    "user_id",  "first_name", "last_name"};

// A date, a time, an amount: it begins with a digit, perhaps behind a sign, and has more digits
// than letters, so that house numbers with streets are none.
bool is_amount(std::string_view text) {
  std::size_t begin = 0;
  while (begin < text.size() && static_cast<unsigned char>(text[begin]) < 0x80 &&
         !is_letter(text[begin]) && !is_digit(text[begin]))
    ++begin;
  if (begin == text.size() || !is_digit(text[begin])) return false;
  return std::count_if(text.begin(), text.end(), is_digit) >
         std::count_if(text.begin(), text.end(), [](char c) {
           return is_letter(c) || static_cast<unsigned char>(c) >= 0x80;
         });
}

bool is_truth(std::string_view text) {
  return text.size() <= 5 &&
         (in_small_letters(text) == "true" || in_small_letters(text) == "false");
}

// With a letter, perhaps behind a mark as in 'x', %fat or #chrom.
bool begins_as_name(std::string_view text) {
  if (text.size() > 1 && std::string_view("'`#%$[").find(text[0]) != text.npos)
    text.remove_prefix(1);
  return is_letter(text[0]) || text[0] == '_' || static_cast<unsigned char>(text[0]) >= 0x80;
}

// The numbers of columns, from 1.
std::string listed(const std::vector<std::size_t>& columns) {
  constexpr std::size_t most = 8;
  const auto some = std::span(columns).first(std::min(columns.size(), most));
  return fmt::format(
      "column{} {}{}", columns.size() > 1 ? "s" : "",
      join(some, ", ", [](std::size_t k) { return fmt::to_string(k + 1); }),
      columns.size() > most ? fmt::format(" and {} more", columns.size() - most) : "");
}

// Numbers in the first record that may be names: years; 0, 1, 2 and so on, as pandas numbers
// columns; steps of one size; many rising numbers; numbers that all exceed the ones below; any
// numbers, if the first column is empty in this record only, as above names of rows.
struct NumberNames {
  bool likely = false;  // years in succession, above other numbers
  bool possible = false;
};

NumberNames number_names(std::span<const ColumnBelow> columns) {
  constexpr double first_year = 1900, last_year = 2100;
  constexpr std::size_t steps_tell = 3, rising_tells = 5;  // so many numbers
  constexpr double rare = 0.01;
  std::vector<double> x;
  bool years = true, years_below = true, in_range = false;
  double chance = 1;  // that one row's values exceed those of all the rows
  for (const ColumnBelow& column : columns) {
    if (!column.first_number()) continue;
    x.push_back(*column.first_number());
    years = years && x.back() == std::floor(x.back()) && x.back() >= first_year &&
            x.back() <= last_year;
    years_below =
        years_below && column.min() >= first_year - 100 && column.max() <= last_year + 100;
    in_range = in_range || column.first_in_range();
    if (column.is_of_numbers()) chance *= 2 / (static_cast<double>(column.values()) + 1);
  }
  if (x.empty()) return {};
  const double step = x.size() > 1 ? x[1] - x[0] : 0;
  bool steps = step > 0, rises = step > 0;
  for (std::size_t k = 1; k < x.size(); ++k) {
    steps = steps && std::abs(x[k] - x[k - 1] - step) <= 1e-9 * std::abs(x[k]);
    rises = rises && x[k] > x[k - 1];
  }
  years = years && !(years_below && (in_range || x.size() > 1));
  const bool counting = steps && step == 1 && (x[0] == 0 || x[0] == 1);
  return {.likely = years && steps && !in_range,
          .possible = years || counting || (steps && x.size() >= steps_tell) ||
                      (rises && x.size() >= rising_tells) || (!in_range && chance < rare) ||
                      columns[0].is_unnamed()};
}

// The columns whose fields suggest names, and those that suggest values.
struct Evidence {
  std::vector<std::size_t> names, values, usual, categories, recurring;
  std::size_t texts = 0;
};

Evidence evidence_of(std::span<const ColumnBelow> columns, const NumberNames& numbers,
                     std::int64_t repeats) {
  Evidence y;
  for (std::size_t k = 0; k < columns.size(); ++k) {
    const ColumnBelow& column = columns[k];
    int sign = column.sign();
    if (column.is_of_numbers() && numbers.possible) sign = numbers.likely ? 1 : 0;
    if (sign > 0) y.names.push_back(k);
    if (sign < 0) y.values.push_back(k);
    y.texts += column.has_texts() ? 1 : 0;
    // A usual name may be a value by chance, as y is of yes and no.
    const bool recurs = column.first_recurs() && sign <= 0 && !column.has_usual_name();
    if (column.has_texts() && recurs) y.recurring.push_back(k);
    if (column.has_usual_name() && !column.first_recurs()) y.usual.push_back(k);
    if (column.has_categories_without_first()) y.categories.push_back(k);
  }
  if (repeats == 0 || !y.names.empty()) return y;
  y.recurring.clear();
  for (std::size_t k = 0; k < columns.size(); ++k) {
    if (columns[k].has_texts()) y.recurring.push_back(k);
  }
  return y;
}

}  // namespace

bool stands_for_missing(std::string_view text) {
  constexpr std::array<std::string_view, 17> texts{
      "?",    "na",      "n/a",     "n.a.",          "nan", "#n/a", "<na>", "null", "nil",
      "none", "unknown", "missing", "not available", "-",   "--",   ".",    "*"};
  constexpr std::size_t longest = 13;
  if (text.empty()) return true;
  // Few values begin so; the check of all the rest is quick.
  constexpr std::string_view beginnings = "?nNuUmM-.*#<";
  if (text.size() > longest || beginnings.find(text[0]) == text.npos) return false;
  const std::string small = in_small_letters(text);
  return std::find(texts.begin(), texts.end(), small) != texts.end();
}

ColumnBelow::ColumnBelow(std::string first)
    : first_(std::move(first)), first_number_(parse_number(first_)) {}

void ColumnBelow::take(std::string_view text) {
  if (!text.empty() && text == first_) recurs_ = true;
  if (stands_for_missing(text)) {
    missing_ = true;
    return;
  }
  const std::optional<double> x = parse_number(text);
  counts_ = counts_ && x && (values_ == 0 ? *x == 0 || *x == 1 : *x == max_ + 1);
  ++values_;
  numbers_ += x ? 1 : 0;
  amounts_ += x || is_amount(text) ? 1 : 0;
  truths_ += is_truth(text) ? 1 : 0;
  min_ = std::min(min_, x.value_or(min_));
  max_ = std::max(max_, x.value_or(max_));
  if (x || texts_.size() > max_texts) return;
  const auto found = texts_.find(text);
  if (found != texts_.end())
    ++found->second;
  else
    texts_.emplace(text, 1);
}

int ColumnBelow::sign() const {
  constexpr std::int64_t enough = 3;  // numbers of rows; 0 and 1 alone may be anything
  if (values_ == 0) return 0;
  if (first_.empty()) return counts_ && values_ >= enough ? 1 : 0;
  if (stands_for_missing(first_)) return recurs_ ? -1 : 0;
  if (first_number_) return all(numbers_) ? -1 : 0;
  if (!begins_as_name(first_)) return 0;
  if (all(numbers_) || (all(truths_) && !is_truth(first_))) return 1;
  return all(amounts_) && std::none_of(first_.begin(), first_.end(), is_digit) ? 1 : 0;
}

bool ColumnBelow::has_usual_name() const {
  const std::string small = in_small_letters(first_);
  return std::find(usual_names.begin(), usual_names.end(), small) != usual_names.end();
}

bool ColumnBelow::has_categories_without_first() const {
  constexpr std::int64_t enough = 50;  // rows
  return !recurs_ && has_texts() && values_ >= enough && begins_as_name(first_) &&
         !stands_for_missing(first_) && texts_.size() <= max_texts &&
         std::all_of(texts_.begin(), texts_.end(),
                     [](const auto& text) { return text.second > 1; });
}

// Names need evidence of one kind, almost without a column against; that a private row becomes
// names is worse than to ask. Values need numbers in the first record, or that it has texts of the
// rows below.
HeaderGuess guess_header(std::span<const ColumnBelow> columns, std::int64_t repeats) {
  constexpr std::size_t overwhelming = 4;
  const NumberNames numbers = number_names(columns);
  const Evidence e = evidence_of(columns, numbers, repeats);
  const std::size_t against = e.values.size() + e.recurring.size();
  if (!e.names.empty() && e.names.size() >= overwhelming * against)
    return {true, fmt::format("{} of the first line differ{} in kind from all values below",
                              listed(e.names), e.names.size() == 1 ? "s" : "")};
  if (e.names.empty() && !e.values.empty() && e.values.size() >= overwhelming * e.usual.size())
    return {false, fmt::format("{} of the first line {} of the kind of all values below",
                               listed(e.values), e.values.size() == 1 ? "is" : "are")};
  if (e.names.empty() && e.usual.empty() && e.recurring.size() > 1 &&
      2 * e.recurring.size() >= e.texts)
    return {false, fmt::format("{} of the first line occur below as well", listed(e.recurring))};
  const bool usual = e.usual.size() > 1 || (e.usual.size() == 1 && !e.categories.empty());
  if (usual && against == 0)
    return {true, fmt::format("{} of the first line have usual names, which no row has",
                              listed(e.usual))};
  if (against + e.names.size() == 0)
    return {std::nullopt, "its fields differ in kind from no values below, and equal none"};
  std::vector<std::size_t> other = e.values;
  other.insert(other.end(), e.recurring.begin(), e.recurring.end());
  return {std::nullopt, fmt::format("names are suggested by {}, values by {}",
                                    e.names.empty() ? "no column" : listed(e.names),
                                    other.empty() ? "no column" : listed(other))};
}

}  // namespace sotto
