// The common part of the samples' command lines: how options are declared and parsed, and the
// options that several samples have.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/device.h"
#include "memory/planning/policy.h"

namespace CLI {
class App;
}

namespace sotto::samples {

class CommandLine {
 public:
  explicit CommandLine(const std::string& description, const std::string& footer = "");
  ~CommandLine();
  CommandLine(const CommandLine&) = delete;
  CommandLine& operator=(const CommandLine&) = delete;

  // Options added from now on are listed under this title in the help.
  void group(const char* title) { group_ = title; }
  // For the types that command_line.cpp instantiates it for: numbers, texts, lists and optionals.
  template <class T>
  void option(const char* name, T& value, const std::string& text, const char* type);
  void flag(const char* name, bool& value, const std::string& text);
  // An option with one of these values, which the help lists.
  void choice(const char* name, std::string& value, const std::string& text,
              const std::vector<std::string>& names);
  // An option whose text `read` parses and stores; it throws std::invalid_argument for a wrong one.
  // `shown` is the default value.
  void parsed(const char* name, const std::function<void(const std::string&)>& read,
              const std::string& shown, const std::string& text, const char* type);
  void conflict(const char* one, const char* other) { conflicts_.emplace_back(one, other); }

  // --seed: the seed of public randomness.
  void add_seed(std::uint64_t& seed, const std::string& text);
  // --threads: the number of threads; 0: all.
  void add_threads(int& threads);
  // --device: the model's device; parsing fails, with the reason, for one that cannot be used. Of
  // several processes each may have a GPU of its own: `any_gpu` becomes whether "cuda" was given,
  // without a number.
  void add_device(Device& device, bool* any_gpu = nullptr);
  // The settings of memory::Policy: --physical-batch, --accumulation-steps,
  // --checkpoint-activations, --precision,
  // --memory-limit.
  void add_memory(memory::Policy& policy);

  // parse_arguments() of cli11_options.h, which also throws for two options that conflict.
  bool parse(int argc, const char* const* argv);
  bool given(const char* option) const;

 private:
  std::string group_;
  std::vector<std::pair<std::string, std::string>> conflicts_;
  std::unique_ptr<CLI::App> app_;
};

}  // namespace sotto::samples
