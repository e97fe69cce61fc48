#include "nn/data/tables/header_guess.h"

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/catch.h"

#include "core/error.h"
#include "core/join.h"
#include "nn/data/tables/schema_guess.h"
#include "nn/data/tables/table_reader.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

using Fields = std::vector<std::string>;

enum class Header { yes, no, unclear };

// The rows below the first line: field `column` of row k >= 0.
struct Body {
  const char* what;
  std::size_t columns;
  std::string (*field)(std::size_t column, int k);
};

std::string color(int k) {
  return std::array{"red", "blue", "green"}[static_cast<std::size_t>(k % 3)];
}
std::string label(int k) { return k % 2 == 0 ? "a" : "b"; }
std::string number(int k) { return fmt::format("{}.{}", 20 + k * 7 % 40, k % 4); }

const std::array<Body, 7> bodies{{
    {"a number, a category and a label", 3,
     [](std::size_t c, int k) { return c == 0   ? number(k)
                                       : c == 1 ? color(k)
                                                : label(k); }},
    {"numbers", 4,
     [](std::size_t c, int k) {
       return c == 3 ? std::to_string(k % 2) : number(k + static_cast<int>(c));
     }},
    {"categories", 3,
     [](std::size_t c, int k) { return c == 0   ? color(k)
                                       : c == 1 ? color(k / 2)
                                                : label(k); }},
    {"sentences and a label", 2,
     [](std::size_t c, int k) {
       return c == 0 ? fmt::format("the film number {} is good", k + 300) : label(k);
     }},
    {"dates and a label", 2,
     [](std::size_t c, int k) {
       return c == 0 ? fmt::format("2019-{:02}-{:02}", 1 + k % 12, 1 + k % 28) : label(k);
     }},
    {"amounts and codes", 3,
     [](std::size_t c, int k) {
       return c == 0 ? fmt::format("{}%", 3 * k) : c == 1 ? fmt::format("A{}", k) : label(k);
     }},
    {"a number with values missing, and a label", 2,
     [](std::size_t c, int k) { return c == 1       ? label(k)
                                       : k % 3 == 1 ? "?"
                                                    : number(k); }},
}};

// The first line above a body, and what is to be decided for each body.
struct FirstLine {
  const char* what;
  std::function<Fields(const Body&)> fields;
  std::array<Header, bodies.size()> expected;
  bool counted = false;  // whether rows begin with their numbers
};

Fields named(const Body& body, const char* name) {
  Fields y;
  for (std::size_t c = 0; c < body.columns; ++c)
    y.push_back(name + std::string(1, static_cast<char>('p' + c)));
  return y;
}

// A row like the others, with another field in a column.
Fields row_with(const Body& body, std::size_t column, const std::string& field) {
  Fields y;
  for (std::size_t c = 0; c < body.columns; ++c)
    y.push_back(c == column ? field : body.field(c, 33));
  return y;
}

constexpr Header yes = Header::yes, no = Header::no, unclear = Header::unclear;

const std::vector<FirstLine> first_lines{
    {"names",
     [](const Body& b) { return named(b, "col_"); },
     {yes, yes, unclear, unclear, yes, yes, yes}},
    {"names of other letters",
     [](const Body& b) { return named(b, "größe "); },
     {yes, yes, unclear, unclear, yes, yes, yes}},
    {"names with marks",
     [](const Body& b) { return named(b, "'"); },
     {yes, yes, unclear, unclear, yes, yes, yes}},
    {"one name again and again",
     [](const Body& b) {
       Fields y(b.columns, "value");
       y.back() = "result";
       return y;
     },
     {yes, yes, unclear, unclear, yes, yes, yes}},
    {"usual names",
     [](const Body& b) {
       Fields y{"Name", "category", "label", "target"};
       y.resize(b.columns);
       return y;
     },
     {yes, yes, yes, yes, yes, yes, yes}},
    {"names above numbers of rows, which have none",
     [](const Body& b) {
       Fields y = named(b, "col_");
       y.insert(y.begin(), "");
       return y;
     },
     {yes, yes, yes, yes, yes, yes, yes},
     true},
    {"numbers from 0 above numbers of rows",
     [](const Body& b) {
       Fields y{""};
       for (std::size_t c = 0; c < b.columns; ++c) y.push_back(std::to_string(c));
       return y;
     },
     {yes, yes, yes, yes, yes, yes, yes},
     true},
    {"a row",
     [](const Body& b) { return row_with(b, 9, ""); },
     {no, no, no, unclear, unclear, unclear, no}},
    {"a row whose first field is missing",
     [](const Body& b) { return row_with(b, 0, "?"); },
     {no, no, no, unclear, unclear, unclear, no}},
    {"a row whose first field is empty",
     [](const Body& b) { return row_with(b, 0, ""); },
     {no, unclear, no, unclear, unclear, unclear, unclear}},
    {"a row with a word for a missing value",
     [](const Body& b) { return row_with(b, 0, "unknown"); },
     {no, no, no, unclear, unclear, unclear, unclear}},
    {"a row with another word",
     [](const Body& b) { return row_with(b, 0, "Smith"); },
     {unclear, unclear, no, unclear, unclear, unclear, unclear}},
    {"a row with a number with a mark",
     [](const Body& b) { return row_with(b, 0, "<21"); },
     {no, no, no, unclear, unclear, unclear, unclear}},
    {"a row with numbers of a succession",
     [](const Body& b) {
       Fields y = row_with(b, 9, "");
       y[0] = "1";
       y[1] = "2";
       return y;
     },
     {unclear, no, unclear, unclear, unclear, unclear, unclear}},
};

