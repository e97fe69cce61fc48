#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io/atomic_file.h"
#include "core/io/strict_json.h"
#include "core/io/utf8.h"
#include "core/join.h"
#include "nn/data/tables/table_schema.h"

namespace sotto {

namespace {

using nlohmann::json;

constexpr std::size_t max_schema_bytes = 100'000'000;
// The schema, its columns, a column, its categories, a category's spellings.
constexpr JsonLimits limits{.depth = 5, .max_entries = 1000, .comments = true};

constexpr std::array<std::pair<ColumnKind, const char*>, 5> kinds{
    {{ColumnKind::number, "number"},
     {ColumnKind::category, "category"},
     {ColumnKind::ignore, "ignore"},
     {ColumnKind::label, "label"},
     {ColumnKind::user, "user"}}};

// Reads an object key by key; keys that were never read are unknown.
class Fields {
 public:
  Fields(json object, std::string where) : left_(std::move(object)), where_(std::move(where)) {
    check(left_.is_object(), "{}: not an object but {}", where_, excerpt(left_.dump()));
  }

  // The value of a key, or null.
  json take(const char* key) {
    const auto found = left_.find(key);
    if (found == left_.end()) return nullptr;
    json value = std::move(*found);
    left_.erase(found);
    check(!value.is_null(), "{}: {} is null", where_, key);
    return value;
  }
  std::string text(const char* key) {
    json value = take(key);
    check(!value.is_null(), "{}: no {}", where_, key);
    check(value.is_string(), "{}: {} is {}, not a text", where_, key, excerpt(value.dump()));
    return value.get<std::string>();
  }
  bool flag(const char* key, bool otherwise) {
    const json value = take(key);
    check(value.is_null() || value.is_boolean(), "{}: {} is {}, not true or false", where_, key,
          excerpt(value.dump()));
    return value.is_null() ? otherwise : value.get<bool>();
  }
  std::optional<double> number(const char* key) {
    const json value = take(key);
    check(value.is_null() || value.is_number(), "{}: {} is {}, not a number", where_, key,
          excerpt(value.dump()));
    return value.is_null() ? std::nullopt : std::optional(value.get<double>());
  }
  // Two numbers: both must be there, or neither.
  std::optional<std::pair<double, double>> numbers(const char* a, const char* b) {
    const std::optional<double> first = number(a), second = number(b);
    check(first.has_value() == second.has_value(), "{}: {} without {}", where_, first ? a : b,
          first ? b : a);
    return first ? std::optional(std::pair(*first, *second)) : std::nullopt;
  }
  bool has(const char* key) const { return left_.contains(key); }
  void finish() const {
    check(left_.empty(), "{}: unknown key {}", where_,
          left_.empty() ? std::string() : excerpt(left_.begin().key()));
  }
  const std::string& where() const { return where_; }
  void rename(std::string where) { where_ = std::move(where); }

