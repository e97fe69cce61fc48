#include "nn/data/tables/table_reader.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "core/error.h"
#include "core/io/utf8.h"
#include "core/join.h"
#include "nn/data/tables/csv_reader.h"
#include "nn/data/tables/field_text.h"
#include "nn/data/tables/table_records.h"

namespace sotto {

namespace {

// Hashes texts without a copy of each.
struct TextHash : std::hash<std::string_view> {
  using is_transparent = void;
};
using Numbers = std::unordered_map<std::string, std::int64_t, TextHash, std::equal_to<>>;

std::string known(const TableColumn& column) {
  constexpr std::size_t max = 12;
  const std::span<const Category> all = column.categories;
  const auto shown = all.first(std::min(all.size(), max));
  const std::string names = join(shown, ", ", [](const Category& c) { return c.name; });
  return all.size() > max ? fmt::format("{} and {} more", names, all.size() - max) : names;
}

// A column of the schema: where its inputs begin, and the numbers of its categories' texts.
struct InputColumn {
  const TableColumn* column;
  std::int64_t at = 0;  // with category_indices: for a category, its place among the indices
  Numbers categories = {};
};

// Rows that were read, row by row.
struct Rows {
  std::vector<float> inputs = {};
  std::vector<std::int64_t> indices = {};
  std::vector<std::int64_t> classes = {};
  std::vector<float> values = {};  // of a label that is a number
  std::vector<std::int64_t> units = {};
  std::int64_t count = 0;
};

}  // namespace

class TableReader::Encoder {
 public:
  Encoder(std::unique_ptr<CsvReader> csv, const TableSchema& schema, const TableOptions& options)
      : records_(std::move(csv)),
        schema_(schema),
        options_(options),
        classes_(!schema.classes().empty()) {
    for (const TableColumn& column : schema_.columns) add_place(column);
    if (schema_.header)
      read_header();
    else
      records_.take_first();
  }

  Dataset next(std::int64_t max_rows) {
    check(max_rows >= 1, "table: {}: {} rows at a time", records_.name(), max_rows);
    Rows rows;
    while (rows.count < max_rows && records_.next()) encode(rows);
    return dataset(rows);
  }

 private:
  void add_place(const TableColumn& column) {
    InputColumn place{.column = &column};
    std::int64_t number = 0;
    for (const Category& category : column.categories) {
      place.categories.emplace(category.name, number);
      for (const std::string& text : category.spellings) place.categories.emplace(text, number);
      ++number;
    }
    if (column.kind == ColumnKind::number) place.at = width_++;
    if (column.kind == ColumnKind::category && options_.category_indices) place.at = indices_++;
    if (column.kind == ColumnKind::category && !options_.category_indices) {
      place.at = std::exchange(width_, width_ + column.category_count());
    }
    places_.push_back(std::move(place));
  }

  bool is_read(const TableColumn& column) const {
    const bool of_training = column.kind == ColumnKind::label || column.kind == ColumnKind::user;
    return column.kind != ColumnKind::ignore && (options_.labels || !of_training);
  }

  void read_header() {
    if (records_.first().empty()) {
      throw SystemFailure(fmt::format("table: {}: no header line", records_.name()));
    }
    const auto refuse = [&](const char* what, std::string_view name) {
      throw SystemFailure(fmt::format("table: {}: line {}: the header {} {}", records_.name(),
                                      records_.first_line(), what, shown(name)));
    };
    std::set<std::string, std::less<>> found;
    const std::vector<ColumnName> names = column_names(records_.first());
    for (std::size_t k = 0; k < names.size(); ++k) {
      const std::string& name = names[k].name;
      const auto place = std::find_if(places_.begin(), places_.end(),
                                      [&](const InputColumn& p) { return p.column->name == name; });
      const bool known = place != places_.end();
      if (!known && names[k].repeated) refuse("has twice the column", records_.first()[k]);
      if (!known && !names[k].unnamed) refuse("has a column that the schema does not know:", name);
      if (known) found.insert(name);
      fields_.push_back(known && is_read(*place->column) ? &*place : nullptr);
    }
    for (const TableColumn& column : schema_.columns) {
      if (is_read(column) && !found.contains(column.name)) refuse("lacks the column", column.name);
    }
  }

  // Without a header the fields are the schema's columns, but for a label to be predicted.
  void map_by_position() {
    const std::size_t all = places_.size(), got = records_.fields().size();
    const bool no_label = !options_.labels && got + 1 == all;
    if (got != all && !no_label) {
      throw SystemFailure(
          fmt::format("table: {}: line {}: {} fields, but the schema has {} columns",
                      records_.name(), records_.line(), got, all));
    }
    for (InputColumn& place : places_) {
      if (no_label && place.column->kind == ColumnKind::label) continue;
      fields_.push_back(is_read(*place.column) ? &place : nullptr);
    }
  }

