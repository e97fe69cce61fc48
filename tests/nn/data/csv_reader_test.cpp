// File tags: [sanitized]
#include "nn/data/tables/csv_reader.h"

#include <optional>
#include <sstream>

#include "tests/support/catch.h"

#include "core/error.h"
#include "core/random/philox.h"
#include "tests/support/gzipped.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

using Record = std::vector<std::string>;

std::vector<Record> read(const std::string& file, const CsvOptions& options = {}) {
  std::istringstream in(file);
  CsvReader reader(in, "people.csv", options);
  std::vector<Record> records;
  while (reader.next()) records.emplace_back(reader.fields().begin(), reader.fields().end());
  return records;
}

// The lines in which the records begin.
std::vector<std::int64_t> lines(const std::string& file) {
  std::istringstream in(file);
  CsvReader reader(in, "people.csv");
  std::vector<std::int64_t> lines;
  while (reader.next()) lines.push_back(reader.line());
  return lines;
}

bool refuses(const std::string& file, const std::string& why, const CsvOptions& options = {}) {
  return throws<SystemFailure>([&] { read(file, options); }, "csv: people.csv: " + why);
}

// A field of up to 7 characters, many of which need quotes.
std::string random_field(PublicRandom& random) {
  const std::string_view letters = "abcdé\",\n\r \t;1.";
  std::string field;
  for (std::int64_t k = random.below(8); k > 0; --k) {
    field += letters[static_cast<std::size_t>(random.below(std::ssize(letters)))];
  }
  return field;
}

std::string written(const std::string& field, char delimiter, PublicRandom& random) {
  const bool plain =
      field.find_first_of(std::string("\"\n\r \t") + delimiter) == field.npos && !field.empty();
  const std::string around(static_cast<std::size_t>(random.below(3)), ' ');
  if (plain && random.below(2) == 0) return around + field + around;
  std::string quoted = "\"";
  for (const char c : field) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return around + quoted + '"' + around;
}

std::string written(const std::vector<Record>& records, char delimiter, PublicRandom& random) {
  // In a file of one column an empty line is a record.
  const Record ends = !records.empty() && records[0].size() == 1
                          ? Record{"\n", "\r\n", "\r"}
                          : Record{"\n", "\r\n", "\r", "\n\n", "\r\n\r\n"};
  std::string file = random.below(2) == 0 ? "" : "\xef\xbb\xbf";
  for (const Record& record : records) {
    for (std::size_t k = 0; k < record.size(); ++k) {
      file += (k == 0 ? "" : std::string(1, delimiter)) + written(record[k], delimiter, random);
    }
    file += ends[static_cast<std::size_t>(random.below(std::ssize(ends)))];
  }
  return file;
}

}  // namespace

TEST_CASE("records that are written in any way are read back, plain and compressed") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    PublicRandom random(seed);
    const char delimiter = ",;\t|"[random.below(4)];
    std::vector<Record> records(static_cast<std::size_t>(random.below(6)),
                                Record(static_cast<std::size_t>(1 + random.below(5))));
    for (Record& record : records) {
      for (std::string& field : record) field = random_field(random);
    }
    const std::string file = written(records, delimiter, random);
    CAPTURE(seed, file);
    CHECK(read(file, {.delimiter = delimiter}) == records);
    CHECK(read(gzipped(file), {.delimiter = delimiter}) == records);
  }
}

