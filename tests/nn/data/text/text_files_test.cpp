// File tags: [sanitized]
#include "nn/data/text/text_files.h"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/support/catch.h"

#include "core/error.h"
#include "core/random/philox.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

// The text of each row.
std::vector<std::string> rows(const Dataset& data,
                              const TextVocabulary& vocabulary = TextVocabulary::bytes()) {
  std::vector<std::string> y;
  for (std::int64_t k = 0; k < data.size(); ++k) {
    y.push_back(vocabulary.decode(data.inputs[k].to_vector<std::int64_t>()));
    CHECK(std::ssize(vocabulary.encode(y.back())) == data.field("lengths").at({k}));
  }
  return y;
}

std::vector<std::string> split(std::string_view text, const TextOptions& options) {
  return rows(text_dataset(text, "test", options), options.vocabulary);
}

using Texts = std::vector<std::string>;

// Any of these bytes, more or less likely to be UTF-8.
std::string random_text(PublicRandom& random) {
  const Texts pieces{"a",    "\n", "\r\n",     "\r", "\n\n", "é", "\xed\xa0\x80",
                     "\xff", "--", "\xe2\x82", " "};
  std::string y;
  for (std::int64_t k = random.below(12); k > 0; --k)
    y += pieces[static_cast<std::size_t>(random.below(std::ssize(pieces)))];
  return y;
}

}  // namespace

TEST_CASE("a unit is a line, a paragraph, a file or what a separator says") {
  const std::string text = "one\r\ntwo\n\n \t\nthree\nfour--five\n";
  CHECK(split(text, {}) == Texts{"one", "two", " \t", "three", "four--five"});
  CHECK(split(text, {.unit = TextUnit::paragraph}) == Texts{"one\ntwo", "three\nfour--five"});
  CHECK(split("\n\na\n\n\nb", {.unit = TextUnit::paragraph}) == Texts{"a", "b"});
  CHECK(split(text, {.unit = TextUnit::file}) == Texts{"one\ntwo\n\n \t\nthree\nfour--five\n"});
  CHECK(split("ab--c--", {.unit = TextUnit::separated, .separator = "--"}) == Texts{"ab", "c"});
  CHECK(split("", {}).empty());
  CHECK(split("\xef\xbb\xbf"
              "a\r\n",
              {}) == Texts{"a"});
}

TEST_CASE("units are the same whatever ends their lines, and whether the last line ends or not") {
  const std::string text = "one\ntwo\n\nthree\n%\nfour\n\n\n%\nfive\n";
  const auto with = [&](std::string_view end) {
    std::string y;
    for (const char c : text) y += c == '\n' ? std::string(end) : std::string(1, c);
    return y;
  };
  std::string mixed;  // LF, CRLF and CR in turn
  for (std::size_t k = 0; k < text.size(); ++k)
    mixed += text[k] == '\n' ? Texts{"\n", "\r\n", "\r"}[k % 3] : std::string(1, text[k]);
  for (const TextUnit unit :
       {TextUnit::line, TextUnit::paragraph, TextUnit::separated, TextUnit::file}) {
    for (const char* separator : {"\n%\n", "\r\n%\r\n", "\r%\r"}) {
      const TextOptions options{.unit = unit, .separator = separator};
      const Texts expected = split(text, options);
      CHECK(expected.size() > (unit == TextUnit::file ? 0 : 2));
      for (const std::string& file :
           {with("\r\n"), with("\r"), mixed, "\xef\xbb\xbf" + with("\r")}) {
        CAPTURE(file);
        CHECK(split(file, options) == expected);
      }
      if (unit == TextUnit::file) continue;
      Texts shorter = expected;
      if (unit == TextUnit::separated) shorter.back().pop_back();
      CHECK(split(text.substr(0, text.size() - 1), options) == shorter);
    }
  }
}

TEST_CASE("a separator of a line may be the first line, and the last one without its end") {
  const TextOptions fortunes{.unit = TextUnit::separated, .separator = "\n%\n"};
  CHECK(split("%\na\n%\nb\n%", fortunes) == Texts{"a", "b"});
  CHECK(split("%\r\na\r\n%\r\nb\r\n%", fortunes) == Texts{"a", "b"});
  CHECK(split("\n%\n", fortunes).empty());
}

