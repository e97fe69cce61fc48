#include "nn/data/tables/schema_guess.h"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string_view>

#include "core/error.h"
#include "core/io/utf8.h"
#include "nn/data/tables/csv_reader.h"
#include "nn/data/tables/field_text.h"
#include "nn/data/tables/header_guess.h"
#include "nn/data/tables/table_records.h"

namespace sotto {

namespace {

constexpr std::size_t max_categories = 100;
constexpr std::size_t max_numeric_classes = 20;
constexpr std::array<std::string_view, 8> missing_texts{"?",   "NA",   "N/A",  "NaN",
                                                        "nan", "null", "NULL", "None"};

using Texts = std::set<std::string, std::less<>>;

// The values of a column.
struct Values {
  std::string name;
  std::string ignored = {};  // why, if it is in any case
  bool numbers = true;
  double min = std::numeric_limits<double>::infinity();
  double max = -min;
  Texts texts = {};  // different ones, one more than max_categories at most
  bool empty = false;
  std::map<std::string, std::int64_t, std::less<>> missing = {};  // how often, of missing_texts

  void take(std::string_view text) {
    if (text.empty()) {
      empty = true;
    } else if (std::find(missing_texts.begin(), missing_texts.end(), text) != missing_texts.end()) {
      ++missing[std::string(text)];
    } else {
      take_text(text);
    }
  }
  void take_text(std::string_view text) {
    if (texts.size() <= max_categories && !texts.contains(text)) texts.emplace(text);
    const std::optional<double> x = numbers ? parse_number(text) : std::nullopt;
    numbers = x.has_value();
    min = std::min(min, x.value_or(min));
    max = std::max(max, x.value_or(max));
  }
  // Makes values of the texts that are not the table's for missing values.
  void decide_missing(const std::string& text) {
    for (const auto& [other, count] : missing) {
      if (other != text) take_text(other);
    }
    empty = empty || missing.contains(text);
  }
};

// The delimiter with which the first records have most fields, or the one that the file states.
char guess_delimiter(const std::string& path, bool ragged_header) {
  constexpr int records = 100;
  char best = ',';
  std::size_t most = 1;
  for (const char delimiter : {',', '\t', ';', '|'}) {
    std::size_t fields = 0;
    char used = delimiter;
    try {
      CsvReader csv(path, {.delimiter = delimiter, .ragged_header = ragged_header});
      for (int k = 0; k < records && csv.next(); ++k) fields = csv.fields().size();
      used = csv.delimiter();
    } catch (const SystemFailure&) {
      continue;  // not this one; the whole file is read again
    }
    if (fields > most) {
      most = fields;
      best = used;
    }
  }
  return most == 1 && !ragged_header ? guess_delimiter(path, true) : best;
}

// Decides whether the first record is a header.
void decide_header(const TableRecords& records, std::span<const ColumnBelow> below,
                   std::span<const std::int64_t> repeats, SchemaGuess& guess) {
  const HeaderGuess by_rows = guess_header(below, std::ssize(repeats));
  check(by_rows.header.has_value(),
        "schema: {}: it is unclear whether line {} has the names of the columns, since {}: say "
        "--header yes or --header no (GuessOptions::header)",
        records.name(), records.first_line(), by_rows.why);
  guess.schema.header = *by_rows.header;
  guess.header_note = "decided by all rows: " + by_rows.why;
  if (guess.schema.header && !repeats.empty())
    throw SystemFailure(
        fmt::format("schema: {}: line {} has the names of line {} again: the file "
                    "is several tables, one behind the other",
                    records.name(), repeats[0], records.first_line()));
}

// Names the columns. One without a name of its own is ignored.
void name_columns(const TableRecords& records, bool header, std::vector<Values>& all) {
  const std::vector<ColumnName> names = column_names(records.first());
  for (std::size_t k = 0; k < all.size(); ++k) {
    if (!header) {
      all[k].name = fmt::format("column_{}", k + 1);
      continue;
    }
    all[k].name = names[k].name;
    if (names[k].unnamed) all[k].ignored = "ignored: it has no name";
    if (names[k].repeated) all[k].ignored = "ignored: another column has its name";
    if (!valid_utf8(names[k].name))
      throw SystemFailure(
          fmt::format("schema: {}: line {}: the name {} is not UTF-8, as all text "
                      "is to be (iconv converts files)",
                      records.name(), records.first_line(), shown(names[k].name)));
  }
}

std::vector<Values> read_values(const std::string& path, std::optional<bool> header,
                                SchemaGuess& guess) {
  TableRecords records(std::make_unique<CsvReader>(
      path, CsvOptions{.delimiter = guess.schema.delimiter, .ragged_header = true}));
  std::vector<Values> all(records.first().size());
  std::vector<ColumnBelow> below(records.first().begin(), records.first().end());
  std::vector<std::int64_t> repeats;
  const auto take_row = [&] {
    for (std::size_t k = 0; k < all.size(); ++k) all[k].take(records.fields()[k]);
  };
  bool rows = false;
  for (; records.next(); rows = true) {
    take_row();
    const bool again = std::ranges::equal(records.fields(), records.first());
    if (again) repeats.push_back(records.line());
    for (std::size_t k = 0; k < all.size() && !again; ++k) below[k].take(records.fields()[k]);
  }
  if (!rows) throw SystemFailure(fmt::format("schema: {}: no rows", path));
  if (all.size() == 1)
    throw SystemFailure(
        fmt::format("schema: {}: one column, without a comma, a tabulator, a "
                    "semicolon or a bar between fields: there is no input",
                    path));
  if (header) {
    guess.schema.header = *header;
    guess.header_note = "as it was said, not by the rows";
  } else {
    decide_header(records, below, repeats, guess);
  }
  if (!guess.schema.header) {
    records.take_first();
    records.next();
    take_row();
  }
  name_columns(records, guess.schema.header, all);
  return all;
}

// The text that most of the missing values have.
std::string guess_missing(const std::vector<Values>& all) {
  std::map<std::string, std::int64_t> counts{{"?", 0}};
  for (const Values& values : all) {
    for (const auto& [text, count] : values.missing) counts[text] += count;
  }
  return std::max_element(counts.begin(), counts.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

void take_categories(const Values& values, TableColumn& column) {
  for (const std::string& text : values.texts) column.categories.push_back({text});
}

std::string label_column(const Values& values, TableColumn& column) {
  column.kind = ColumnKind::label;
  if (values.numbers && values.texts.size() > max_numeric_classes) {
    column.range = {values.min, values.max};
    return fmt::format(
        "the label, a number; its smallest and its largest value, {} and {}, are those "
        "of rows",
        values.min, values.max);
  }
  check(values.texts.size() >= 2 && values.texts.size() <= max_categories,
        "schema: the label {} has {} classes", excerpt(values.name),
        values.texts.size() > max_categories ? fmt::format("more than {}", max_categories)
                                             : fmt::format("{}", values.texts.size()));
  take_categories(values, column);
  return fmt::format(
      "the label; its {} classes are the texts that occur, some perhaps in one row only",
      values.texts.size());
}

// The last column with a name of its own and a value.
std::string default_label(const std::vector<Values>& all) {
  const auto label = std::find_if(all.rbegin(), all.rend(), [](const Values& values) {
    return values.ignored.empty() && (!values.texts.empty() || !values.missing.empty());
  });
  return label == all.rend() ? all.back().name : label->name;
}

// Sets the column's kind, and returns a note of the data that decided it.
std::string input_column(const Values& values, TableColumn& column) {
  if (!values.ignored.empty()) return values.ignored;
  if (values.texts.size() + (values.empty ? 1 : 0) <= 1) return "ignored: all rows have one value";
  if (values.numbers && values.min < values.max) {
    column.kind = ColumnKind::number;
    column.range = {values.min, values.max};
    if (values.empty) column.missing_value = values.min + (values.max - values.min) / 2;
    return fmt::format(
        "all values are numbers; the smallest and the largest, {} and {}, are those "
        "of rows",
        values.min, values.max);
  }
  if (values.texts.size() > max_categories) {
    return fmt::format("ignored: more than {} different texts occur", max_categories);
  }
  column.kind = ColumnKind::category;
  column.missing = values.empty;
  take_categories(values, column);
  return fmt::format("its {} categories are the texts that occur, some perhaps in one row only",
                     values.texts.size());
}

}  // namespace

SchemaGuess guess_schema(const std::string& path, const GuessOptions& options) {
  SchemaGuess guess;
  guess.schema.delimiter = guess_delimiter(path, /*ragged_header=*/false);
  std::vector<Values> all = read_values(path, options.header, guess);
  guess.schema.missing = guess_missing(all);
  const std::string label = options.label.empty() ? default_label(all) : options.label;
  for (const std::string& name : {label, options.user}) {
    check(name.empty() || std::any_of(all.begin(), all.end(),
                                      [&](const Values& values) { return values.name == name; }),
          "schema: {}: no column {}", path, name);
  }
  for (Values& values : all) {
    values.decide_missing(guess.schema.missing);
    TableColumn column{.name = values.name};
    std::string note = "the user's column";
    if (values.name == options.user) {
      column.kind = ColumnKind::user;
    } else {
      note = values.name == label ? label_column(values, column) : input_column(values, column);
      note += values.empty ? "; values are missing" : "; none is missing";
    }
    guess.notes.push_back(note);
    guess.schema.columns.push_back(std::move(column));
  }
  guess.schema.validate("schema: " + path);
  return guess;
}

}  // namespace sotto
