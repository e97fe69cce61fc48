// Names of the clip rules, which kernels/host_device/clip_factor.h defines.
#pragma once

#include <string>
#include <vector>

#include "kernels/host_device/clip_factor.h"

namespace sotto {

// The name of a rule ("minimum", "opacus", "auto-s", "normalize", "psac"), and the rule of a name.
// clip_rule_kind() throws std::invalid_argument for any other name.
const char* name(ClipRule::Kind kind);
// Parses a name.
ClipRule::Kind clip_rule_kind(const std::string& name);
// All names, in the order of the kinds.
std::vector<std::string> clip_rule_names();

}  // namespace sotto
