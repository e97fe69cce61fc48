// The records of a CSV file as a table: the first record may have the names of the columns, which
// need not be of one form.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nn/data/tables/csv_reader.h"

namespace sotto {

struct ColumnName {
  std::string name;       // differs from those of other columns
  bool unnamed = false;   // the file has none: it is "Unnamed: 3", with the place from 0
  bool repeated = false;  // the file has it before: it is "age.1"
};

// The names that pandas.read_csv gives to columns whose names in the file are these.
std::vector<ColumnName> column_names(std::span<const std::string> in_file);

// Streams rows. If the rows have one field more than the first record, either their last field is
// empty in every row (a delimiter ends each line), or the first column has no name (row names, as R
// writes them).
//
// Members throw SystemFailure as CsvReader does.
class TableRecords {
 public:
  // Reads the first record, and the first row below it. The reader has CsvOptions::ragged_header.
  explicit TableRecords(std::unique_ptr<CsvReader> csv);

  // The fields of the first record, one for each column; none if there is no record.
  const std::vector<std::string>& first() const { return first_; }
  // The line in which it begins, from 1.
  std::int64_t first_line() const { return first_line_; }
  // Makes the first record the next row; in a table of one column, empty lines before it become
  // rows, too. Throws SystemFailure if the rows have other numbers of fields.
  void take_first();

  // Moves to the next row, or returns false at the end of the file.
  bool next();
  // The fields of the row; valid until next(). As many as the first record's.
  std::span<const std::string_view> fields() const { return fields_; }
  // The line in which the row begins, from 1.
  std::int64_t line() const { return line_; }
  const std::string& name() const { return csv_->name(); }
  char delimiter() const { return csv_->delimiter(); }

 private:
  std::unique_ptr<CsvReader> csv_;
  std::vector<std::string> first_;
  std::int64_t first_line_ = 0, line_ = 0;
  std::int64_t before_ = 0;  // empty lines before the first record that are rows
  std::size_t first_fields_ = 0, row_fields_ = 0;
  bool ends_empty_ = false;  // whether a delimiter ends each row, and not the header
  bool take_first_ = false;
  bool ahead_ = false;  // whether csv_ is at the next row already
  std::vector<std::string_view> fields_;
};

}  // namespace sotto
