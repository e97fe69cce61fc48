// Options and parsing on CLI11's own types. Slow to compile: programs whose command line is one
// list of options include command_line.h, which hides CLI11.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace sotto::samples {

// Returns why `text` is not a plain decimal number of this type; empty if it is one. "010" is not a
// whole number, and numbers out of range are refused.
template <class Number>
std::string number_fault(const std::string& text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [rest, fault] = std::from_chars(text.data(), end, number);
  const bool whole_text = fault == std::errc() && rest == end;
  if constexpr (std::is_integral_v<Number>) {
    using Range = std::numeric_limits<Number>;
    if (whole_text && fmt::to_string(number) == text) return "";
    const bool below_0 = std::is_unsigned_v<Number> && text.size() > 1 && text.starts_with('-');
    const bool digits = text.find_first_not_of("0123456789", text.starts_with('-')) == text.npos;
    if (digits && (fault == std::errc::result_out_of_range || below_0))
      return fmt::format("{} is not from {} to {}", text, Range::min(), Range::max());
    return fmt::format("{} is not a whole number in plain digits, such as 1000", text);
  } else {
    if (whole_text && std::isfinite(number)) return "";
    const bool beyond = fault == std::errc::result_out_of_range && rest == end;
    if (!beyond) return fmt::format("{} is not a finite number", text);
    return fmt::format("{} is too large or too small: the limits are 1.8e308 and 5e-324", text);
  }
}

template <class T>
struct ValueOf {
  using type = T;
};
template <class T>
struct ValueOf<std::optional<T>> : ValueOf<T> {};
template <class T>
struct ValueOf<std::vector<T>> : ValueOf<T> {};

// Declares an option; every option of every program is declared by it. Numbers are checked as text.
template <class T>
CLI::Option* add_option(CLI::App& app, const std::string& name, T& value, const std::string& text) {
  CLI::Option* const option = app.add_option(name, value, text);
  using Value = typename ValueOf<T>::type;
  if constexpr (std::is_arithmetic_v<Value>) option->check(number_fault<Value>);
  return option;
}

// Parses the arguments. Returns false if the help was requested; it has been printed then. Throws
// std::invalid_argument, in one line with the option's name, for a wrong argument: also for an
// empty value, an option in place of a value, and an option given twice.
bool parse_arguments(CLI::App& app, int argc, const char* const* argv);

}  // namespace sotto::samples