TEST_CASE("records of a file of many pieces are read whole, wherever a piece ends") {
  PublicRandom random(1);
  std::vector<Record> records(30'000, Record(4));
  for (Record& record : records) {
    for (std::string& field : record) field = random_field(random);
  }
  records[20'000][2] = std::string(600'000, 'x');
  CHECK(read(written(records, ',', random)) == records);
}

TEST_CASE("a record's line is the one in which it begins") {
  CHECK(lines("a,b\n1,2\n3,4") == std::vector<std::int64_t>{1, 2, 3});
  CHECK(lines("a,b\r\n\r\n\"1\r\n2\n3\",\r4,\n\n5,\n") == std::vector<std::int64_t>{1, 3, 6, 8});
  std::string file = "\"a\nb\"\n";
  for (int k = 0; k < 100'000; ++k) file += "value\n";
  CHECK(lines(file).back() == 100'002);
}

TEST_CASE("in a file of one column an empty line is a record, behind the first one") {
  const std::string file = "\n\nx\n1\n\n\"\"\n2\r\n\r\n \n3";
  const std::vector<Record> records{{"x"}, {"1"}, {""}, {""}, {"2"}, {""}, {""}, {"3"}};
  CHECK(read(file) == records);
  CHECK(lines(file) == std::vector<std::int64_t>{3, 4, 5, 6, 7, 8, 9, 10});
  CHECK(read("# a comment\nx\n# another\n1\n\n2\n") ==
        std::vector<Record>{{"x"}, {"1"}, {""}, {"2"}});
}

TEST_CASE("a file that begins with a comment has comments, and others have none") {
  const std::vector<Record> records{{"a", "b"}, {"1", "2"}, {"3", "4"}};
  for (const char* file :
       {"# made by x\na,b\n1,2\n3,4\n", "\xef\xbb\xbf#\n#x \"y\"\n\n#\na,b\n1,2\n3,4\n",
        "#x\r\n\r\na,b\r\n#,\"\r\n1,2\r\n3,4\r\n#end, of, it", "#x\ra,b\r1,2\r#\r3,4\r",
        "# 1, 2, 3\na,b\n1,2\n3,4\n", "# made, by\na,b\n1,2\n3,4"}) {
    CAPTURE(file);
    CHECK(read(file) == records);
  }
  CHECK(read("#a,b\n1,2\n") == std::vector<Record>{{"#a", "b"}, {"1", "2"}});
  CHECK(read("# a,b\n1,2\n") == std::vector<Record>{{"# a", "b"}, {"1", "2"}});
  CHECK(read("##x\n#a,b\nc,d\n#y\ne,f\n") ==
        std::vector<Record>{{"#a", "b"}, {"c", "d"}, {"e", "f"}});
  CHECK(read("a,b\n1,2\n# x\n3,4\n#") == records);
  CHECK(refuses("a,b\n#1,2\n#x\n", "line 3: 1 fields, but 2 in the first record"));
  CHECK(refuses("a,b\n1,2\nx\n", "line 3: 1 fields, but 2 in the first record"));
  CHECK(refuses("a,b\n1,2\n# x, y, z\n", "line 3: 3 fields, but 2 in the first record"));
  CHECK(read("a\n#1\n2\n") == std::vector<Record>{{"a"}, {"#1"}, {"2"}});
  CHECK(read("a,b\n#1,2\n") == std::vector<Record>{{"a", "b"}, {"#1", "2"}});
  CHECK(read("#x\na,b\n\"#1\",2\n\"x\n#y\",3\n") ==
        std::vector<Record>{{"a", "b"}, {"#1", "2"}, {"x\n#y", "3"}});
  CHECK(read("#1\n#2") == std::vector<Record>{{"#1"}, {"#2"}});
  CHECK(lines("# x\n# y\na,b\n# z\n1,2\n") == std::vector<std::int64_t>{3, 5});
  CHECK(refuses("# x\na,b\n# z\n1,2,3\n", "line 4: 3 fields, but 2 in the first record"));
  std::string long_file = "#\na,b\n";
  std::vector<Record> many{{"a", "b"}};
  for (int k = 0; k < 20'000; ++k) {
    long_file += k % 3 == 0 ? "# a \"comment\", of a length\n" : "1,\"x\n#y\"\n";
    if (k % 3 != 0) many.push_back({"1", "x\n#y"});
  }
  CHECK(read(long_file) == many);
}

TEST_CASE("the first line may say the delimiter, as Excel writes it") {
  const std::vector<Record> records{{"a", "b"}, {"1,5", "2"}};
  for (const char* first :
       {"sep=;\n", "\xef\xbb\xbfsep=;\r\n", "\"sep=;\"\r", "SEP=;\n# comment\n"})
    CHECK(read(std::string(first) + "a;b\n1,5;2\n") == records);
  std::istringstream in("sep=\t\na\tb\n");
  CsvReader tabs(in, "t");
  CHECK((tabs.next() && tabs.fields().size() == 2 && tabs.delimiter() == '\t' && tabs.line() == 2));
  CHECK(refuses("sep=\"\n1\n", "line 1: field 1: a quote within a field"));
  CHECK(read("sep=ab,c\n") == std::vector<Record>{{"sep=ab", "c"}});
}

TEST_CASE("Ctrl-Z is no text at the end of a file") {
  const std::vector<Record> records{{"a", "b"}, {"1", "2"}};
  for (const std::string end :
       {"\x1a", "\n\x1a", "\r\n\x1a\r\n", "\n\x1a\x1a\x1a", "\n\n\x1a\n\x1a\n"})
    CHECK(read("a,b\n1,2" + end) == records);
  CHECK(read("x\n1\n\x1a") == std::vector<Record>{{"x"}, {"1"}});
  CHECK(read("a,b\n1,\x1a\n1,2\n")[1][1] == "\x1a");
  // Where a piece ends within what may be the end.
  for (std::size_t fill = (1 << 18) - 4; fill < (1 << 18) + 2; ++fill) {
    const std::string begin = "a,b\n" + std::string(fill - 8, 'x') + ",y\n";
    CHECK(read(begin + "\x1a\r\n\x1a").size() == 2);
    CHECK(read(begin + "\x1a,\x1a\n").size() == 3);
  }
}

TEST_CASE("a header may have one field less than the rows, or one more that is empty, if asked") {
  const CsvOptions ragged{.ragged_header = true};
  CHECK(read("a,b\nx,1,2\ny,3,4\n", ragged).size() == 3);
  CHECK(read("a,b,\n1,2\n3,4\n", ragged).size() == 3);
  CHECK(refuses("a,b,c\n1,2\n", "line 2: 2 fields, but 3 in the first record", ragged));
  CHECK(refuses("a,b\n1,2,3,4\n", "line 2: 4 fields, but 2 in the first record", ragged));
  CHECK(refuses("a,b\n1,2\n1,2,3\n", "line 3: 3 fields, but 2 in the first record", ragged));
  CHECK(refuses("a,b\n1,2,3\n1,2\n", "line 3: 2 fields, but 3 in the second record", ragged));
  CHECK(refuses("a,b,\n1,2\n", "line 2: 2 fields, but 3 in the first record"));
}

TEST_CASE("a file of another kind is refused by what it looks like") {
  std::string utf16 = "\xff\xfe";
  for (const char c : std::string("a,b\n1,2\n")) utf16 += {c, '\0'};
  CHECK(refuses(utf16, "not CSV: it looks like text in UTF-16, which `iconv"));
  CHECK(refuses(utf16.substr(2), "not CSV: it looks like text in UTF-16"));
  CHECK(refuses("PK\3\4", "not CSV: it looks like a zip archive, as .xlsx"));
  CHECK(refuses("<html>", "not CSV: it looks like an HTML page"));
  CHECK(refuses("{\"a\": 1}\n", "not CSV: it looks like a JSON file"));
  CHECK(refuses(gzipped(gzipped("a,b\n")), "not CSV: it looks like a gzip-compressed file"));
}

TEST_CASE("an empty file has no records") {
  CHECK(read("").empty());
  CHECK(read("\xef\xbb\xbf").empty());
  CHECK(read("\n \r\n\n").empty());
}

TEST_CASE("malformed CSV is refused with file, line and field, after the records before it") {
  CHECK(refuses("a,b\n\n1,\"2\n3", "line 3: field 2: the quote is not closed"));
  CHECK(refuses("a,b\n1,2\"\n", "line 2: field 2: a quote within a field, or text behind"));
  CHECK(refuses("a,b\n\"1\"x,2\n", "line 2: field 1: a quote within a field, or text behind"));
  CHECK(refuses("a,b\n1,2,3\n", "line 2: 3 fields, but 2 in the first record"));
  CHECK(refuses("a,b\n1\n", "line 2: 1 fields, but 2 in the first record"));
  CHECK(refuses(std::string("a,b\n1,x\0y\n", 10), "line 2: field 2: a zero byte"));
  CHECK(refuses("a,b\n1,\"" + std::string(1000, 'x'), "line 2: a record of more than 100 bytes",
                {.max_record_bytes = 100}));
  CHECK(refuses(std::string(101, ','), "line 1: a record of more than 100 bytes",
                {.max_record_bytes = 100}));
  CHECK(refuses("a,b\n1\n\"", "line 2: 1 fields"));  // the first fault of two

  std::istringstream in("a,b\n1,2\n3\n4,5\n");
  CsvReader reader(in, "people.csv");
  CHECK((reader.next() && reader.next()));
  CHECK(reader.fields()[1] == "2");
  for (int again = 0; again < 2; ++again) {
    CHECK(throws<SystemFailure>([&] { reader.next(); }, "line 3: 1 fields"));
  }
}

TEST_CASE("a record may have as many bytes as the limit, with one for each field") {
  CHECK(read("ab,c\n", {.max_record_bytes = 5}).size() == 1);
  CHECK(refuses("ab,cd\n", "line 1: a record of more than 5 bytes", {.max_record_bytes = 5}));
}

TEST_CASE("a file without end in a quote takes no more memory than the limit of a record") {
  const std::string file = "\"" + std::string(10'000'000, 'x');
  CHECK(refuses(file, "line 1: a record of more than 1048576 bytes"));
}

TEST_CASE("a damaged compressed file, and one that is not there, are refused with the name") {
  std::string file = gzipped("a,b\n1,2\n");
  file.pop_back();
  CHECK(throws<SystemFailure>([&] { read(file); }, "gzip: people.csv: the file ends early"));
  CHECK(throws<SystemFailure>([] { CsvReader("no/such.csv"); }, "no/such.csv"));
}

TEST_CASE("a delimiter is an ASCII character that CSV does not use itself") {
  for (const char delimiter : {'"', '\n', '\r', '\0', '\x80'}) {
    CHECK(throws([&] { read("a", {.delimiter = delimiter}); }, "csv: people.csv: the delimiter"));
  }
}
