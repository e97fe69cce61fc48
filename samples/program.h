// What the samples have in common as programs: how settings are checked, how files are written, and
// how a program ends that throws.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sotto/core/error.h"
#include "sotto/memory/policy.h"

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
