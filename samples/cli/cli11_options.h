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
    return fmt::format("{} is not a whole number from {} to {}", text, Range::min(), Range::max());
  } else {
    if (whole_text && std::isfinite(number)) return "";
    const bool beyond = fault == std::errc::result_out_of_range && rest == end;
    return fmt::format("{} is {}", text, beyond ? "too large or too small" : "not a finite number");
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
// empty value, an option in place of a value, and an option given twice. Names of earlier versions
// (renamed_options.h) are understood.
bool parse_arguments(CLI::App& app, int argc, const char* const* argv);

}  // namespace sotto::samples
