#include "samples/command_line.h"

#include <algorithm>
#include <stdexcept>

#include "samples/program.h"
#include "sotto/core/devices.h"
#include "sotto/core/error.h"
#include "sotto/core/text.h"

namespace sotto::samples {

namespace {

constexpr int help_column = 30;

}  // namespace

CommandLine::CommandLine(const std::string& description, const std::string& footer)
    : app_(description) {
  app_.get_formatter()->column_width(help_column);
  app_.option_defaults()->always_capture_default();
  app_.set_help_flag("-h,--help", "print this help and exit");
  app_.footer(footer);
}

CLI::Option* CommandLine::flag(const char* name, bool& value, const std::string& text) {
  return app_.add_flag(name, value, text)->group(group_);
}

CLI::Option* CommandLine::choice(const char* name, std::string& value, const std::string& text,
                                 const std::vector<std::string>& names) {
  return option(name, value, fmt::format("{}: {}", text, joined(names, ", ")), "NAME")
      ->check([names](const std::string& given) {
        if (std::find(names.begin(), names.end(), given) != names.end()) return std::string();
        return fmt::format("{} is not one of {}", given, joined(names, ", "));
      });
}

CLI::Option* CommandLine::parsed(const char* name,
                                 const std::function<void(const std::string&)>& read,
                                 const std::string& shown, const std::string& text,
                                 const char* type) {
  return app_.add_option_function<std::string>(name, read, text)
      ->default_str(shown)
      ->type_name(type)
      ->group(group_)
      ->check([read](const std::string& given) {
        try {
          read(given);
          return std::string();
        } catch (const std::invalid_argument& error) {
          return std::string(error.what());
        }
      });
}

void CommandLine::add_seed(std::uint64_t& seed, const std::string& text) {
  option("--seed", seed, text, "N")->check([](const std::string& given) {
    const bool digits =
        !given.empty() && given.find_first_not_of("0123456789") == std::string::npos;
    return digits ? std::string() : given + " is not a whole number of 0 or more";
  });  // the parser itself would let -1 wrap around
}

void CommandLine::add_threads(int& threads) {
  option("--threads", threads, "threads to compute with; 0: all", "N");
}

void CommandLine::add_device(Device& device) {
  parsed(
      "--device", [&device](const std::string& text) { device = device_named(text); }, name(device),
      "where the model and its batches are: cpu, cuda, cuda:N", "NAME");
}

void CommandLine::add_memory(memory::Policy& policy) {
  group("Memory");
  option("--physical-batch", policy.physical_batch,
         fmt::format("samples computed at once, at most (found from --memory-limit, else {})",
                     memory::usual_physical_batch),
         "N");
  option("--accumulation", policy.accumulation, "parts that a batch is computed in, at least", "N");
  parsed(
      "--checkpoint",
      [&policy](const std::string& text) { policy.checkpoint = memory::parse_checkpoint(text); },
      memory::checkpoint_text(policy.checkpoint),
      "keep the input of every N-th module and compute the rest again: auto, none, N", "N");
  parsed(
      "--precision",
      [&policy](const std::string& text) { policy.precision = memory::parse_precision(text); },
      memory::precision_text(policy.precision),
      "what products and activations are in: auto, f32, bf16, f16", "NAME");
  parsed(
      "--memory-limit",
      [&policy](const std::string& text) { policy.limit = memory::parse_bytes(text); },
      policy.limit > 0 ? memory::bytes_text(policy.limit) : "",
      "bytes that tensors on the device may take, such as 800MB: what is auto is chosen to keep "
      "it",
      "SIZE");
}

bool CommandLine::parse(int argc, const char* const* argv) {
  try {
    app_.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    print_text(app_.help());
    return false;
  } catch (const CLI::ParseError& error) {
    fail(error.what());
  }
  for (const auto& [one, other] : conflicts_) {
    check(!given(one.c_str()) || !given(other.c_str()), "{} and {} do not go together", one, other);
  }
  return true;
}

}  // namespace sotto::samples
