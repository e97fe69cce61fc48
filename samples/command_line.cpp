#include "samples/command_line.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>

#include <unistd.h>

#include "sotto/core/atomic_file.h"
#include "sotto/core/devices.h"

namespace sotto::samples {

namespace {

constexpr int help_column = 30;
constexpr int most_threads = 1024;
// Counts that are larger are mistakes, and sums of them could overflow.
constexpr std::int64_t most_samples = std::int64_t{1} << 40;

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
  return option(name, value, fmt::format("{}: {}", text, fmt::join(names, ", ")), "NAME")
      ->check([names](const std::string& given) {
        if (std::find(names.begin(), names.end(), given) != names.end()) return std::string();
        return fmt::format("{} is not one of {}", given, fmt::join(names, ", "));
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
    fmt::print("{}", app_.help());
    return false;
  } catch (const CLI::ParseError& error) {
    fail(error.what());
  }
  for (const auto& [one, other] : conflicts_) {
    check(!given(one.c_str()) || !given(other.c_str()), "{} and {} do not go together", one, other);
  }
  return true;
}

void check_threads(int threads) {
  require(threads >= 0 && threads <= most_threads, "--threads", threads,
          fmt::format("from 0 to {}", most_threads));
}

void check_memory(const memory::Policy& policy) {
  const auto number = [](const char* option, const std::optional<std::int64_t>& given,
                         const char* range) {
    if (given) require(*given >= 1 && *given <= most_samples, option, *given, range);
  };
  number("--physical-batch", policy.physical_batch, "a number of samples");
  number("--accumulation", policy.accumulation, "a number of parts");
  const std::vector<std::string> problems = policy.problems();
  check(problems.empty(), "{}", fmt::join(problems, "; "));
}

void check_writable(const char* option, const std::string& path) {
  namespace fs = std::filesystem;
  if (path.empty()) return;
  const fs::path folder = fs::absolute(path).parent_path();
  check(fs::is_directory(folder), "{}: there is no folder {}", option, folder.string());
  check(access(folder.c_str(), W_OK) == 0, "{}: the folder {} is not writable", option,
        folder.string());
  check(!fs::is_directory(path), "{}: {} is a folder", option, path);
}

void check_distinct(const std::vector<std::string>& paths) {
  std::set<std::string> seen;
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    const bool first = seen.insert(std::filesystem::absolute(path).lexically_normal()).second;
    check(first, "two files have the same name: {}", path);
  }
}

void write_text(const std::string& path, const std::string& text) {
  if (path.empty()) return;
  write_file_atomically(path, [&](FileWriter& writer) { writer.write(text); });
}

int ending(const std::string& name, const std::function<int()>& body, int bad_argument) {
  const auto tell = [&](const std::exception& error, int status) {
    const std::string_view text = error.what();
    // What reads a sample's data may say its own name, which is the sample's.
    const std::string prefix = name + ": ";
    fmt::print(stderr, "{}{}\n", text.starts_with(prefix) ? "" : prefix, text);
    return status;
  };
  try {
    return body();
  } catch (const std::invalid_argument& error) {
    return tell(error, bad_argument);
  } catch (const std::exception& error) {
    return tell(error, failure);
  }
}

}  // namespace sotto::samples
