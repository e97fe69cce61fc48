// The parts that the samples share as programs: how settings are checked, how text is printed and
// files are written, and how a program ends that throws.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include <sotto/core/allocator/memory_usage.h>
#include <sotto/core/error.h>
#include <sotto/core/io/file_place.h>
#include <sotto/memory/planning/policy.h>

namespace sotto::samples {

// Throws std::invalid_argument, "--lr: 0 is not a positive number", unless `ok`.
template <class T>
void require(bool ok, const char* option, const T& value, const std::string& range) {
  check(ok, "{}: {} is not {}", option, value, range);
}
// Throws std::invalid_argument for threads that --threads does not allow.
void check_threads(int threads);
// The same for the settings of add_memory(), each under its option's name.
void check_memory(const memory::Policy& policy);
// Throws std::invalid_argument unless a file can be written there, as far as can be known before:
// its folder takes new files, and what it would replace is no ledger and, unless `kind` is tensors,
// no checkpoint. Temporary files of it that a killed program left are removed. An empty path is no
// file.
void check_writable(const char* option, const std::string& path, FileKind kind = FileKind::other);
// Throws std::invalid_argument unless Clipper takes it, which is what --clip gives.
void check_clip_bound(double bound);
// Throws std::invalid_argument unless it is positive and hides no more than anybody needs to:
// beyond that, formulae for the noise lose their digits.
void check_noise_multiplier(double noise);
// Throws std::invalid_argument, naming the options that decide them, for more bytes than the
// machine has.
void check_fits(const char* options, double bytes);
// The data that `load` returns. Throws SystemFailure, naming the options that decide their size,
// where a limit leaves no room for them.
template <class Load>
auto loaded(const char* options, Load&& load) {
  const LabelScope label = LabelScope::kind(MemoryKind::data);
  try {
    return load();
  } catch (const OutOfMemory& error) {
    throw SystemFailure(
        fmt::format("the data need more than the limit of {} bytes: {} more after "
                    "{} (fewer by {}, or a larger --memory-limit)",
                    error.limit(), error.requested(), error.current(), options));
  }
}
// Throws std::invalid_argument when two of the paths are the same file. Empty ones are none.
void check_distinct(const std::vector<std::string>& paths);

// Prints on standard output, at once. Failures are kept until ending(): what a program is at, it
// finishes and saves first.
void print_text(std::string_view text);
template <class... Args>
void print(fmt::format_string<const Args&...> format, const Args&... args) {
  print_text(fmt::format(format, args...));
}

// A page or a file that is replaced whole (atomic_file.h); none for an empty path. Throws
// SystemFailure when it cannot be written.
struct TextFile {
  std::string path, text;
};
void write_text(const TextFile& file);
// All of them, also after one that failed; then throws what the first of those did.
void write_texts(const std::vector<TextFile>& files);
// The value with a newline. Bytes of a name that are no UTF-8 become U+FFFD.
std::string json_text(const nlohmann::json& value);

inline constexpr int failure = 1;
inline constexpr int bad_arguments = 2;

// Runs `body`, and returns the status that the program ends with: the one that `body` returns. An
// exception is told as "name: ..." on stderr, in one line but for OutOfMemory, and the status is
// bad_argument for std::invalid_argument and `failure` for others. The status is `failure`, too,
// where it would be 0 and something could not be printed. A program whose standard output is closed
// fails before `body` begins. Writing to a pipe that nobody reads, or beyond the size that files
// may have, is an error as others are, and no signal.
int ending(const std::string& name, const std::function<int()>& body,
           int bad_argument = bad_arguments);

}  // namespace sotto::samples
