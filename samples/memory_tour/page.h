// The findings of the tour as text, as a self-contained page, and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "samples/memory_tour/tour.h"

namespace sotto::memory_tour {

std::string to_text(const std::vector<Exercise>& exercises);
// Well-formed as XML, UTF-8.
std::string to_html(const Network& network, const std::vector<Exercise>& exercises);
nlohmann::json to_json(const Network& network, const std::vector<Exercise>& exercises);

}  // namespace sotto::memory_tour
