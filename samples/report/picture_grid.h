// Pictures in a page, embedded in it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "samples/report/report.h"

namespace sotto {

// RFC 4648, section 4.
std::string base64(std::string_view bytes);

// A grid of the pictures, each with its class and the one it was taken for.
std::string picture_grid(const std::vector<TrainingReport::WrongPicture>& pictures);

}  // namespace sotto
