#include "nn/models/path_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/error.h"

namespace sotto::nn {

namespace {

// Bounds the time of one comparison: a path is short, and a wild expression is an error.
constexpr std::uint32_t max_steps = 1'000'000;

std::string reason(int code) {
  char text[256] = "";
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text), sizeof text);
  return text;
}

PCRE2_SPTR bytes(const std::string& text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

PathPattern::PathPattern(const std::string& text) : text_(text) {
  int code = 0;
  PCRE2_SIZE place = 0;
  pcre2_code* compiled = pcre2_compile(bytes(text), text.size(), 0, &code, &place, nullptr);
  check(compiled, "pattern \"{}\": {} at {}", text, reason(code), place);
  code_ = {compiled,
           [](const void* p) { pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(p))); }};
}

bool PathPattern::fits_behind(const std::string& path, std::size_t start) const {
  const auto* code = static_cast<const pcre2_code*>(code_.get());
  const std::unique_ptr<pcre2_match_data, void (*)(pcre2_match_data*)> match(
      pcre2_match_data_create_from_pattern(code, nullptr), pcre2_match_data_free);
  const std::unique_ptr<pcre2_match_context, void (*)(pcre2_match_context*)> limits(
      pcre2_match_context_create(nullptr), pcre2_match_context_free);
  pcre2_set_match_limit(limits.get(), max_steps);
  const std::string part = path.substr(start);
  const int found = pcre2_match(code, bytes(part), part.size(), 0,
                                PCRE2_ANCHORED | PCRE2_ENDANCHORED, match.get(), limits.get());
  check(found > 0 || found == PCRE2_ERROR_NOMATCH, "pattern \"{}\": {}", text_, reason(found));
  return found > 0;
}

bool PathPattern::fits(const std::string& path) const { return fits_behind(path, 0); }

bool PathPattern::fits_ending(const std::string& path) const {
  if (fits(path)) return true;
  for (std::size_t dot = path.find('.'); dot != std::string::npos; dot = path.find('.', dot + 1)) {
    if (fits_behind(path, dot + 1)) return true;
  }
  return false;
}

std::string quoted(const std::string& text) {
  std::string y;
  for (const char c : text) {
    if (std::string("\\^$.|?*+()[]{}").find(c) != std::string::npos) y += '\\';
    y += c;
  }
  return y;
}

}  // namespace sotto::nn
