#include "nn/data/tables/table_schema.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/io/utf8.h"

namespace sotto {

namespace {

bool is_number(const TableColumn& column) {
  return column.kind == ColumnKind::number ||
         (column.kind == ColumnKind::label && column.categories.empty());
}

bool has_categories(const TableColumn& column) {
  return column.kind == ColumnKind::category ||
         (column.kind == ColumnKind::label && !column.categories.empty());
}

bool has_scale(const TableColumn& column) {
  return column.range || column.standardization || column.logarithmic || column.missing_value;
}

void validate_number(const TableColumn& column, const std::string& where) {
  check(column.range || column.standardization,
        "{}: a number without min and max, or mean and deviation", where);
  const NumberRange range = column.range.value_or(NumberRange{});
  check(range.min < range.max && std::isfinite(range.max - range.min), "{}: min {} and max {}",
        where, range.min, range.max);
  const Standardization standard = column.standardization.value_or(Standardization{});
  check(std::isfinite(standard.mean) && std::isfinite(standard.deviation) && standard.deviation > 0,
        "{}: mean {} and deviation {}", where, standard.mean, standard.deviation);
  check(!column.missing_value ||
            (column.kind == ColumnKind::number && std::isfinite(*column.missing_value)),
        "{}: {} for missing values", where, column.missing_value.value_or(0));
  check(!column.logarithmic || (column.range && !column.standardization),
        "{}: a logarithm takes min and max alone", where);
  check(column.categories.empty() && !column.missing && !column.other,
        "{}: a number with categories", where);
}

void validate_categories(const TableColumn& column, const std::string& missing,
                         const std::string& where) {
  check(!has_scale(column), "{}: categories with a range", where);
  const bool label = column.kind == ColumnKind::label;
  check(std::ssize(column.categories) >= (label ? 2 : 1), "{}: {} categories", where,
        column.categories.size());
  check(!label || (!column.missing && !column.other),
        "{}: a label is neither missing nor of another class", where);
  std::set<std::string> texts;
  const auto take = [&](const std::string& text) {
    check(valid_utf8(text), "{}: the category {} is not UTF-8", where, excerpt(text));
    check(!text.empty() && text != missing, "{}: the category '{}' is the text of missing values",
          where, excerpt(text));
    check(texts.insert(text).second, "{}: the category {} occurs twice", where, excerpt(text));
  };
  for (const Category& category : column.categories) {
    take(category.name);
    std::for_each(category.spellings.begin(), category.spellings.end(), take);
  }
}

void validate_column(const TableColumn& column, const std::string& missing,
                     const std::string& where) {
  if (is_number(column)) return validate_number(column, where);
  if (has_categories(column)) return validate_categories(column, missing, where);
  check(!has_scale(column) && column.categories.empty() && !column.missing && !column.other,
        "{}: neither an input nor the label, but with a range or categories", where);
}

std::int64_t count(const TableSchema& schema, ColumnKind kind) {
  return std::count_if(schema.columns.begin(), schema.columns.end(),
                       [&](const TableColumn& column) { return column.kind == kind; });
}

}  // namespace

double TableColumn::encode(double x) const {
  if (range) x = std::clamp(x, range->min, range->max);
  if (standardization) return (x - standardization->mean) / standardization->deviation;
  const double above = x - range->min, width = range->max - range->min;
  return logarithmic ? std::log1p(above) / std::log1p(width) : above / width;
}

double TableColumn::decode(double y) const {
  double x = 0;
  if (standardization) {
    x = standardization->mean + y * standardization->deviation;
  } else {
    const double width = range->max - range->min;
    x = range->min + (logarithmic ? std::expm1(y * std::log1p(width)) : y * width);
  }
  return range ? std::clamp(x, range->min, range->max) : x;
}

bool TableColumn::lacks_range() const { return is_number(*this) && !range && !standardization; }

bool TableColumn::lacks_categories() const {
  return kind == ColumnKind::category && categories.empty();
}

std::int64_t TableColumn::category_count() const {
  return std::ssize(categories) + (other ? 1 : 0) + (missing ? 1 : 0);
}

void TableSchema::validate(const std::string& where) const {
  check(delimiter > 0 && delimiter != '"' && delimiter != '\n' && delimiter != '\r',
        "{}: the delimiter is the byte {}", where, static_cast<unsigned char>(delimiter));
  check(valid_utf8(missing), "{}: the text of missing values {} is not UTF-8", where,
        excerpt(missing));
  std::set<std::string> names;
  for (const TableColumn& column : columns) {
    const std::string& name = column.name;
    check(valid_utf8(name) && !name.empty(), "{}: a column's name is '{}'", where, excerpt(name));
    check(names.insert(name).second, "{}: column {} occurs twice", where, excerpt(name));
    validate_column(column, missing, fmt::format("{}: column {}", where, excerpt(name)));
  }
  const std::int64_t labels = count(*this, ColumnKind::label);
  check(labels == 1, "{}: {} columns of kind label, not 1", where, labels);
  const std::int64_t users = count(*this, ColumnKind::user);
  check(users <= 1, "{}: {} columns of kind user, at most 1", where, users);
  check(count(*this, ColumnKind::number) + count(*this, ColumnKind::category) > 0,
        "{}: no column of kind number or category", where);
}

const TableColumn& TableSchema::label() const {
  validate();
  return *std::find_if(columns.begin(), columns.end(),
                       [](const TableColumn& column) { return column.kind == ColumnKind::label; });
}

bool TableSchema::has_users() const {
  validate();
  return count(*this, ColumnKind::user) == 1;
}

std::vector<std::string> TableSchema::classes() const {
  std::vector<std::string> names;
  for (const Category& category : label().categories) names.push_back(category.name);
  return names;
}

std::vector<std::string> TableSchema::input_names() const {
  validate();
  std::vector<std::string> names;
  for (const TableColumn& column : columns) {
    if (column.kind == ColumnKind::number) names.push_back(column.name);
    if (column.kind != ColumnKind::category) continue;
    for (const Category& category : column.categories) {
      names.push_back(column.name + "=" + category.name);
    }
    if (column.other) names.push_back(column.name + "=(other)");
    if (column.missing) names.push_back(column.name + "=(missing)");
  }
  return names;
}

std::int64_t TableSchema::width() const { return std::ssize(input_names()); }

std::vector<std::int64_t> TableSchema::category_counts() const {
  validate();
  std::vector<std::int64_t> counts;
  for (const TableColumn& column : columns) {
    if (column.kind == ColumnKind::category) counts.push_back(column.category_count());
  }
  return counts;
}

}  // namespace sotto