  void encode(Rows& rows) {
    if (fields_.empty()) map_by_position();
    const std::span<const std::string_view> texts = records_.fields();
    ++rows.count;
    rows.inputs.resize(static_cast<std::size_t>(rows.count * width_));
    rows.indices.resize(static_cast<std::size_t>(rows.count * indices_));
    float* const inputs = rows.inputs.data() + (rows.count - 1) * width_;
    std::int64_t* const indices = rows.indices.data() + (rows.count - 1) * indices_;
    for (std::size_t k = 0; k < texts.size(); ++k) {
      const InputColumn* const place = fields_[k];
      if (!place) continue;
      switch (place->column->kind) {
        case ColumnKind::number: inputs[place->at] = number(*place, texts[k]); break;
        case ColumnKind::category: {
          const std::int64_t found = category(*place, texts[k]);
          if (options_.category_indices)
            indices[place->at] = found;
          else
            inputs[place->at + found] = 1;
          break;
        }
        case ColumnKind::label:
          if (place->categories.empty())
            rows.values.push_back(number(*place, texts[k]));
          else
            rows.classes.push_back(category(*place, texts[k]));
          break;
        case ColumnKind::user: rows.units.push_back(user(*place, texts[k])); break;
        case ColumnKind::ignore: break;
      }
    }
  }

  bool is_missing(std::string_view text) const { return text.empty() || text == schema_.missing; }

  float number(const InputColumn& place, std::string_view text) const {
    const TableColumn& column = *place.column;
    const bool missing = is_missing(text);
    if (missing && !column.missing_value) refuse_missing(column);
    const std::optional<double> x = missing ? column.missing_value : parse_number(text);
    if (!x)
      refuse(column, "{} is {}", shown(text), is_too_large(text) ? "too large" : "not a number");
    const auto y = static_cast<float>(column.encode(*x));
    if (!std::isfinite(y)) refuse(column, "{} is too large", shown(text));
    return y;
  }

  std::int64_t category(const InputColumn& place, std::string_view text) const {
    const TableColumn& column = *place.column;
    if (is_missing(text)) {
      if (!column.missing) refuse_missing(column);
      return column.category_count() - 1;
    }
    const auto found = place.categories.find(text);
    if (found != place.categories.end()) return found->second;
    if (!valid_utf8(text)) refuse(column, "{} is not UTF-8", shown(text));
    if (!column.other)
      refuse(column, "unknown category {}; known are {}", shown(text), known(column));
    return std::ssize(column.categories);
  }

  std::int64_t user(const InputColumn& place, std::string_view text) {
    if (is_missing(text)) refuse_missing(*place.column);
    const auto found = users_.find(text);
    if (found != users_.end()) return found->second;
    return users_.emplace(text, std::ssize(users_)).first->second;
  }

  [[noreturn]] void refuse_missing(const TableColumn& column) const {
    refuse(column, "a missing value, which the schema does not allow");
  }

  // Throws SystemFailure with the place in the file.
  template <class... Args>
  [[noreturn]] void refuse(const TableColumn& column, fmt::format_string<const Args&...> text,
                           const Args&... args) const {
    throw SystemFailure(fmt::format("table: {}: line {}, column {}: {}", records_.name(),
                                    records_.line(), column.name, fmt::format(text, args...)));
  }

  Dataset dataset(Rows& rows) const {
    const std::int64_t n = rows.count;
    Dataset data{.inputs = Tensor::from(rows.inputs, {n, width_}),
                 .targets = Tensor::empty({n, 0}, Dtype::i64),
                 .units = std::move(rows.units)};
    if (options_.labels && classes_) data.targets = Tensor::from(rows.classes, {n});
    if (options_.labels && !classes_) data.targets = Tensor::from(rows.values, {n, 1});
    if (options_.category_indices) {
      data.fields["categories"] = Tensor::from(rows.indices, {n, indices_});
    }
    return data;
  }

  TableRecords records_;
  TableSchema schema_;
  TableOptions options_;
  bool classes_;  // whether the label has classes
  std::vector<InputColumn> places_;
  std::vector<InputColumn*> fields_;  // the place of each field of a record; null: not read
  std::int64_t width_ = 0, indices_ = 0;
  Numbers users_;
};

namespace {

CsvOptions csv_options(const TableSchema& schema) {
  schema.validate();
  return {.delimiter = schema.delimiter, .ragged_header = true};
}

}  // namespace

TableReader::TableReader(const std::string& path, const TableSchema& schema,
                         const TableOptions& options)
    : encoder_(std::make_unique<Encoder>(std::make_unique<CsvReader>(path, csv_options(schema)),
                                         schema, options)) {}

TableReader::TableReader(std::istream& in, const std::string& name, const TableSchema& schema,
                         const TableOptions& options)
    : encoder_(std::make_unique<Encoder>(std::make_unique<CsvReader>(in, name, csv_options(schema)),
                                         schema, options)) {}

TableReader::~TableReader() = default;

Dataset TableReader::next(std::int64_t max_rows) { return encoder_->next(max_rows); }

}  // namespace sotto
