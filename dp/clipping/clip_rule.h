// Clip rules by name; what they do is in kernels/host_device/clip_factor.h.
#pragma once

#include <string>
#include <vector>

#include "kernels/host_device/clip_factor.h"

namespace sotto {

// "minimum" and so on, and back; throws std::invalid_argument for another name.
const char* name(ClipRule::Kind kind);
ClipRule::Kind clip_rule_kind(const std::string& name);
std::vector<std::string> clip_rule_names();

}  // namespace sotto
