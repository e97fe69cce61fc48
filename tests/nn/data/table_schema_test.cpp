// File tags: [sanitized]
#include "nn/data/tables/table_schema.h"

#include <filesystem>

#include "tests/support/catch.h"

#include "core/error.h"
#include "core/random/philox.h"
#include "tests/support/gzipped.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

const std::string example = R"({
  "delimiter": "\t",
  "header": false,
  "missing": "-",
  "columns": [
    {"name": "age", "kind": "number", "min": 17, "max": 90.5, "missing": 40},
    {"name": "height", "kind": "number", "mean": 1.7, "deviation": 0.1},
    {"name": "color", "kind": "category", "categories": ["red", ["grün", "gruen"]], "other": true, "missing": true},
    {"name": "debt", "kind": "number", "min": 0, "max": 1e+20, "log": true},
    {"name": "note", "kind": "ignore"},
    {"name": "income", "kind": "label", "categories": [["<=50K", "<=50K."], ">50K"]},
    {"name": "person", "kind": "user"}
  ]
}
)";

// The example with one text in the place of another.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = example;
  const std::size_t at = text.find(from);
  REQUIRE(at != text.npos);
  return text.replace(at, from.size(), to);
}

bool refused(const std::string& text, const std::string& why) {
  return throws([&] { TableSchema::from_json(text, "s.json"); }, "schema: s.json" + why);
}

TableSchema with(const TableColumn& column) {
  TableSchema schema = TableSchema::from_json(example);
  schema.columns.push_back(column);
  return schema;
}

}  // namespace

TEST_CASE("a schema's JSON form reads back as the same text") {
  CHECK(TableSchema::from_json(example).to_json() == example);
}

TEST_CASE("a schema says which inputs a row becomes") {
  const TableSchema schema = TableSchema::from_json(example);
  CHECK(schema.width() == 7);
  CHECK(schema.input_names() == std::vector<std::string>{"age", "height", "color=red", "color=grün",
                                                         "color=(other)", "color=(missing)",
                                                         "debt"});
  CHECK(schema.category_counts() == std::vector<std::int64_t>{4});
  CHECK(schema.classes() == std::vector<std::string>{"<=50K", ">50K"});
  CHECK(schema.label().name == "income");
  CHECK(schema.has_users());
}

TEST_CASE("numbers are clamped to the public range and scaled, and decoded again") {
  const TableColumn ranged{.name = "x", .kind = ColumnKind::number, .range = {{10, 20}}};
  CHECK(ranged.encode(15) == 0.5);
  CHECK(ranged.encode(1e300) == 1);
  CHECK(ranged.encode(-3) == 0);
  CHECK(ranged.decode(0.25) == 12.5);
  CHECK(ranged.decode(7) == 20);
  TableColumn standardized = ranged;
  standardized.standardization = {.mean = 12, .deviation = 4};
  CHECK(standardized.encode(14) == 0.5);
  CHECK(standardized.encode(100) == 2);
  CHECK(standardized.decode(0.5) == 14);
  standardized.range.reset();
  CHECK(standardized.encode(112) == 25);
  TableColumn logarithmic = ranged;
  logarithmic.range = {1, 100};
  logarithmic.logarithmic = true;
  CHECK(logarithmic.encode(1) == 0);
  CHECK(logarithmic.encode(10) == Approx(0.5));
  CHECK(logarithmic.encode(1e9) == 1);
  CHECK(logarithmic.decode(0.5) == Approx(10));
}

TEST_CASE("comments in a schema are skipped, and written where they are given") {
  const TableSchema schema = TableSchema::from_json("// Public.\n" + example);
  const std::string text = schema.to_json({"from 17", "the mean\nof all"});
  CHECK(text.find("    // from 17\n    {\"name\": \"age\"") != text.npos);
  CHECK(text.find("// the mean\\x0aof all\n") != text.npos);
  CHECK(TableSchema::from_json(text).to_json() == example);
}

