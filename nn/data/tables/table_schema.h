// Describes the columns of a table: how each becomes numbers for a model. A schema is public
// knowledge: its ranges and categories must not come from private data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace sotto {

enum class ColumnKind {
  number,    // an input
  category,  // an input that is one of several texts
  ignore,
  label,  // the target: a class if the column has categories, else a number
  user,   // the privacy unit that a row belongs to, such as a person: any text
};

// A category: its name, and its other spellings, such as one with a full stop.
struct Category {
  std::string name = {};                    // as in the file
  std::vector<std::string> spellings = {};  // each in one category only
};

// A public range of numbers, min < max.
struct NumberRange {
  double min = 0;  // smallest
  double max = 1;  // largest
};

// Numbers to standardize a column with, (x - mean) / stddev. They must be public.
struct Standardization {
  double mean = 0;       // subtracted
  double deviation = 1;  // divided by, > 0
};

// A column: its name, its role, and the public facts about its values.
struct TableColumn {
  std::string name = {};                 // as in the file
  ColumnKind kind = ColumnKind::ignore;  // its role
  // Numbers: values outside of the range are clamped to it. One of the two is required; with
  // `standardization` the input is (x - mean) / deviation, without it (x - min) / (max - min), or
  // if `logarithmic`, as for amounts of money, log(1 + x - min) / log(1 + max - min).
  std::optional<NumberRange> range = {};
  std::optional<Standardization> standardization = {};  // unset: by the range
  bool logarithmic = false;                             // needs a range
  std::optional<double> missing_value = {};  // the number for a missing one; none: an error
  // Categories, and the classes of a label.
  std::vector<Category> categories = {};
  bool missing = false;  // whether a missing value is a further category; else it is an error
  bool other = false;    // whether unknown texts are a further category; else they are errors

  // The input that a number becomes, and the number that it was, in the range.
  double encode(double x) const;
  // Undoes the standardization: the number in the file for the input y.
  double decode(double y) const;
  // True for a number of a draft without range, mean and deviation (TableSchema::load_draft).
  bool lacks_range() const;
  // True for a column of kind category without a category, in a draft.
  bool lacks_categories() const;
  // The number of categories with those for other and for missing values, in this order.
  std::int64_t category_count() const;
};

// A table's format and its columns. In a file with a header line columns are found by their names,
// in any order; columns of kind `ignore` may be absent. Without one they are the schema's.
//
// The members below throw std::invalid_argument, which names the column, unless the schema is
// sound: names differ, one column is the label and at most one the user, there is an input, ranges
// are not empty, and each category has texts of its own, in UTF-8.
struct TableSchema {
  char delimiter = ',';                   // a comma or a tabulator, as a rule
  bool header = true;                     // the first line has the names
  std::string missing = "?";              // the text of missing values; an empty field is one, too
  std::vector<TableColumn> columns = {};  // in the order of the inputs

  // Parses a schema's JSON form (docs/reference/tables.md); `name` stands for it in errors. Throws
  // std::invalid_argument for text that is no sound schema: unknown, repeated or missing keys, and
  // values of another type.
  static TableSchema from_json(std::string_view text, const std::string& name = "text");
  // Reads a file; also throws SystemFailure.
  static TableSchema load(const std::string& path);
  // Reads a schema in which numbers may lack range, mean and deviation, and columns of kind
  // category their list, which release_schema() finds (dp/engine/private_schema.h).
  static TableSchema load_draft(const std::string& path);
  // The JSON form, with a line for each column, each behind its comment if there is one, as
  // `header` is behind `header_comment`: equal schemas have equal texts.
  std::string to_json(const std::vector<std::string>& comments = {},
                      const std::string& header_comment = {}) const;

  // Throws std::invalid_argument, beginning with `where`, if a column is not valid.
  void validate(const std::string& where = "schema") const;
  const TableColumn& label() const;
  // True if a column names each row's user.
  bool has_users() const;
  // The names of the label's classes; empty if it is a number.
  std::vector<std::string> classes() const;
  // The names of the inputs in their order: "age", "color=red", "color=(other)".
  std::vector<std::string> input_names() const;
  // The number of inputs: one for each number, one for each category.
  std::int64_t width() const;
  // The numbers of categories of the columns of kind `category`: the sizes of embeddings.
  std::vector<std::int64_t> category_counts() const;
};

}  // namespace sotto