TEST_CASE("text in UTF-16 is refused by this name, with and without its mark") {
  std::string bytes;
  for (const char c : std::string("some text\nof two lines\n")) bytes += {c, '\0'};
  CHECK(
      throws<SystemFailure>([&] { split(bytes, {}); }, "not UTF-8 (it looks like text in UTF-16"));
  CHECK(throws<SystemFailure>([&] { split("\xff\xfe" + bytes, {}); },
                              "byte 0xff at offset 0 is not UTF-8 (it looks like text in UTF-16"));
  CHECK(split(std::string("a\0b", 3), {}) == Texts{std::string("a\0b", 3)});
}

TEST_CASE("rows are numbers, padded with 0, with lengths, targets and units") {
  const Dataset data = text_dataset("ab\n\nc", "test", {.context = 3});
  CHECK(data.inputs.shape() == Shape{2, 3});
  CHECK(data.inputs.to_vector<std::int64_t>() == std::vector<std::int64_t>{98, 99, 0, 100, 0, 0});
  CHECK(data.field("lengths").to_vector<std::int64_t>() == std::vector<std::int64_t>{2, 1});
  CHECK(data.targets.to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 0});
  CHECK(data.units == std::vector<std::int64_t>{0, 1});
}

TEST_CASE("a long unit is cut, or becomes several rows of one unit") {
  const TextOptions cut{.context = 4};
  CHECK(split("abcdefghi\nxyz", cut) == Texts{"abcd", "xyz"});
  const TextOptions several{.context = 4, .long_units = LongUnit::split};
  const Dataset data = text_dataset("abcdefghi\nabcd\nxyz", "test", several);
  CHECK(rows(data) == Texts{"abcd", "efgh", "i", "abcd", "xyz"});
  CHECK(data.units == std::vector<std::int64_t>{0, 0, 0, 1, 2});
  CHECK(data.unit_count() == 3);
}

TEST_CASE("characters of an alphabet have numbers, and others have one or are refused") {
  const TextVocabulary letters = TextVocabulary::characters("aé€😀\n");
  CHECK(letters.size() == 6);
  CHECK(letters.encode("😀aé") == std::vector<std::int64_t>{4, 1, 2});
  CHECK(letters.decode(std::vector<std::int64_t>{3, 1, 0, 2}) == "€a");
  CHECK(throws([&] { letters.encode("aß"); }, "ß at byte 1 is not in the alphabet"));
  CHECK(throws([&] { letters.decode(std::vector<std::int64_t>{6}); }, "number 6 is not in 0 to 5"));
  const TextVocabulary open = TextVocabulary::characters("ab", true);
  CHECK(open.size() == 4);
  CHECK(open.encode("a€b") == std::vector<std::int64_t>{1, 3, 2});
  CHECK(open.decode(std::vector<std::int64_t>{1, 3, 2}) == "a\uFFFDb");
  CHECK(TextVocabulary::bytes().size() == 257);
  CHECK(throws([] { TextVocabulary::characters("aba"); }, "the alphabet has a twice"));
  CHECK(throws([] { TextVocabulary::characters(""); }, "the alphabet is empty"));
  CHECK(throws([] { TextVocabulary::characters("a\xff"); }, "not UTF-8 at byte 1"));
}

TEST_CASE("the context counts characters where those are the vocabulary") {
  const TextOptions options{.context = 2, .vocabulary = TextVocabulary::characters("äöü")};
  CHECK(split("äöü", options) == Texts{"äö"});
  CHECK(throws<SystemFailure>([&] { split("äö\r\n\nöß", options); },
                              "text: test: line 3: the vocabulary lacks U+00DF"));
}

