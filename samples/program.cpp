#include "samples/program.h"

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>

#include <unistd.h>

#include "sotto/core/atomic_file.h"
#include "sotto/core/text.h"

namespace sotto::samples {

namespace {

constexpr int most_threads = 1024;
// Counts that are larger are mistakes, and sums of them could overflow.
constexpr std::int64_t most_samples = std::int64_t{1} << 40;

}  // namespace

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
  check(problems.empty(), "{}", joined(problems, "; "));
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