struct Table {
  std::string text;
  std::size_t rows;  // below the first line
};

// The ways to write a table that decide nothing.
const std::vector<std::pair<const char*, std::function<std::string(std::string)>>> forms{
    {"plain", [](std::string t) { return t; }},
    {"a comment, and a delimiter that is said",
     [](std::string t) { return "sep=,\n# made, by: x\n#\n" + t; }},
    {"CRLF, a byte-order mark and Ctrl-Z",
     [](const std::string& t) {
       std::string y = "\xef\xbb\xbf";
       for (const char c : t) y += c == '\n' ? "\r\n" : std::string(1, c);
       return y + "\x1a";
     }},
    {"a delimiter at the end of each line",
     [](const std::string& t) {
       std::string y;
       for (const char c : t) y += c == '\n' ? ",\n" : std::string(1, c);
       return y;
     }},
};

Table table(const Body& body, const FirstLine& line, int rows) {
  Table y{join(line.fields(body), ",") + "\n", static_cast<std::size_t>(rows)};
  for (int k = 0; k < rows; ++k) {
    Fields fields;
    if (line.counted) fields.push_back(std::to_string(k));
    for (std::size_t c = 0; c < body.columns; ++c) fields.push_back(body.field(c, k));
    y.text += join(fields, ",") + "\n";
  }
  return y;
}

// Writes a file of its own: one that is written again waits for the disk.
std::string new_file(const TemporaryFolder& folder, const std::string& text) {
  static int count = 0;
  const std::string name = fmt::format("{}.csv", count++);
  folder.write(name, text);
  return folder.path(name);
}

Header decided(const TemporaryFolder& folder, const std::string& text,
               const GuessOptions& options = {}) {
  const std::string path = new_file(folder, text);
  try {
    return guess_schema(path, options).schema.header ? yes : no;
  } catch (const std::invalid_argument& error) {
    CHECK(std::string(error.what()).find("--header yes or --header no") != std::string::npos);
    return unclear;
  }
}

}  // namespace

TEST_CASE("tables of odd headers are read with them, as rows, or asked about") {
  const TemporaryFolder folder;
  int tables = 0;
  for (std::size_t b = 0; b < bodies.size(); ++b) {
    for (const FirstLine& line : first_lines) {
      for (const auto& [form, write] : forms) {
        const Table t = table(bodies[b], line, 30);
        CAPTURE(bodies[b].what, line.what, form);
        CHECK(static_cast<int>(decided(folder, write(t.text))) ==
              static_cast<int>(line.expected[b]));
        ++tables;
      }
    }
  }
  CHECK(tables >= 150);
}

TEST_CASE("a table is read by its schema whichever header it has, and each row is one") {
  const TemporaryFolder folder;
  for (const Body& body : bodies) {
    for (const FirstLine& line : first_lines) {
      for (const auto& [form, write] : {forms.front(), forms.back()}) {
        const Table t = table(body, line, 30);
        CAPTURE(body.what, line.what, form);
        const std::string path = new_file(folder, write(t.text));
        for (const bool header : {false, true}) {
          SchemaGuess found;
          try {
            found = guess_schema(path, {.header = header});
          } catch (const std::invalid_argument&) {
            continue;  // such as a label of too many classes, or no input
          }
          CHECK(found.header_note == "as it was said, not by the rows");
          const Dataset data = read_table(path, TableSchema::from_json(found.to_json()));
          CHECK(data.size() == static_cast<std::int64_t>(t.rows) + (header ? 0 : 1));
        }
      }
    }
  }
}

