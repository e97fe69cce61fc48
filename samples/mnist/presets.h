// Named settings that work well.
#pragma once

#include <string>
#include <vector>

#include "samples/mnist/settings.h"

namespace sotto::mnist {

std::vector<std::string> preset_names();
// Throws std::invalid_argument for a name that is not in preset_names().
Settings preset(const std::string& name);

}  // namespace sotto::mnist
