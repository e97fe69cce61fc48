#include "nn/data/tables/field_text.h"

#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "core/io/utf8.h"

namespace sotto {

std::optional<double> parse_number(std::string_view text) {
  double value = 0;
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const char* const end = text.data() + text.size();
  const auto [last, error] = std::from_chars(text.data(), end, value);
  const bool whole = error == std::errc() && last == end && std::isfinite(value);
  return whole ? std::optional(value) : std::nullopt;
}

std::string shown(std::string_view text) {
  constexpr std::size_t max = 60;
  if (text.size() <= max) return fmt::format("'{}'", printable(text));
  return fmt::format("'{}...' ({} bytes)", printable(text.substr(0, max)), text.size());
}

}  // namespace sotto
