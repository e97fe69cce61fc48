#include "nn/data/file_kind.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include <fmt/format.h>

namespace sotto {

namespace {

using namespace std::string_view_literals;

constexpr std::string_view utf16 =
    "text in UTF-16, which `iconv -f UTF-16 -t UTF-8 FILE` makes UTF-8";
constexpr std::string_view utf32 =
    "text in UTF-32, which `iconv -f UTF-32 -t UTF-8 FILE` makes UTF-8";

struct Signature {
  std::size_t at;
  std::string_view bytes;
  std::string_view kind;
};

// The first that fits counts.
constexpr std::array signatures{
    Signature{0, "\xff\xfe\0\0"sv, utf32},
    Signature{0, "\0\0\xfe\xff"sv, utf32},
    Signature{0, "\xff\xfe"sv, utf16},
    Signature{0, "\xfe\xff"sv, utf16},
    Signature{0, "PK\3\4"sv, "a zip archive, as .xlsx, .ods and .docx are"},
    Signature{0, "PK\5\6"sv, "a zip archive without files"},
    Signature{0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, "a file of Microsoft Office, such as .xls"},
    Signature{0, "PAR1"sv, "a Parquet file"},
    Signature{0, "ARROW1"sv, "an Arrow or Feather file"},
    Signature{0, "FEA1"sv, "a Feather file"},
    Signature{0, "Obj\1"sv, "an Avro file"},
    Signature{0, "SQLite format 3\0"sv, "an SQLite database"},
    Signature{0, "\x89HDF\r\n\x1a\n"sv, "an HDF5 file"},
    Signature{0, "\x93NUMPY"sv, "an array of NumPy"},
    Signature{0, "$FL2"sv, "a file of SPSS"},
    Signature{0, "\x1f\x8b"sv, "a gzip-compressed file"},
    Signature{4, "1AY&SY"sv, "a bzip2-compressed file"},
    Signature{0,
              "\xfd"
              "7zXZ\0"sv,
              "an xz-compressed file"},
    Signature{0, "\x28\xb5\x2f\xfd"sv, "a zstd-compressed file"},
    Signature{0, "7z\xbc\xaf\x27\x1c"sv, "a 7z archive"},
    Signature{0, "Rar!\x1a\7"sv, "a RAR archive"},
    Signature{257, "ustar"sv, "a tar archive"},
    Signature{0, "\x89PNG\r\n\x1a\n"sv, "a PNG picture"},
    Signature{0, "\xff\xd8\xff"sv, "a JPEG picture"},
    Signature{8, "WEBP"sv, "a WebP picture"},
    Signature{0, "II*\0"sv, "a TIFF picture"},
    Signature{0, "MM\0*"sv, "a TIFF picture"},
    Signature{4, "ftypheic"sv, "a HEIC picture"},
    Signature{4, "ftypheix"sv, "a HEIC picture"},
    Signature{4, "ftypmif1"sv, "a HEIC picture"},
    Signature{4, "ftypavif"sv, "an AVIF picture"},
    Signature{4, "ftyp"sv, "an MP4 video"},
    Signature{0, "8BPS"sv, "a Photoshop picture"},
    Signature{0, "\0\0\1\0"sv, "a Windows icon"},
    Signature{0, "\0\0\0\x0cjP  "sv, "a JPEG 2000 picture"},
    Signature{0, "\xff\x0a"sv, "a JPEG XL picture"},
    Signature{0, "\0\0\0\x0cJXL "sv, "a JPEG XL picture"},
};

// The beginnings of texts of other kinds, in small letters, after white space.
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> texts{
    {{"%pdf-", "a PDF file"},
     {"{\\rtf", "an RTF document"},
     {"gif8", "a GIF picture"},
     {"matlab 5.0", "a file of MATLAB"},
     {"<stata_dta>", "a file of Stata"},
     {"<!doctype html", "an HTML page"},
     {"<html", "an HTML page"},
     {"<svg", "an SVG picture"},
     {"<?xml", "an XML file"},
     {"{\"", "a JSON file"},
     {"[{", "a JSON file"},
     {"version https://git-lfs", "a pointer of Git LFS: the file itself is elsewhere"}}};

bool is_no_text(std::string_view bytes) {
  return std::any_of(bytes.begin(), bytes.end(), [](char c) {
    const auto byte = static_cast<std::uint8_t>(c);
    return byte < '\t' || byte >= 0x80;
  });
}

// A signature in letters could be a word of a text, which has no zero.
bool has_zeros(std::string_view text) {
  constexpr std::size_t looked_at = 512;
  return text.substr(0, looked_at).find('\0') != text.npos;
}

// A bitmap's header holds its size, and the size of a second header.
bool is_bmp(std::string_view text) {
  constexpr std::size_t second_header = 14, header_sizes = 124;
  return text.size() > second_header + 3 && text.starts_with("BM") &&
         static_cast<std::uint8_t>(text[second_header]) <= header_sizes &&
         text.substr(second_header + 1, 3) == "\0\0\0"sv;
}

// Text of Latin letters has a zero in every second byte then.
bool is_utf16_without_mark(std::string_view text) {
  constexpr std::size_t looked_at = 256, least = 8;
  text = text.substr(0, std::min(text.size() / 2 * 2, looked_at));
  std::array<std::size_t, 2> zeros{};
  for (std::size_t k = 0; k < text.size(); ++k) zeros[k % 2] += text[k] == '\0' ? 1 : 0;
  const std::size_t most = text.size() / 2;
  return text.size() >= least && std::max(zeros[0], zeros[1]) > most - most / 4 &&
         std::min(zeros[0], zeros[1]) == 0;
}

std::string_view text_kind(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n\xef\xbb\xbf"), text.size()));
  std::string small(text.substr(0, 32));
  for (char& c : small) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const auto& [begin, kind] : texts) {
    if (small.starts_with(begin)) return kind;
  }
  return "";
}

}  // namespace

std::string_view file_kind(std::span<const std::uint8_t> beginning) {
  const std::string_view text(reinterpret_cast<const char*>(beginning.data()), beginning.size());
  for (const Signature& signature : signatures) {
    if (text.size() > signature.at && text.substr(signature.at).starts_with(signature.bytes) &&
        (is_no_text(signature.bytes) || has_zeros(text)))
      return signature.kind;
  }
  if (is_bmp(text)) return "a BMP picture";
  if (is_utf16_without_mark(text)) return utf16;
  return text_kind(text);
}

std::string looks_like(std::span<const std::uint8_t> beginning) {
  const std::string_view kind = file_kind(beginning);
  return kind.empty() ? "" : fmt::format(" (it looks like {})", kind);
}

}  // namespace sotto
