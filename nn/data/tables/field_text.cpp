#include "nn/data/tables/field_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "core/io/utf8.h"

namespace sotto {

namespace {

// Whether a decimal number beyond the range of double is beyond its small end: below 1.
bool below_one(std::string_view text) {
  const std::size_t e = std::min(text.find_first_of("eE"), text.size());
  const std::string_view digits = text.substr(0, e);
  const std::size_t point = std::min(digits.find('.'), digits.size());
  const std::size_t first = std::min(digits.find_first_of("123456789"), digits.size());
  // The power of ten of the first digit, without the exponent.
  const auto place = static_cast<std::int64_t>(point) - static_cast<std::int64_t>(first);
  if (e == text.size()) return place <= 0;
  std::string_view exponent = text.substr(e + 1);
  if (exponent.starts_with('+')) exponent.remove_prefix(1);
  std::int64_t power = 0;
  const auto error = std::from_chars(exponent.data(), exponent.data() + exponent.size(), power).ec;
  return error == std::errc() ? place + power <= 0 : exponent.starts_with('-');
}

}  // namespace

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  if (last != end) return std::nullopt;
  if (error == std::errc::result_out_of_range && below_one(text))
    return text.starts_with('-') ? -0.0 : 0.0;
  return error == std::errc() && std::isfinite(value) ? std::optional(value) : std::nullopt;
}

bool is_too_large(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  return error == std::errc::result_out_of_range && last == end && !below_one(text);
}

std::string shown(std::string_view text) {
  constexpr std::size_t max = 60;
  return fmt::format("'{}'", excerpt(text, max));
}

}  // namespace sotto