TEST_CASE("numbers of the first line are names where they may be years or count columns") {
  const TemporaryFolder folder;
  const auto rows = [](const char* row) {
    std::string y;
    for (int k = 0; k < 5; ++k) y += fmt::format(fmt::runtime(row), k, 10 + k, 1950 + k);
    return y;
  };
  const std::vector<std::pair<std::string, Header>> tables{
      {"land,1990,1991,1992\n" + rows("country {0},{1},{1}.5,{0}\n"), yes},
      {"land,1990,2000,2010\n" + rows("country {0},{1},{1}.5,{0}\n"), yes},
      {"land,1990,1991\n" + rows("country {0},{1},{2}\n"), yes},
      {"land,1990,1991\n" + rows("country {0},{1},{0}000\n"), unclear},  // 1991 is among them
      {"land,2019\n" + rows("country {0},{1}\n"), unclear},
      {"name,2019\n" + rows("country {0},{1}\n"), unclear},
      {"land,id,2019\n" + rows("country {0},{1},{0}\n"), yes},
      {"land,1952\n" + rows("country {0},{2}\n"), no},
      {"land,1952,1953\n" + rows("country {0},{2},{2}\n"), no},
      {"0,1,2,3\n" + rows("{0}.5,{1},{1},a{0}\n"), unclear},
      {"1,2,3,4\n" + rows("{0}.5,{1},{1},{0}\n"), unclear},
      {"0.1,0.2,0.3,0.4\n" + rows("{0}.5,{1},{1},{0}\n"), unclear},
      {"4,3,2,1\n" + rows("{0}.5,{1},{1},{0}\n"), no},
      {"a,7,13\n" + rows("b{0},{1},{0}\n"), no},
      {"a,0.1,0.5,0.9\n" + rows("b{0},0.{0},0.{0},0.{1}\n"), unclear},
      {",16.5,17,18,17.5\n" + rows("b{0},{1},{0},{1},{0}\n"), unclear},
      {",11.5,2,12,1.5\n,10,2,13,4\n" + rows("b{0},{1},{0},{1},{0}\n"), no},
      {"a,1,1.25,2,3,7\n" + rows("b{0},{1},{0},{1},{0},{0}\n"), unclear},
      {"a,700,13\n" + rows("b{0},{1},{0}\n") + rows("c{0},{1},{0}\n"), no},
      {"a,700,-13\n" + rows("b{0},{1},{0}\n") + rows("c{0},{1},{0}\n") + rows("d{0},{1},{0}\n") +
           rows("e{0},{1},{0}\n"),
       unclear},  // a row of 21 is beyond the others in both with a chance of 1 %
      {"id,7,13\n" + rows("{0},{1},{0}\n"), unclear}};
  for (const auto& [text, expected] : tables) {
    CAPTURE(text);
    CHECK(static_cast<int>(decided(folder, text)) == static_cast<int>(expected));
  }
}

TEST_CASE("texts alone tell by usual names, by what recurs, or not at all") {
  const TemporaryFolder folder;
  const auto with = [](const std::string& first, int rows) {
    std::string y = first + "\n";
    for (int k = 0; k < rows; ++k)
      y += fmt::format("{} of {},{},{}\n", color(k), k, color(k), label(k));
    return y;
  };
  const std::vector<std::pair<std::string, Header>> tables{
      {with("text,color,y", 5), yes},
      {with("Sentence,c,LABEL", 5), yes},
      {with("sentence,c,d", 5), unclear},
      {with("sentence,c,d", 60), yes},
      {with("xyz,c,d", 60), unclear},
      {with("a day,red,a", 5), no},
      {with("a day,mauve,a", 5), unclear},
      {with("a day,mauve,z", 60), unclear},
      {with("text,label,a", 5), unclear},
      {with("red of 3,red,b", 5), no},
      {"red,a\nblue,b\nred,b\ngreen,a\n", no},
      {"red,a\nblue,b\n", unclear},
      {"y,n\ny,n\nn,y\n", unclear},
      {"j,n\nj,n\nn,j\n", no},
      {"color,kind\nred,a\ncolor,kind\nblue,b\n", unclear},
      {",a,d\n0,b,x\n1,c,z\n", unclear},
      {",a,d\n0,b,x\n1,c,z\n2,e,v\n", yes},
      {"color,y\nred,y\nblue,n\n", unclear},
      {"smoker,who\nTrue,a\nfalse,b\n", yes},
      {"True,a\nfalse,b\ntrue,a\n", unclear},
      {"age,color,y\n31,red,y\n40,blue,n\n33,red,y\n", yes}};
  for (const auto& [text, expected] : tables) {
    CAPTURE(text);
    CHECK(static_cast<int>(decided(folder, text)) == static_cast<int>(expected));
  }
}

TEST_CASE("dates, times and amounts are no texts, and addresses no amounts") {
  for (const char* value :
       {"2020-01-31", "31.12.2020 10:30", "12:30", "$5.00", "10 %", "(3)", "5 May 2021"}) {
    ColumnBelow column("when");
    column.take(value);
    CAPTURE(value);
    CHECK(column.sign() == 1);
  }
  for (const char* value : {"12 Main Street", "A12", "red", "1st floor", "Nr. 5"}) {
    ColumnBelow column("where");
    column.take(value);
    CAPTURE(value);
    CHECK(column.sign() == 0);
  }
  for (const char* first : {"12", "<5", "-", "n/a", "Unknown", "missing", "5 May 2021", "2nd"}) {
    ColumnBelow column(first);
    column.take("31.12.2020");
    CAPTURE(first);
    CHECK(column.sign() == 0);
  }
}

TEST_CASE("several tables one behind the other are refused, and rows that recur are none") {
  const TemporaryFolder folder;
  const std::string part = "age,color\n31,red\n40,blue\n";
  CHECK(throws<SystemFailure>([&] { decided(folder, part + part); },
                              "line 4 has the names of line 1 again: the file is several tables"));
  CHECK(decided(folder, "31,red\n31,red\n40,blue\n31,red\n") == no);
}
