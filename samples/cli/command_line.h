// The common part of the samples' command lines: how options are declared and parsed, and the
// options that several samples have.
#pragma once

#include <charconv>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <sotto/core/device.h>
#include <sotto/memory/planning/policy.h>

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

class CommandLine {
 public:
  explicit CommandLine(const std::string& description, const std::string& footer = "");
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Options added from now on are listed under this title in the help.
  void group(const char* title) { group_ = title; }
  template <class T>
  CLI::Option* option(const char* name, T& value, const std::string& text, const char* type) {
    return add_option(app_, name, value, text)->type_name(type)->group(group_);
  }
  CLI::Option* flag(const char* name, bool& value, const std::string& text);
  // An option with one of these values, which the help lists.
  CLI::Option* choice(const char* name, std::string& value, const std::string& text,
                      const std::vector<std::string>& names);
  // An option whose text `read` parses and stores; it throws std::invalid_argument for a wrong one.
  // `shown` is the default value.
  CLI::Option* parsed(const char* name, const std::function<void(const std::string&)>& read,
                      const std::string& shown, const std::string& text, const char* type);
  void conflict(const char* one, const char* other) { conflicts_.emplace_back(one, other); }

  // --seed: the seed of public randomness.
  void add_seed(std::uint64_t& seed, const std::string& text);
  // --threads: the number of threads; 0: all.
  void add_threads(int& threads);
  // --device: the model's device; parsing fails, with the reason, for one that cannot be used.
  void add_device(Device& device);
  // The settings of memory::Policy: --physical-batch, --accumulation-steps,
  // --checkpoint-activations, --precision,
  // --memory-limit.
  void add_memory(memory::Policy& policy);

  // parse_arguments(), which also throws for two options that conflict.
  bool parse(int argc, const char* const* argv);
  bool given(const char* option) const { return app_[option]->count() > 0; }

 private:
  std::string group_;
  std::vector<std::pair<std::string, std::string>> conflicts_;
  CLI::App app_;
};

}  // namespace sotto::samples
