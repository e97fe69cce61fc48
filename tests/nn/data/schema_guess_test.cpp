#include "nn/data/tables/schema_guess.h"

#include "tests/support/catch.h"

#include "core/error.h"
#include "nn/data/tables/table_reader.h"
#include "tests/support/gzipped.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

SchemaGuess guess(const std::string& file, const GuessOptions& options = {}) {
  const TemporaryFolder folder;
  folder.write("t.csv", file);
  SchemaGuess found = guess_schema(folder.path() + "/t.csv", options);
  // Whatever is guessed reads the file, unless a label is missing.
  if (!file.ends_with("NA\n")) read_table(folder.path() + "/t.csv", found.schema);
  return found;
}

// Rows k, the texts word_k, and the label.
std::string rows(int count) {
  std::string text = "number,text,constant,color,label\n";
  for (int k = 0; k < count; ++k) {
    text += fmt::format("{},word_{},1,{},{}\n", k == 5 ? "?" : std::to_string(k), k,
                        k % 3 == 0 ? "red" : "blue", k % 2 == 0 ? "no" : "yes");
  }
  return text;
}

}  // namespace

TEST_CASE("kinds, ranges and categories are those of the values, and each note says so") {
  const SchemaGuess found = guess(rows(150));
  CHECK(found.to_json() == R"({
  "delimiter": ",",
  // decided by all rows: columns 1, 3 of the first line differ in kind from all values below
  "header": true,
  "missing": "?",
  "columns": [
    // all values are numbers; the smallest and the largest, 0 and 149, are those of rows; values are missing
    {"name": "number", "kind": "number", "min": 0, "max": 149, "missing": 74.5},
    // ignored: more than 100 different texts occur; none is missing
    {"name": "text", "kind": "ignore"},
    // ignored: all rows have one value; none is missing
    {"name": "constant", "kind": "ignore"},
    // its 2 categories are the texts that occur, some perhaps in one row only; none is missing
    {"name": "color", "kind": "category", "categories": ["blue", "red"]},
    // the label; its 2 classes are the texts that occur, some perhaps in one row only; none is missing
    {"name": "label", "kind": "label", "categories": ["no", "yes"]}
  ]
}
)");
  CHECK(TableSchema::from_json(found.to_json()).to_json() == found.schema.to_json());
}

TEST_CASE("the label and the user are columns by name, or the label is the last") {
  const std::string file = "who,sick,age\na,no,1\nb,yes,2\nc,no,3\n";
  CHECK(guess(file).schema.label().name == "age");
  const SchemaGuess found = guess(file, {.label = "sick", .user = "who"});
  CHECK(found.schema.label().name == "sick");
  CHECK(found.schema.has_users());
  CHECK(found.notes[0] == "the user's column");
}

TEST_CASE("delimiter, header and the text of missing values are guessed") {
  const TableSchema tabs = guess("1\t2,5\tNA\tx\n2\t3,5\t7\ty\n3\tNA\t8\tx\n").schema;
  CHECK(tabs.delimiter == '\t');
  CHECK_FALSE(tabs.header);
  CHECK(tabs.missing == "NA");
  CHECK(tabs.columns[2].name == "column_3");
  CHECK(tabs.columns[2].missing_value == 7.5);
  CHECK(tabs.columns[1].missing);
  CHECK(guess("a;b\n1;x\n2;y\n").schema.delimiter == ';');
  CHECK(guess(gzipped("a|b\n1|x\n2|y\n")).schema.delimiter == '|');
}

TEST_CASE("a text that is missing elsewhere is a category where another text is the table's") {
  const TableSchema found = guess("a,b\n?,x\n?,None\nq,x\n", {.header = true}).schema;
  CHECK(found.missing == "?");
  CHECK(found.classes() == std::vector<std::string>{"None", "x"});
}

