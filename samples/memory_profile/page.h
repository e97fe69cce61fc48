// The findings as a self-contained page, as JSON, and as text.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "samples/memory_profile/run.h"

namespace sotto::memory_profile {

// Returns a whole page: UTF-8, well-formed as XML.
std::string to_html(const Options& options, const StepProfile& found);
nlohmann::json to_json(const Options& options, const StepProfile& found);
// Returns a few lines for a terminal.
std::string to_text(const StepProfile& found);

}  // namespace sotto::memory_profile
