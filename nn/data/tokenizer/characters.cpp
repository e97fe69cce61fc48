#include "nn/data/tokenizer/characters.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <utility>

#include "core/error.h"

namespace sotto {

namespace {

constexpr char32_t ascii_end = 0x80;
constexpr char32_t capital_i_with_dot = 0x130;

utf8proc_category_t category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < ascii_end; });
}

}  // namespace

bool is_white_space(char32_t code) {
  if (code < ascii_end) return code == ' ' || (code >= '\t' && code <= '\r');
  constexpr char32_t next_line = 0x85;  // the one control above ASCII
  const utf8proc_category_t c = category(code);
  return code == next_line || (c >= UTF8PROC_CATEGORY_ZS && c <= UTF8PROC_CATEGORY_ZP);
}

bool is_numeric(char32_t code) {
  const utf8proc_category_t c = category(code);
  return c >= UTF8PROC_CATEGORY_ND && c <= UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t code) {
  if (code < ascii_end) {
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') ||
           (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
  }
  const utf8proc_category_t c = category(code);
  return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

bool is_mark(char32_t code) {
  const utf8proc_category_t c = category(code);
  return c >= UTF8PROC_CATEGORY_MN && c <= UTF8PROC_CATEGORY_ME;
}

bool is_nonspacing_mark(char32_t code) {
  return code >= ascii_end && category(code) == UTF8PROC_CATEGORY_MN;
}

bool is_control(char32_t code) {
  if (code == '\t' || code == '\n' || code == '\r') return false;
  const utf8proc_category_t c = category(code);
  return c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO;
}

// The ranges of the original, gap before the last but one included (the reference of BERT's
// tokenizer, github.com/google-research/bert, has 2B740-2B81F and 2B820-2CEAF).
bool is_chinese(char32_t code) {
  using Range = std::pair<char32_t, char32_t>;
  constexpr std::array<Range, 8> ranges{Range{0x3400, 0x4dbf},   Range{0x4e00, 0x9fff},
                                        Range{0xf900, 0xfaff},   Range{0x20000, 0x2a6df},
                                        Range{0x2a700, 0x2b73f}, Range{0x2b740, 0x2b81f},
                                        Range{0x2b920, 0x2ceaf}, Range{0x2f800, 0x2fa1f}};
  return code >= ranges.front().first && std::any_of(ranges.begin(), ranges.end(), [&](Range r) {
           return code >= r.first && code <= r.second;
         });
}

bool is_one_character(std::string_view text) {
  return !text.empty() && character_bytes(text) == text.size();
}

std::string without(std::string_view text, bool (*property)(char32_t)) {
  std::string y;
  y.reserve(text.size());
  for_each_character(text, [&](char32_t code, std::string_view bytes) {
    if (!property(code)) y += bytes;
  });
  return y;
}

std::string lower_case(std::string_view text) {
  std::string y;
  y.reserve(text.size());
  for_each_character(text, [&](char32_t code, std::string_view bytes) {
    if (code < ascii_end) {
      y += static_cast<char>(code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code);
    } else if (code == capital_i_with_dot) {  // alone has two characters in lower case
      y += "i\u0307";
    } else {
      const auto lower =
          static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
      lower == code ? y += bytes : y += utf8_bytes(lower);
    }
  });
  return y;
}

std::string_view stripped(std::string_view text, bool left, bool right) {
  std::size_t begin = text.size(), end = 0, at = 0;
  for_each_character(text, [&](char32_t code, std::string_view bytes) {
    if (!is_white_space(code)) {
      begin = std::min(begin, at);
      end = at + bytes.size();
    }
    at += bytes.size();
  });
  if (!left) begin = 0;
  if (!right) end = text.size();
  return text.substr(begin, std::max(begin, end) - begin);
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to) {
  std::string y;
  y.reserve(text.size());
  std::size_t begin = 0;
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, begin)) {
    y.append(text.substr(begin, at - begin)).append(to);
    begin = at + from.size();
  }
  return y.append(text.substr(begin));
}

std::string normal_form(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  const bool composed = form == NormalForm::nfc || form == NormalForm::nfkc;
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const auto options = static_cast<utf8proc_option_t>(
      UTF8PROC_STABLE | (composed ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
      (compatible ? UTF8PROC_COMPAT : 0));
  utf8proc_uint8_t* result = nullptr;
  const utf8proc_ssize_t bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &result, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(result, &std::free);
  if (bytes < 0) throw SystemFailure(std::string("tokenizer: utf8proc: ") + utf8proc_errmsg(bytes));
  return {reinterpret_cast<const char*>(result), static_cast<std::size_t>(bytes)};
}

std::string cleaned(std::string_view text) {
  constexpr char32_t replacement = 0xfffd;
  std::string y;
  y.reserve(text.size());
  for_each_character(text, [&](char32_t code, std::string_view bytes) {
    if (code == replacement || is_control(code)) return;
    is_white_space(code) ? y += ' ' : y += bytes;
  });
  return y;
}

std::string chinese_spaced(std::string_view text) {
  std::string y;
  y.reserve(text.size());
  for_each_character(text, [&](char32_t code, std::string_view bytes) {
    is_chinese(code) ? y.append(" ").append(bytes).append(" ") : y += bytes;
  });
  return y;
}

}  // namespace sotto
