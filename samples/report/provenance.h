// The origin of a page: what a reader needs to trace or repeat the run that made it.
#pragma once

#include <string>
#include <string_view>

#include "core/device.h"

namespace sotto {

struct Provenance {
  std::string time;     // "2026-11-27 19:20 UTC"
  std::string sotto;    // "0.1.0, commit 25383b9f"
  std::string machine;  // the processor's or GPU's name, and the number of cores
  std::string command;  // the command line, as a shell reads it
};

// That of this process, now, which computes on `device`.
Provenance provenance(Device device = cpu);

// The words of a command line, each ended by '\0' as in /proc/self/cmdline, quoted for a shell.
std::string shell_command(std::string_view words);

}  // namespace sotto