TEST_CASE("a schema that is not JSON, or has other keys or types, is refused by name") {
  CHECK(refused("", " is not JSON"));
  CHECK(refused("[]", " is not a JSON object"));
  CHECK(refused("{}", ": columns are not a list"));
  CHECK(refused(changed("\"header\"", "\"head\""), ": unknown key head"));
  CHECK(refused(changed("\"header\"", "\"missing\""), ": the key missing occurs twice"));
  CHECK(refused(changed("false", "0"), ": header is 0, not true or false"));
  CHECK(refused(changed("\"\\t\"", "\"::\""), ": the delimiter :: is not one byte"));
  CHECK(refused(changed("\"\\t\"", "\"\\n\""), ": the delimiter is the byte 10"));
  CHECK(refused(changed("\"-\"", "null"), ": missing is null"));
  CHECK(refused(changed("\"name\": \"age\", ", ""), ": column 1: no name"));
  CHECK(refused(changed("\"age\"", "7"), ": column 1: name is 7, not a text"));
  CHECK(refused(changed("{\"name\": \"note\", \"kind\": \"ignore\"}", "\"note\""),
                ": column 5: not an object but \"note\""));
  CHECK(refused(changed("\"ignore\"", "\"skip\""),
                ": column note: kind skip is none of number, category, ignore, label, user"));
  CHECK(refused(changed("\"min\": 17", "\"low\": 17"), ": column age: max without min"));
  CHECK(refused(changed("\"missing\": 40", "\"other\": true"), ": column age: unknown key other"));
  CHECK(refused(changed("90.5", "\"90\""), ": column age: max is \"90\", not a number"));
  CHECK(refused(changed("[\"red\", ", "[7, "), ": column color: the category 7 is not a text"));
  CHECK(refused(changed("[\"red\", ", "[[], "), ": column color: a category without a name"));
  CHECK(refused(changed("\"ignore\"", "\"ignore\", \"min\": 1, \"max\": 2"),
                ": column note: unknown key m"));
  CHECK(refused(changed("[[\"<=50K\"", "[[[\"<=50K\"]"), " is nested more than 5 deep"));
}

TEST_CASE("a schema that makes no sense is refused with the column") {
  CHECK(refused(changed("\"max\": 90.5", "\"max\": 17"), ": column age: min 17 and max 17"));
  CHECK(refused(changed("0.1", "0"), ": column height: mean 1.7 and deviation 0"));
  CHECK(refused(changed(", \"mean\": 1.7, \"deviation\": 0.1", ""),
                ": column height: a number without min and max, or mean and deviation"));
  CHECK(refused(changed("\"deviation\": 0.1", "\"deviation\": 0.1, \"log\": true"),
                ": column height: a logarithm takes min and max alone"));
  CHECK(refused(changed("\"height\"", "\"age\""), ": column age occurs twice"));
  CHECK(refused(changed("\"note\"", "\"\""), ": a column's name is ''"));
  CHECK(refused(changed("\"gruen\"", "\"red\""), ": column color: the category red occurs twice"));
  CHECK(refused(changed("\"red\"", "\"-\""),
                ": column color: the category '-' is the text of missing values"));
  CHECK(refused(changed("\"red\"", "\"\""),
                ": column color: the category '' is the text of missing values"));
  CHECK(refused(changed("[[\"<=50K\", \"<=50K.\"], \">50K\"]", "[\"a\"]"),
                ": column income: 1 categories"));
  CHECK(refused(changed("\"ignore\"", "\"user\""), ": 2 columns of kind user, at most 1"));
  CHECK(refused(changed("\"user\"", "\"label\", \"min\": 0, \"max\": 1"),
                ": 2 columns of kind label, not 1"));
  CHECK(refused(
      changed("\"label\", \"categories\": [[\"<=50K\", \"<=50K.\"], \">50K\"]", "\"ignore\""),
      ": 0 columns of kind label, not 1"));
  CHECK(refused(R"({"columns": [{"name": "y", "kind": "label", "categories": ["a", "b"]}]})",
                ": no column of kind number or category"));
  CHECK(throws([] { with({.name = "\xff"}).validate(); }, "a column's name is '\\xff'"));
  CHECK(throws(
      [] {
        with({.name = "x", .range = {{0, 1}}}).to_json();
      },
      "schema: column x: neither an input nor the label"));
  CHECK(throws([] { with({.name = "x", .kind = ColumnKind::category}).width(); },
               "schema: column x: 0 categories"));
}

TEST_CASE("a schema is loaded from a file, and a missing one is named") {
  const TemporaryFolder folder;
  folder.write("s.json", example);
  CHECK(TableSchema::load(folder.path() + "/s.json").to_json() == example);
  CHECK(throws<SystemFailure>([&] { TableSchema::load(folder.path() + "/no.json"); }, "no.json"));
}
