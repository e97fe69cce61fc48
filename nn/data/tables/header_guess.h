// Decides from the rows below whether the first record of a table has the names of the columns. A
// wrong guess would train on the names, or publish a private row as names; so the guess stays open
// if the rows do not decide it.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace sotto {

// Whether a text stands for a missing value: "", "?", "NA" and other usual ones.
bool stands_for_missing(std::string_view text);

// Facts about one column, from the rows below the first record.
class ColumnBelow {
 public:
  // `first` is the column's field in the first record.
  explicit ColumnBelow(std::string first);

  void take(std::string_view text);

  // The column's vote: 1 if its first field is a name, -1 if it is a value, 0 if unclear.
  int sign() const;
  // Whether the first field is a word that columns have as a name everywhere.
  bool has_usual_name() const;
  // Whether the rows have only texts here, some often and each at least twice, and the first field
  // is another text.
  bool has_categories_without_first() const;
  // Whether the first field is empty, and none below.
  bool is_unnamed() const { return first_.empty() && values_ > 1 && !missing_; }
  // Whether the first field and all values below are numbers.
  bool is_of_numbers() const { return first_number_ && all(numbers_); }
  bool has_texts() const { return values_ > 0 && !all(numbers_); }
  // The number of values below that are not missing.
  std::int64_t values() const { return values_; }
  bool first_recurs() const { return recurs_; }
  const std::optional<double>& first_number() const { return first_number_; }
  bool first_in_range() const { return min_ <= *first_number_ && *first_number_ <= max_; }
  double min() const { return min_; }
  double max() const { return max_; }

 private:
  bool all(std::int64_t count) const { return values_ > 0 && count == values_; }

  std::string first_;
  std::optional<double> first_number_;
  std::int64_t values_ = 0;   // that are not missing
  std::int64_t numbers_ = 0;  // of them
  std::int64_t amounts_ = 0;  // of them: numbers, dates, and texts of mostly digits
  std::int64_t truths_ = 0;   // of them: true and false
  bool counts_ = true;        // whether the values are 0, 1, 2 and so on, or 1, 2, 3
  bool missing_ = false;      // whether a value below is
  bool recurs_ = false;       // whether the first field occurs below
  double min_ = std::numeric_limits<double>::infinity(), max_ = -min_;
  std::map<std::string, std::int64_t, std::less<>> texts_;  // how often; 101 at most
};

// The decision, and its reason in words.
struct HeaderGuess {
  std::optional<bool> header;  // none: the rows do not decide it
  std::string why;
};

// `repeats` is the number of rows that are the first record again, which the columns did not take.
HeaderGuess guess_header(std::span<const ColumnBelow> columns, std::int64_t repeats);

}  // namespace sotto