TEST_CASE("columns without a name of their own are ignored, and read by the schema") {
  const std::string expected = guess("age,color,y\n31,red,a\n40,blue,b\n").schema.to_json();
  const auto ignoring = [&](const std::string& file, std::vector<std::size_t> columns) {
    SchemaGuess found = guess(file);
    for (const std::size_t k : columns) {
      CHECK(found.notes[k].starts_with("ignored: "));
      CHECK(found.schema.columns[k].kind == ColumnKind::ignore);
      found.schema.columns.erase(found.schema.columns.begin() + static_cast<std::ptrdiff_t>(k));
      found.notes.erase(found.notes.begin() + static_cast<std::ptrdiff_t>(k));
    }
    return found.schema.to_json() == expected;
  };
  CHECK(ignoring(",age,color,y\n0,31,red,a\n1,40,blue,b\n", {0}));
  CHECK(ignoring(
      "\"\",\"age\",\"color\",\"y\"\n\"r1\",31,\"red\",\"a\"\n\"r2\",40,\"blue\",\"b\"\n", {0}));
  CHECK(ignoring("age,color,y\nr1,31,red,a\nr2,40,blue,b\n", {0}));  // as R's write.table
  CHECK(ignoring("age,color,y,\n31,red,a,\n40,blue,b,\n", {3}));
  CHECK(ignoring("age,color,y\n31,red,a,\n40,blue,b,\n", {3}));
  CHECK(ignoring("age,color,y,,\n31,red,a,,\n40,blue,b,,\n", {4, 3}));
  CHECK(ignoring("age,age,color,y\n31,1,red,a\n40,2,blue,b\n", {1}));
  CHECK(ignoring("age,color,y,y\n31,red,a,a\n40,blue,b,b\n", {3}));
  CHECK(ignoring("# made by x\nage,color,y\n31,red,a\n40,blue,b\n", {}));
  CHECK(ignoring("age,color,y\n31,red,a\n40,blue,b\n\x1a", {}));
  const SchemaGuess excel = guess("sep=;\nage;y\n3,1;a\n4,2;b\n5,3;a\n", {.header = true});
  CHECK(excel.schema.delimiter == ';');
  CHECK(guess("sep=:\nage:color:y\n31:red:a\n40:blue:b\n").schema.delimiter == ':');
  CHECK(guess(",x,y\n0,31,a\n1,40,b\n2,7,a\n", {.label = "y", .user = "Unnamed: 0"})
            .schema.has_users());
}

TEST_CASE("without a header the label is the last column that has values") {
  CHECK(guess("31,red,a,\n40,blue,b,\n33,red,a,\n").schema.label().name == "column_3");
}

TEST_CASE("the header is what the options say, and the schema says so") {
  const SchemaGuess found = guess("red,a\nblue,b\nred,c\n", {.header = true});
  CHECK(found.schema.columns[0].name == "red");
  CHECK(found.to_json().find("  // as it was said, not by the rows\n  \"header\": true") !=
        std::string::npos);
  CHECK_FALSE(guess("age,y\n31,a\n40,b\n", {.header = false}).schema.header);
  CHECK(throws([] { guess("one,a\ntwo,b\n"); },
               "unclear whether line 1 has the names of the columns"));
}

TEST_CASE("a label of many numbers is a number, and a missing label is noted") {
  std::string file = "x,y\n";
  for (int k = 0; k < 30; ++k) file += fmt::format("{},{}\n", k, 2 * k);
  const SchemaGuess found = guess(file + "1,NA\n");
  CHECK(found.schema.classes().empty());
  CHECK(found.schema.label().range->max == 58);
  CHECK(found.notes[1].ends_with("values are missing"));
}

TEST_CASE("a guess is refused where there is no row, column or class") {
  CHECK(throws<SystemFailure>([] { guess("a,b\n"); }, "no rows"));
  CHECK(throws<SystemFailure>([] { guess(""); }, "no rows"));
  CHECK(throws<SystemFailure>([] { guess("a,b\n1\n"); }, "line 2: 1 fields"));
  CHECK(throws<SystemFailure>([] { guess("a b\n1 2\n"); }, "one column, without a comma"));
  CHECK(throws<SystemFailure>(
      [] {
        guess(
            "gr\xf6\xdf"
            "e,y\n1,a\n2,b\n");
      },
      "line 1: the name 'gr\\xf6\\xdf"
      "e' is not UTF-8"));
  CHECK(throws<SystemFailure>([] { guess("PK\3\4"); }, "it looks like a zip archive, as .xlsx"));
  CHECK(throws([] { guess(rows(9), {.label = "income"}); }, "no column income"));
  CHECK(throws([] { guess(rows(9), {.user = "who"}); }, "no column who"));
  CHECK(throws([] { guess(rows(9), {.label = "constant"}); }, "the label constant has 1 classes"));
  CHECK(throws([] { guess(rows(150), {.label = "text"}); },
               "the label text has more than 100 classes"));
}
