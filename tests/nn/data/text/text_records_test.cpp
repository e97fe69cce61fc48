#include "nn/data/text/text_records.h"

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

// The path of a file of the folder with this text.
std::string written(const TemporaryFolder& folder, const std::string& name,
                    const std::string& text) {
  folder.write(name, text);
  return folder.path(name);
}

}  // namespace

TEST_CASE("a table's columns are texts, classes by name, and users") {
  const TemporaryFolder folder;
  const std::string path = written(folder, "t.tsv",
                                   "who\tlabel\ttext\n"
                                   "eve\tyes\tit's \"fine\"\n"
                                   "bob\tno\t``quoted'', so\n"
                                   "eve\tno\tlast\n");
  const TextRecords records = read_text_table(path, {.label = "label", .user = "who"});
  CHECK(records.texts == std::vector<std::string>{"it's \"fine\"", "``quoted'', so", "last"});
  CHECK(records.classes == std::vector<std::string>{"no", "yes"});
  CHECK(records.labels == std::vector<std::int64_t>{1, 0, 0});
  CHECK(records.units == std::vector<std::int64_t>{0, 1, 0});
  CHECK(records.prompts.empty());
}

TEST_CASE("a row without a user is refused: it would share the clip bound of all such rows") {
  const TemporaryFolder folder;
  const std::string path = written(folder, "t.tsv", "who\ttext\neve\ta\n\tb\n\tc\n");
  CHECK(throws<SystemFailure>([&] { read_text_table(path, {.user = "who"}); }, "line 3: no who"));
}

TEST_CASE("fields of .csv may be in quotes") {
  const TemporaryFolder folder;
  const std::string path = written(folder, "t.csv", "ask,text\n\"a, b\",\"say \"\"x\"\"\"\n");
  const TextRecords records = read_text_table(path, {.prompt = "ask"});
  CHECK(records.texts == std::vector<std::string>{"say \"x\""});
  CHECK(records.prompts == std::vector<std::string>{"a, b"});
  CHECK(records.units.empty());
  CHECK(records.labels.empty());
}

TEST_CASE("given classes number the labels; another class is refused with its name") {
  const TemporaryFolder folder;
  const std::string path = written(folder, "t.tsv", "text\tlabel\na\tyes\n");
  CHECK(read_text_table(path, {.label = "label"}, {"no", "yes"}).labels ==
        std::vector<std::int64_t>{1});
  CHECK(throws<SystemFailure>(
      [&] {
        read_text_table(path, {.label = "label"}, {"no", "maybe"});
      },
      "the class \"yes\" is not among no, maybe"));
}

TEST_CASE("a table refuses a column that it lacks or has twice, and bytes that are not UTF-8") {
  const TemporaryFolder folder;
  const std::string twice = written(folder, "twice.tsv", "text\ttext\na\tb\n");
  CHECK(throws<std::invalid_argument>([&] { read_text_table(twice, {}); }, "two columns text"));
  const std::string path = written(folder, "t.tsv", "text\tlabel\na\xff\tyes\n");
  CHECK(throws<std::invalid_argument>([&] { read_text_table(path, {.text = "body"}); },
                                      "has no column body; it has text, label"));
  CHECK(throws<SystemFailure>([&] { read_text_table(path, {}); }, "line 2: byte 0xff"));
  CHECK(throws<SystemFailure>([&] { read_text_table(written(folder, "empty.tsv", ""), {}); },
                              "no first record"));
}

TEST_CASE("files are tables by their endings") {
  CHECK(is_text_table("a.tsv"));
  CHECK(is_text_table("a.csv.gz"));
  CHECK_FALSE(is_text_table("a.txt"));
  CHECK_FALSE(is_text_table("folder"));
}

TEST_CASE("units of text files are their lines or paragraphs, by class in a folder") {
  const TemporaryFolder folder;
  const std::string one = written(folder, "good.txt", "a\r\n\nb c\n");
  CHECK(read_text_units(one, {.unit = TextUnit::line}).texts ==
        std::vector<std::string>{"a", "b c"});
  written(folder, "bad.txt", "x\ny\n\nz\n");
  const TextRecords records = read_text_units(folder.path(), {.unit = TextUnit::paragraph});
  CHECK(records.texts == std::vector<std::string>{"x\ny", "z", "a", "b c"});
  CHECK(records.labels == std::vector<std::int64_t>{0, 0, 1, 1});
  CHECK(records.classes == std::vector<std::string>{"bad", "good"});
}
