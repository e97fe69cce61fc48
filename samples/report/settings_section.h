// The settings of a training on its page, in groups.
#pragma once

#include <string>

#include "samples/report/report.h"

namespace sotto {

// The group that a setting is shown in, by its name.
std::string group_of(const std::string& setting);

// Settings that are off are left out, and long texts stand below the others.
std::string settings_section(const std::vector<TrainingReport::Setting>& settings);

}  // namespace sotto
