#include "dp/numerics/directed_rounding.h"

#include <fmt/format.h>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>

#include "core/error.h"

namespace sotto {

namespace {

constexpr int given_digits = 6;  // of numbers that users give, which are mostly shorter

double read(const std::string& text) { return std::strtod(text.c_str(), nullptr); }

// The decimal before (-1) or after (+1) "d.ddde±xx".
std::string next_decimal(const std::string& text, int direction) {
  const std::size_t e = text.find('e');
  std::string digits = text.substr(0, e);
  std::erase(digits, '.');
  const auto size = digits.size();
  std::int64_t whole = std::stoll(digits) + direction;
  int exponent = std::stoi(text.substr(e + 1)) - static_cast<int>(size) + 1;
  if (whole == 0 || fmt::to_string(whole).size() < size) {  // 1.000 down to 0.9999
    whole = whole * 10 + 9;
    --exponent;
  }
  return fmt::format("{}e{}", whole, exponent);
}

std::string rounded(double value, int digits, int direction) {
  check(value >= 0, "rounded: {} is not >= 0", value);
  if (std::isinf(value)) return "∞";
  std::string text = fmt::format("{:.{}e}", value, digits - 1);
  if (direction * (read(text) - value) < 0) text = next_decimal(text, direction);
  if (std::isinf(read(text))) return "∞";
  return fmt::format("{:.{}g}", read(text), digits);
}

}  // namespace

std::string rounded_up(double value, int digits) { return rounded(value, digits, 1); }
std::string rounded_down(double value, int digits) { return rounded(value, digits, -1); }

std::string epsilon_text(double epsilon, int digits) { return rounded_up(epsilon, digits); }
std::string delta_text(double delta) { return rounded_up(delta, given_digits); }
std::string noise_text(double noise) { return rounded_down(noise, given_digits); }

std::string shown(double value) { return std::isinf(value) ? "∞" : fmt::format("{:g}", value); }

}  // namespace sotto
