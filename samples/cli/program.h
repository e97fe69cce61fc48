// The common part of the samples as programs: checking of settings, printing of text, writing of
// files, and the end of a program that throws.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "core/allocator/memory_usage.h"
#include "core/error.h"
#include "core/io/file_place.h"
#include "memory/planning/policy.h"

namespace sotto::samples {

// Throws std::invalid_argument, "--lr: 0 is not a positive number", unless `ok`.
template <class T>
void require(bool ok, const char* option, const T& value, const std::string& range) {
  check(ok, "{}: {} is not {}", option, value, range);
}
// Throws std::invalid_argument if a required option was not given.
void require_given(const char* option, const std::string& value);
// Throws std::invalid_argument for a number of threads that --threads does not allow.
void check_threads(int threads);
// Throws std::invalid_argument, under the option's name, for a setting of add_memory() out of
// range.
void check_memory(const memory::Policy& policy);
// Throws std::invalid_argument if it is clear in advance that the file cannot be written: its
// folder must take new files, and a file that would be replaced must not be a ledger or, unless
// `kind` is tensors, a training checkpoint. Removes temporary files of it that a killed program
// left. An empty path is no file.
void check_writable(const char* option, const std::string& path, FileKind kind = FileKind::other);
// Locks a name under which files are saved (lock_name). Throws SystemFailure if another process has
// it, and std::invalid_argument if its folder takes no files. An empty path has no lock.
std::shared_ptr<const void> lock_saved(const char* option, const std::string& path);
// Throws std::invalid_argument unless Clipper accepts the value of --clip-bound.
void check_clip_bound(double bound);
// Throws std::invalid_argument unless the noise multiplier is positive and at most 1e6: beyond it,
// the formulas for the noise lose their digits.
void check_noise_multiplier(double noise);
// Throws std::invalid_argument, with the options that decide the size, for more bytes than the
// machine has.
void check_fits(const char* options, double bytes);
// Returns the data that `load` returns. Throws SystemFailure, with the options that decide their
// size, if they exceed a memory limit.
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
// Throws std::invalid_argument when two of the paths are one file. Empty paths are ignored.
void check_distinct(const std::vector<std::string>& paths);

// Makes the functions below print nothing: another process of the same run prints.
void leave_printing_to_another_process();
// Prints on standard output immediately. A failure is kept until ending(): the program finishes and
// saves first.
void print_text(std::string_view text);
template <class... Args>
void print(fmt::format_string<const Args&...> format, const Args&... args) {
  print_text(fmt::format(format, args...));
}

// Prints a result that exists nowhere else. If that fails, it is also written to a new file in the
// folder of temporary files, which the failure names.
void print_result(std::string_view text);
// Writes a result, of which a paid release is there once: calls write(path). If that throws a
// SystemFailure, calls it with a free name, NAME.rescue, in the same folder and then in that of
// temporary files; throws the SystemFailure, with the name where the result is now.
void write_result(const std::string& path,
                  const std::function<void(const std::string& path)>& write);

// A text file that is replaced as a whole (atomic_file.h); none for an empty path. write_text
// throws where write_result() does; a text that can be written nowhere it prints.
struct TextFile {
  std::string path, text;
};
void write_text(const TextFile& file);
// Writes all files, even after one failed; then throws the first failure.
void write_texts(const std::vector<TextFile>& files);
// Formats the value, with a newline. Invalid UTF-8 in a name becomes U+FFFD.
std::string json_text(const nlohmann::json& value);

inline constexpr int failure = 1;
inline constexpr int bad_arguments = 2;

// The name of a program's file: sotto-memory-profile of memory_profile.
std::string program_file(std::string name);

// Runs `body` and returns the program's exit status: that of `body`; after an exception, which is
// printed as "sotto-program: ..." on stderr, in one line except for OutOfMemory, `bad_argument` for
// std::invalid_argument and `failure` for others. A status of 0 becomes `failure` if a text could
// not be printed. A program whose standard output is closed fails before `body` begins. Writing to
// a pipe without a reader, or beyond the file size limit, is an error like others and no signal. A
// RankFailure, which one of the ranks prints, is not printed again.
int ending(const std::string& program, const std::function<int()>& body,
           int bad_argument = bad_arguments);

}  // namespace sotto::samples
