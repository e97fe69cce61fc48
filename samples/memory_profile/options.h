// The command line of the sample memory_profile.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/device.h"
#include "memory/planning/policy.h"

namespace sotto::memory_profile {

struct Options {
  std::string model = "mnist";
  std::int64_t batch = 128;
  bool no_privacy = false;
  std::string clip_groups = "flat";
  std::string passes = "book-keeping";
  std::string optimizer = "sgd";
  memory::Policy memory;
  std::size_t limit = 0;  // maximum bytes; 0: no limit

  std::string html, json;
  Device device = cpu;  // the device whose memory is shown
  int threads = 0;      // 0: all
};

// Returns nullopt when the program has already answered (--help). Throws std::invalid_argument, in
// one line, for a wrong argument.
std::optional<Options> parse_options(int argc, const char* const* argv);

}  // namespace sotto::memory_profile