 private:
  json left_;
  std::string where_;
};

std::string text_of(const json& value, const std::string& where) {
  check(value.is_string(), "{}: the category {} is not a text", where, excerpt(value.dump()));
  return value.get<std::string>();
}

// A category is a text, or the list of its name and its other spellings.
Category parse_category(const json& value, const std::string& where) {
  if (!value.is_array()) return {text_of(value, where)};
  check(!value.empty(), "{}: a category without a name", where);
  Category category{text_of(value[0], where)};
  for (std::size_t k = 1; k < value.size(); ++k) {
    category.spellings.push_back(text_of(value[k], where));
  }
  return category;
}

ColumnKind parse_kind(const std::string& text, const std::string& where) {
  for (const auto& [kind, name] : kinds) {
    if (text == name) return kind;
  }
  fail(fmt::format("{}: kind {} is none of {}", where, excerpt(text),
                   join(kinds, ", ", [](const auto& kind) { return kind.second; })));
}

void take_number(Fields& fields, TableColumn& column) {
  if (const auto range = fields.numbers("min", "max")) column.range = {range->first, range->second};
  if (const auto standard = fields.numbers("mean", "deviation")) {
    column.standardization = {standard->first, standard->second};
  }
  column.logarithmic = fields.flag("log", false);
  if (column.kind == ColumnKind::number) column.missing_value = fields.number("missing");
}

void take_categories(Fields& fields, TableColumn& column, bool draft) {
  const json categories = fields.take("categories");
  check(categories.is_array() || (draft && categories.is_null()), "{}: no list of categories",
        fields.where());
  for (const json& category : categories) {
    column.categories.push_back(parse_category(category, fields.where()));
  }
  if (column.kind == ColumnKind::category) {
    column.missing = fields.flag("missing", false);
    column.other = fields.flag("other", false);
  }
}

TableColumn parse_column(const json& value, std::size_t number, const std::string& where,
                         bool draft) {
  Fields fields(value, fmt::format("{}: column {}", where, number));
  TableColumn column{.name = fields.text("name")};
  fields.rename(fmt::format("{}: column {}", where, excerpt(column.name)));
  column.kind = parse_kind(fields.text("kind"), fields.where());
  const bool label = column.kind == ColumnKind::label;
  if (column.kind == ColumnKind::category || (label && fields.has("categories"))) {
    take_categories(fields, column, draft);
  } else if (column.kind == ColumnKind::number || label) {
    take_number(fields, column);
  }
  fields.finish();
  return column;
}

std::string quoted(const std::string& text) { return json(text).dump(); }

std::string category_text(const Category& category) {
  if (category.spellings.empty()) return quoted(category.name);
  return fmt::format("[{}, {}]", quoted(category.name), join(category.spellings, ", ", quoted));
}

// The shortest text that reads back as the same number.
std::string number_text(double x) { return fmt::format("{}", x); }

std::string column_text(const TableColumn& column) {
  const auto* const kind = std::find_if(
      kinds.begin(), kinds.end(), [&](const auto& kind) { return kind.first == column.kind; });
  std::string text = fmt::format(R"("name": {}, "kind": "{}")", quoted(column.name), kind->second);
  const auto add = [&](const char* key, const std::string& value) {
    text += fmt::format(R"(, "{}": {})", key, value);
  };
  if (column.range) {
    add("min", number_text(column.range->min));
    add("max", number_text(column.range->max));
  }
  if (column.standardization) {
    add("mean", number_text(column.standardization->mean));
    add("deviation", number_text(column.standardization->deviation));
  }
  if (column.logarithmic) add("log", "true");
  if (column.missing_value) add("missing", number_text(*column.missing_value));
  if (!column.categories.empty()) {
    add("categories", '[' + join(column.categories, ", ", category_text) + ']');
  }
  if (column.other) add("other", "true");
  if (column.missing) add("missing", "true");
  return '{' + text + '}';
}

TableSchema parse(std::string_view text, const std::string& where, bool draft = false) {
  Fields fields(parse_json_object(text, where, limits), where);
  TableSchema schema;
  if (fields.has("delimiter")) {
    const std::string delimiter = fields.text("delimiter");
    check(delimiter.size() == 1, "{}: the delimiter {} is not one byte", where, excerpt(delimiter));
    schema.delimiter = delimiter[0];
  }
  schema.header = fields.flag("header", schema.header);
  if (fields.has("missing")) schema.missing = fields.text("missing");
  const json columns = fields.take("columns");
  check(columns.is_array(), "{}: columns are not a list", where);
  fields.finish();
  for (const json& column : columns) {
    schema.columns.push_back(parse_column(column, schema.columns.size() + 1, where, draft));
  }
  return schema;
}

}  // namespace

TableSchema TableSchema::from_json(std::string_view text, const std::string& name) {
  const std::string where = "schema: " + name;
  TableSchema schema = parse(text, where);
  schema.validate(where);
  return schema;
}

TableSchema TableSchema::load(const std::string& path) {
  return from_json(read_file(path, max_schema_bytes), path);
}

TableSchema TableSchema::load_draft(const std::string& path) {
  const std::string where = "schema: " + path;
  TableSchema draft = parse(read_file(path, max_schema_bytes), where, true), complete = draft;
  for (TableColumn& column : complete.columns) {
    if (column.lacks_range()) column.range = NumberRange{};
    if (column.lacks_categories()) column.categories = {{draft.missing + "."}};
  }
  complete.validate(where);
  return draft;
}

std::string TableSchema::to_json(const std::vector<std::string>& comments,
                                 const std::string& header_comment) const {
  validate();
  std::string text = fmt::format("{{\n  \"delimiter\": {},\n", quoted(std::string(1, delimiter)));
  if (!header_comment.empty()) text += "  // " + printable(header_comment) + '\n';
  text += fmt::format("  \"header\": {},\n  \"missing\": {},\n", header, quoted(missing));
  text += "  \"columns\": [\n";
  for (std::size_t k = 0; k < columns.size(); ++k) {
    if (k < comments.size()) text += "    // " + printable(comments[k]) + '\n';
    text += "    " + column_text(columns[k]) + (k + 1 < columns.size() ? ",\n" : "\n");
  }
  return text + "  ]\n}\n";
}

}  // namespace sotto