TEST_CASE("bytes that are not UTF-8 are refused by their offset") {
  const Texts bad{"\x80",         "\xc0\x80",         "\xc1\xbf",         "\xe0\x9f\xbf",
                  "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf8\x88\x80\x80\x80",
                  "\xff",         "\xe2\x82",         "\xe2\x82z"};
  for (const std::string& bytes : bad) {
    CHECK(throws<SystemFailure>([&] { split("ab\n" + bytes, {}); }, "is not UTF-8"));
    CHECK(throws<SystemFailure>([&] { split("ab\n" + bytes, {}); }, "at offset 3 "));
  }
  CHECK(throws<SystemFailure>([&] { split("\xff", {}); },
                              "text: test: byte 0xff at offset 0 is not UTF-8"));
  const Texts good{"\x7f",         "\xc2\x80",         "\xdf\xbf",
                   "\xe0\xa0\x80", "\xed\x9f\xbf",     "\xee\x80\x80",
                   "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"};
  for (const std::string& bytes : good) CHECK(split(bytes, {}) == Texts{bytes});
}

TEST_CASE("options that make no rows are refused") {
  CHECK(throws([] { split("a", {.context = 0}); }, "text: a context of 0 symbols"));
  CHECK(throws([] { split("a", {.unit = TextUnit::separated}); }, "the separator is empty"));
}

TEST_CASE("any bytes become rows whose text is the text, or are refused") {
  PublicRandom random(8);
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    const std::string text = random_text(random);
    try {
      const TextOptions several{.context = 2, .long_units = LongUnit::split};
      std::string joined;
      for (const std::string& row : split(text, several)) joined += row;
      std::string expected = text;
      std::erase_if(expected, [](char c) { return c == '\n' || c == '\r'; });
      REQUIRE(joined == expected);
    } catch (const SystemFailure&) {
      ++refused;
    }
  }
  CHECK(refused > 1000);
}

TEST_CASE("files follow each other, and units do not go on from one to the next") {
  const TemporaryFolder folder;
  folder.write("1.txt", "a\nb");
  folder.write("2.txt", "c");
  const std::vector<std::string> paths{folder.path("2.txt"), folder.path("1.txt")};
  const TextFiles read = read_text_files(paths);
  CHECK(rows(read.data) == Texts{"c", "a", "b"});
  CHECK(read.data.units == std::vector<std::int64_t>{0, 1, 2});
  CHECK(read.classes.empty());
  folder.write("1.txt", "a\n\xff");
  CHECK(throws<SystemFailure>([&] { read_text_files(paths); }, "1.txt: byte 0xff at offset 2"));
  CHECK(throws<SystemFailure>([&] { read_text_files(std::vector<std::string>{"/nowhere"}); },
                              "/nowhere"));
}

TEST_CASE("a file or a sub-folder is a class of texts") {
  const TemporaryFolder folder;
  folder.write("Irish.txt", "Adam\nBreen\n");
  folder.write("Greek/b", "Kokinos");
  folder.write("Greek/a", "Papas");
  folder.write(".hidden", "x");
  folder.write("desktop.ini", "x");
  folder.write("Greek/Thumbs.db", "\xff");
  folder.write("__MACOSX/._a", "x");
  const TextFiles read = read_text_folder(folder.path());
  CHECK(read.classes == Texts{"Greek", "Irish"});
  CHECK(rows(read.data) == Texts{"Papas", "Kokinos", "Adam", "Breen"});
  CHECK(read.data.targets.to_vector<std::int64_t>() == std::vector<std::int64_t>{0, 0, 1, 1});
  CHECK(read_text_folder(folder.path(), {}, {"Irish", "Thai", "Greek"}).data.targets.at({0}) == 2);
  folder.write("Irish/c", "Daly");
  CHECK(throws<SystemFailure>([&] { read_text_folder(folder.path()); },
                              "another class is named Irish"));
}

TEST_CASE("the names of 18 languages are read as they are") {
  const char* shared = std::getenv("SOTTO_SHARED");
  const std::filesystem::path folder =
      std::filesystem::path(shared ? shared : "../shared") / "data" / "names";
  if (!std::filesystem::is_directory(folder)) {
    WARN("skipped: no names under SOTTO_SHARED/data/names");
    return;
  }
  const TextFiles read = read_text_folder(folder.string(), {.context = 24});
  CHECK(read.classes.size() == 18);
  CHECK(read.data.size() == 20050);
  CHECK(read.data.unit_count() == 20050);
}
