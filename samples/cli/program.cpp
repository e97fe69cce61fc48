#include "samples/cli/program.h"

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <set>
#include <stdexcept>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "core/allocator/memory_usage.h"
#include "core/devices.h"
#include "core/io/atomic_file.h"
#include "core/io/file_lock.h"
#include "core/io/utf8.h"
#include "core/join.h"
#include "core/ranks/rank_failure.h"
#include "core/threads/parallel.h"
#include "dp/clipping/clip_groups.h"

namespace sotto::samples {

namespace {

// A message may list many problems; one that quotes long input is cut.
constexpr std::size_t longest_message = 4000;

// Larger counts are mistakes, and their sums could overflow.
constexpr std::int64_t max_samples = std::int64_t{1} << 40;

// The first failure to print text; empty if there was none.
std::string& output_failure() {
  static std::string failure;
  return failure;
}

// True in a process that leaves printing to another one.
bool& silent() {
  static bool silent = false;
  return silent;
}

// Two paths are one file if these are equal.
std::string identity(const std::string& path) {
  namespace fs = std::filesystem;
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0) return fmt::format("{}:{}", status.st_dev, status.st_ino);
  const fs::path place = fs::absolute(file_place(path).path);
  return fs::weakly_canonical(place.parent_path()) / place.filename();
}

void check_place(const char* option, const std::string& path) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::absolute(path).parent_path();
  std::error_code none;
  check(fs::is_directory(folder, none), "{}: there is no folder {}", option, folder.string());
  check(!fs::is_directory(path, none), "{}: {} is a folder", option, path);
}

// A result that was written under another name.
struct Rescued final : SystemFailure {
  using SystemFailure::SystemFailure;
};

// Names that no file has, for what cannot be written to `path`. Nothing is made beside a device.
std::vector<std::string> rescue_names(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code none;
  std::vector<fs::path> folders;
  if (const fs::path temporary = fs::temp_directory_path(none); !temporary.empty())
    folders.push_back(temporary);
  if (!fs::exists(path, none) || fs::is_regular_file(path, none))
    folders.insert(folders.begin(), fs::absolute(path).parent_path());
  std::vector<std::string> names;
  for (const fs::path& folder : folders) {
    const std::string name = (folder / fs::path(path).filename()).string() + ".rescue";
    std::string free = name;
    for (int number = 2; fs::exists(fs::symlink_status(free, none)); ++number)
      free = fmt::format("{}.{}", name, number);
    names.push_back(free);
  }
  return names;
}

bool can_print() {
  const int flags = ::fcntl(STDOUT_FILENO, F_GETFL);
  return flags >= 0 && (flags & O_PATH) == 0 && (flags & O_ACCMODE) != O_RDONLY;
}

// Opens what is closed of standard input, output and error, so that later files do not take their
// place.
void fill_standard_files() {
  int number = 0;
  do {
    number = ::open("/", O_PATH | O_CLOEXEC);
  } while (number >= 0 && number <= STDERR_FILENO);
  if (number >= 0) ::close(number);
}

// Prints on standard error, if it is open.
int tell(const std::string& name, std::string_view text, int status) {
  if (silent()) return status;
  // Library messages may begin with their own name, which is the program's.
  const std::string prefix = name + ": ";
  const std::string line = (text.starts_with(prefix) ? "" : prefix) + std::string(text) + "\n";
  try {
    FileWriter(STDERR_FILENO, name).write(line);
  } catch (const SystemFailure&) {
  }
  return status;
}

// Runs `body` and returns its status. An exception is printed, and has a status of its own.
int told(const std::string& name, const std::function<int()>& body, int bad_argument) {
  try {
    return body();
  } catch (const RankFailure&) {
    return failure;
  } catch (const std::invalid_argument& error) {
    return tell(name, excerpt(error.what(), longest_message), bad_argument);
  } catch (const OutOfMemory& error) {  // a message of several lines, without names of files
    return tell(name, error.what(), failure);
  } catch (const std::filesystem::filesystem_error& error) {
    return tell(name, printable(error.path1().string() + ": " + error.code().message()), failure);
  } catch (const std::exception& error) {
    return tell(name, excerpt(error.what(), longest_message), failure);
  }
}

}  // namespace

void require_given(const char* option, const std::string& value) {
  check(!value.empty(), "{}: is required", option);
}

void check_threads(int threads) {
  require(threads >= 0 && threads <= max_threads, "--threads", threads,
          fmt::format("from 0 to {}", max_threads));
}

