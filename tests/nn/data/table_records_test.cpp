// File tags: [sanitized]
#include "nn/data/tables/table_records.h"

#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

#include "core/error.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

using Texts = std::vector<std::string>;

Texts names(const Texts& in_file) {
  Texts y;
  for (const ColumnName& column : column_names(in_file)) y.push_back(column.name);
  return y;
}

struct Opened {
  explicit Opened(const std::string& file)
      : in(file),
        records(std::make_unique<CsvReader>(in, "t.csv", CsvOptions{.ragged_header = true})) {}
  std::istringstream in;
  TableRecords records;
};

// The first record, and the rows.
std::pair<Texts, std::vector<Texts>> read(const std::string& file, bool take_first = false) {
  Opened opened(file);
  if (take_first) opened.records.take_first();
  std::vector<Texts> rows;
  while (opened.records.next())
    rows.emplace_back(opened.records.fields().begin(), opened.records.fields().end());
  return {opened.records.first(), rows};
}

}  // namespace

// Of pandas 3.1.
TEST_CASE("columns without a name and with a repeated one are called as pandas.read_csv does") {
  const std::vector<std::pair<Texts, Texts>> known{
      {{"a", "a", "a.1"}, {"a", "a.2", "a.1"}},
      {{"a", "a", "a"}, {"a", "a.1", "a.2"}},
      {{"", "", "a"}, {"Unnamed: 0", "Unnamed: 1", "a"}},
      {{"a", "", "a", ""}, {"a", "Unnamed: 1", "a.1", "Unnamed: 3"}},
      {{"Unnamed: 1", ""}, {"Unnamed: 1", "Unnamed: 1.1"}},
      {{"a", "a.1", "a", "a"}, {"a", "a.1", "a.2", "a.3"}},
      {{"a.1", "a", "a", "a.1"}, {"a.1", "a", "a.2", "a.1.1"}},
      {{"x", "x", "x.2", "x"}, {"x", "x.1", "x.2", "x.3"}},
      {{"a", "a", "", "a.1", ""}, {"a", "a.2", "Unnamed: 2", "a.1", "Unnamed: 4"}}};
  for (const auto& [in_file, expected] : known) CHECK(names(in_file) == expected);
  const auto columns = column_names(Texts{"a", "", "a"});
  CHECK((columns[1].unnamed && !columns[1].repeated));
  CHECK((columns[2].repeated && !columns[2].unnamed));
}

TEST_CASE("rows have as many fields as the first record, whatever ends their lines") {
  const std::vector<Texts> rows{{"1", "2", ""}, {"3", "4", ""}};
  CHECK(read("a,b\n1,2,\n3,4,\n") == std::pair(Texts{"a", "b", ""}, rows));
  CHECK(read("a,b,\n1,2\n3,4\n") == std::pair(Texts{"a", "b", ""}, rows));
  CHECK(read("a,b,\n1,2,\n3,4,\n") == std::pair(Texts{"a", "b", ""}, rows));
  CHECK(read("a,b\nr1,2,3\nr2,4,5\n") ==
        std::pair(Texts{"", "a", "b"}, std::vector<Texts>{{"r1", "2", "3"}, {"r2", "4", "5"}}));
  CHECK(read("a,b\n1,2\n").second == std::vector<Texts>{{"1", "2"}});
  CHECK(read("a,b\n").second.empty());
  CHECK(read("").first.empty());
}

TEST_CASE("the first record is a row if asked, with the line where it begins") {
  CHECK(read("1,2\n3,4\n", true).second == std::vector<Texts>{{"1", "2"}, {"3", "4"}});
  CHECK(read("", true).second.empty());
  Opened opened("# x\n1,2\n\n3,4\n");
  opened.records.take_first();
  CHECK((opened.records.next() && opened.records.line() == 2));
  CHECK((opened.records.next() && opened.records.line() == 4));
  CHECK(opened.records.first_line() == 2);
  for (const char* ragged : {"1,2\n3,4,5\n", "1,2\n3,4,\n", "1,2,\n3,4\n"})
    CHECK(throws<SystemFailure>([&] { read(ragged, true); }, "t.csv: line 2: "));
}

TEST_CASE("empty lines before the first row of one column are rows, and before names none") {
  for (const char* preamble : {"", "# x\n", "sep=,\n"}) {
    const std::string file = std::string(preamble) + "\n \n1\n\n2\n";
    CHECK(read(file, true).second == std::vector<Texts>{{""}, {""}, {"1"}, {""}, {"2"}});
    CHECK(read(file).second == std::vector<Texts>{{""}, {"2"}});
  }
  CHECK(read("\n\n1,2\n\n3,4\n", true).second == std::vector<Texts>{{"1", "2"}, {"3", "4"}});
  Opened opened("\n\n1\n");
  opened.records.take_first();
  for (const std::int64_t line : {1, 2, 3})
    CHECK((opened.records.next() && opened.records.line() == line));
}

TEST_CASE("rows that do not fit are refused, also after names of rows taken for ends of lines") {
  CHECK(throws<SystemFailure>([] { read("a,b\nr1,2,\nr2,4,5\n"); },
                              "csv: t.csv: line 3: 3 fields, but 2 in the header"));
  Opened opened("a,b\n1\n");
  for (int again = 0; again < 2; ++again)
    CHECK(throws<SystemFailure>([&] { opened.records.next(); }, "line 2: 1 fields, but 2"));
}
