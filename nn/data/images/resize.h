// Pictures of any size brought to one size.
#pragma once

#include <cstdint>

#include "nn/data/images/picture.h"

namespace sotto {

// Writes the picture, turned upright, as planes y[channels, height, width] in [0, 1], channels 1
// (grey, ITU-R BT.601) or 3: the largest box of the right proportions around its centre, resized.
// Each pixel is the mean of the picture's under a triangle about its place, twice as wide as the
// pixel is in the picture, or as the picture's own where that is larger: bilinear interpolation
// where the picture grows, averages of areas where it shrinks, as in Pillow's
// ImageOps.fit(BILINEAR).
void fit_picture(const Picture& picture, std::int64_t channels, std::int64_t height,
                 std::int64_t width, float* y);

}  // namespace sotto
