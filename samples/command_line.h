// What the command lines of the samples have in common: how options are declared and read, and the
// options that several samples have.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "sotto/core/device.h"
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

}  // namespace sotto::samples
