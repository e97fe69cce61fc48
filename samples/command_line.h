// What the command lines of the samples have in common: how options are declared, read and checked,
// the options that several samples have, and how a program ends that throws.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "sotto/core/device.h"
#include "sotto/core/error.h"
#include "sotto/memory/policy.h"

namespace sotto::samples {

class CommandLine {
 public:
  explicit CommandLine(const std::string& description, const std::string& footer = "");
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // What is added from now on is under this title in the help.
  void group(const char* title) { group_ = title; }
  template <class T>
  CLI::Option* option(const char* name, T& value, const std::string& text, const char* type) {
    return app_.add_option(name, value, text)->type_name(type)->group(group_);
  }
  CLI::Option* flag(const char* name, bool& value, const std::string& text);
  // One of the names, which the help lists.
  CLI::Option* choice(const char* name, std::string& value, const std::string& text,
                      const std::vector<std::string>& names);
  // `read` stores a text and throws std::invalid_argument for a wrong one; `shown` is the value
  // that is there before.
  CLI::Option* parsed(const char* name, const std::function<void(const std::string&)>& read,
                      const std::string& shown, const std::string& text, const char* type);
  void conflict(const char* one, const char* other) { conflicts_.emplace_back(one, other); }

  // --seed, of public randomness.
  void add_seed(std::uint64_t& seed, const std::string& text);
  // --threads: of the whole program; 0: all.
  void add_threads(int& threads);
  // --device: where the model is; parsing fails, with the reason, for one that cannot be used.
  void add_device(Device& device);
  // The settings of memory::Policy: --physical-batch, --accumulation, --checkpoint, --precision,
  // --memory-limit.
  void add_memory(memory::Policy& policy);

  // False when the help was asked for, and printed. Throws std::invalid_argument, in one line that
  // names the option, for what is wrong, and for two options that do not go together.
  bool parse(int argc, const char* const* argv);
  bool given(const char* option) const { return app_[option]->count() > 0; }

 private:
  std::string group_;
  std::vector<std::pair<std::string, std::string>> conflicts_;
  CLI::App app_;
};

// Throws std::invalid_argument, "--lr: 0 is not a positive number", unless `ok`.
template <class T>
void require(bool ok, const char* option, const T& value, const std::string& range) {
  check(ok, "{}: {} is not {}", option, value, range);
}
// Throws std::invalid_argument for threads that --threads does not allow.
void check_threads(int threads);
// The same for the settings of add_memory(), each under its option's name.
void check_memory(const memory::Policy& policy);
// Throws std::invalid_argument unless a file can be written there. An empty path is no file.
void check_writable(const char* option, const std::string& path);
// Throws std::invalid_argument when two of the paths are the same file. Empty ones are none.
void check_distinct(const std::vector<std::string>& paths);

// A page or a file that is replaced whole; none for an empty path. Throws SystemFailure when it
// cannot be written.
void write_text(const std::string& path, const std::string& text);

inline constexpr int failure = 1;
inline constexpr int bad_arguments = 2;

// What a program ends with: what `body` returns, or, after one line "name: ..." on stderr for what
// it throws, bad_argument for std::invalid_argument and `failure` for others.
int ending(const std::string& name, const std::function<int()>& body,
           int bad_argument = bad_arguments);

}  // namespace sotto::samples
