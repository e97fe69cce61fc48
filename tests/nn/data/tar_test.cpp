// File tags: [sanitized]
#include "nn/data/tar.h"

#include <sstream>
#include <vector>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/tar_file.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

// The files in an archive, as "name: contents".
std::vector<std::string> files_of(const std::string& archive, std::size_t max = 10'000) {
  std::istringstream stream(archive);
  GzipReader in(stream, "a.tar");
  TarReader tar(in);
  std::vector<std::string> files;
  while (const auto entry = tar.next()) files.push_back(entry->name + ": " + tar.contents(max));
  return files;
}

bool refused(const std::string& archive, const std::string& why) {
  return throws<SystemFailure>([&] { files_of(archive); }, why);
}

const std::string two = tar_entry("a/one", std::string(700, 'x')) + tar_entry("two", "y");
const std::string end(1024, '\0');

}  // namespace

TEST_CASE("an archive's files come in their order, without folders and links") {
  const std::vector<std::string> expected{"a/one: " + std::string(700, 'x'), "two: y", "e: "};
  const std::string archive = tar_entry("a/", "", '5') + two + tar_entry("link", "", '2') +
                              tar_entry("description", "12 path=z\n", 'x') + tar_entry("e", "");
  CHECK(files_of(archive + end) == expected);
  CHECK(files_of(archive) == expected);
  CHECK(files_of("").empty());
}

TEST_CASE("contents that nobody asks for are passed over") {
  std::istringstream stream(two + end);
  GzipReader in(stream, "a.tar");
  TarReader tar(in);
  CHECK(tar.next()->bytes == 700);
  CHECK(tar.next()->name == "two");
  CHECK(tar.contents(1) == "y");
  CHECK(tar.contents(1).empty());
  CHECK_FALSE(tar.next().has_value());
}

TEST_CASE("a damaged archive is refused by the offset") {
  for (std::size_t cut : {1, 100, 511}) CHECK(refused(two.substr(0, cut), "ends within a header"));
  for (std::size_t cut : {512, 700, 1211})
    CHECK(refused(two.substr(0, cut),
                  fmt::format("a.tar: the archive ends within a/one, at byte {}", cut)));
  CHECK(refused(two.substr(0, two.size() - 1), "ends within two"));
  for (std::size_t place = 0; place < 512; ++place) {
    std::string changed = two;
    changed[place] = static_cast<char>(changed[place] + 1);
    const bool of_checksum = place >= 148 && place < 156;
    CHECK((refused(changed, "no header of an archive at byte 0") || of_checksum));
  }
  CHECK(refused(std::string(600, 'z'), "no header of an archive at byte 0"));
  CHECK(refused(tar_entry("n", "abc", '0', "-0000000003"), "no size in the header at byte 0"));
  CHECK(refused(tar_entry("n", "abc", '0', "77777777777"), "8589934591 bytes, above the limit"));
}
