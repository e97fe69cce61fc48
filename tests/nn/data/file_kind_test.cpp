#include "nn/data/file_kind.h"

#include <string>
#include <utility>
#include <vector>

#include "tests/support/catch.h"

using namespace sotto;

namespace {

std::string_view kind(const std::string& bytes) {
  return file_kind({reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size()});
}

std::string utf16(const std::string& text) {
  std::string y;
  for (const char c : text) y += {c, '\0'};
  return y;
}

}  // namespace

TEST_CASE("a file is told by its first bytes") {
  using namespace std::string_literals;
  const std::vector<std::pair<std::string, std::string>> files{
      {"\xff\xfe" + utf16("a,b"), "UTF-16"},
      {utf16("age,color\n31,red\n"), "UTF-16"},
      {"\0"s + utf16("age,color\n31,red\n"), "UTF-16"},
      {"\xff\xfe\0\0"s, "UTF-32"},
      {"PK\3\4..xl/", "zip archive, as .xlsx"},
      {"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", ".xls"},
      {"PAR1\x15\0"s, "Parquet"},
      {"%PDF-1.4", "PDF"},
      {"SQLite format 3\0"s, "SQLite"},
      {"\x89HDF\r\n\x1a\n", "HDF5"},
      {"\x1f\x8b\x08", "gzip"},
      {"BZh91AY&SY\0"s, "bzip2"},
      {std::string(257, '\0') + "ustar", "tar"},
      {"\n <!DOCTYPE HTML><html>", "HTML"},
      {"\xef\xbb\xbf<?xml version='1.0'?>", "XML"},
      {"{\"a\": 1}", "JSON"},
      {"[{\"a\": 1}]", "JSON"},
      {"GIF89a", "GIF"},
      {"RIFF\1\0\0\0WEBPVP8 "s, "WebP"},
      {"BM\x46\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0"s, "BMP"},
      {"II*\0"s, "TIFF"},
      {"\0\0\0\x18"s
       "ftypheic",
       "HEIC"},
      {"version https://git-lfs.github.com/spec/v1\n", "Git LFS"}};
  for (const auto& [bytes, expected] : files) {
    CAPTURE(expected);
    CHECK(std::string(kind(bytes)).find(expected) != std::string::npos);
  }
}

TEST_CASE("plain text is of no kind") {
  using namespace std::string_literals;
  for (const std::string& text : {""s, "a"s, "age,color\n31,red\n"s, "BMW,Audi\n3,4,5,6,7,8,9\n"s,
                                  "PK,MD\n1,2\n"s, "[a],{b}\n"s, "ORB,1\n"s, "PAR1,PAR2\n1,2\n"s,
                                  "BZh9,größe\n1,2\n"s, "8BPS\n"s, "größe,y\n"s, "a,b\n1,x\0y\n"s})
    CHECK(kind(text).empty());
}
