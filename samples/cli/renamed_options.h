// Options and values under the names that they had in earlier versions, which scripts may still
// use.
#pragma once

#include <string>

namespace sotto::samples {

// Returns the current name of an option, without dashes: "population" gives "dataset-size".
std::string current_option(const std::string& name);
// Returns the current name of an option's value: ("clipping", "two") gives "ghost".
std::string current_value(const std::string& option, const std::string& value);

}  // namespace sotto::samples