void check_memory(const memory::Policy& policy) {
  const auto number = [](const char* option, const std::optional<std::int64_t>& given,
                         const char* range) {
    if (given) require(*given >= 1 && *given <= max_samples, option, *given, range);
  };
  number("--physical-batch", policy.physical_batch, "a number of samples");
  number("--accumulation-steps", policy.accumulation, "a number of parts");
  const std::vector<std::string> problems = policy.problems();
  check(problems.empty(), "{}", join(problems, "; "));
}

void check_clip_bound(double bound) {
  require(bound >= min_clip_bound && bound <= max_clip_bound, "--clip-bound", bound,
          fmt::format("from {:.3g} to {:.3g} (2^-100 to 2^100)", min_clip_bound, max_clip_bound));
}

void check_noise_multiplier(double noise) {
  constexpr double max = 1e6;
  require(noise > 0 && noise <= max, "--noise-multiplier", noise,
          fmt::format("above 0 and at most {:g}", max));
}

void check_fits(const char* options, double bytes) {
  constexpr double gibibyte = 1 << 30;
  const auto there = static_cast<double>(devices().front().memory);
  check(there == 0 || bytes <= there, "{}: {:.4g} GiB are needed, and the machine has {:.4g} GiB",
        options, bytes / gibibyte, there / gibibyte);
}

void check_writable(const char* option, const std::string& path, FileKind kind) {
  if (path.empty()) return;
  check_place(option, path);
  try {
    check_can_write(path, kind);
    remove_leftovers(path);
  } catch (const SystemFailure& error) {
    fail(fmt::format("{}: {}", option, error.what()));
  }
}

std::shared_ptr<const void> lock_saved(const char* option, const std::string& path) {
  if (path.empty()) return nullptr;
  check_place(option, path);
  std::shared_ptr<const void> lock;
  try {
    lock = lock_name(path);
  } catch (const SystemFailure& error) {
    fail(fmt::format("{}: {}", option, error.what()));
  }
  if (!lock)
    throw SystemFailure(fmt::format(
        "{}: another training uses {} now: wait for its end, or give another name", option, path));
  return lock;
}

void check_distinct(const std::vector<std::string>& paths) {
  std::set<std::string> seen;
  for (const std::string& path : paths) {
    if (path.empty()) continue;
    check(seen.insert(identity(path)).second, "two files have the same name: {}", path);
  }
}

void leave_printing_to_another_process() { silent() = true; }

void print_text(std::string_view text) {
  if (silent()) return;
  static const std::string name = "standard output";
  try {
    FileWriter(STDOUT_FILENO, name).write(text);
  } catch (const SystemFailure& error) {
    if (output_failure().empty()) output_failure() = error.what();
  }
}

void write_result(const std::string& path,
                  const std::function<void(const std::string& path)>& write) {
  try {
    write(path);
  } catch (const SystemFailure& failure) {
    for (const std::string& name : rescue_names(path)) {
      try {
        write(name);
      } catch (const SystemFailure&) {
        continue;
      }
      throw Rescued(fmt::format("{}; it is saved as {}", failure.what(), name));
    }
    throw;
  }
}

void print_result(std::string_view text) {
  print_text(text);
  if (silent() || output_failure().empty()) return;
  try {
    const std::string name = std::filesystem::temp_directory_path() / "sotto-results.rescue";
    output_failure() += fmt::format("; it is saved as {}", write_new_file(name, text));
  } catch (const std::runtime_error&) {
    // Then the failure says that it is lost.
  }
}

void write_text(const TextFile& file) {
  if (file.path.empty()) return;
  try {
    write_result(file.path, [&](const std::string& path) {
      write_file_atomically(path, [&](FileWriter& writer) { writer.write(file.text); });
    });
  } catch (const Rescued&) {
    throw;
  } catch (const SystemFailure&) {
    print_text(file.text);
    throw;
  }
}

void write_texts(const std::vector<TextFile>& files) {
  std::exception_ptr first;
  for (const TextFile& file : files) {
    try {
      write_text(file);
    } catch (const SystemFailure&) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

std::string json_text(const nlohmann::json& value) {
  constexpr int indent = 2;
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

std::string program_file(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "sotto-" + name;
}

int ending(const std::string& program, const std::function<int()>& body, int bad_argument) {
  const std::string name = program_file(program);
  fill_standard_files();
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);
  if (!silent() && !can_print())
    return tell(name, "standard output is closed; use > /dev/null to discard output", failure);
  const int status = told(name, body, bad_argument);
  if (status != 0 || output_failure().empty()) return status;
  return tell(name, output_failure(), failure);
}

}  // namespace sotto::samples
