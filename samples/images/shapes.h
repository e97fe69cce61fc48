// Pictures of shapes that the program draws, for a first try without files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/data/dataset.h"
#include "samples/images/picture_data.h"

namespace sotto::images {

// circle, cross, ring, square, triangle.
std::vector<std::string> shape_names();

// Pictures first, ..., first + count - 1 of an endless set: [n, c, size, size] f32 in [0, 1], c = 1
// if `grey`, else 3, and labels [n] i64. A shape of random place, size, turn and colour lies on a
// background of another colour, under noise. Picture k is a function of the seed and k alone.
struct ShapeOptions {
  std::int64_t size = 32;
  bool grey = false;
  std::uint64_t seed = 0;
};
Dataset draw_shapes(const ShapeOptions& options, std::int64_t count, std::int64_t first = 0);

// Pictures [n, c, size, size] of overlapping discs of random colours, whose statistics are like
// those of natural pictures (Lee, Mumford and Huang 2001): the density of their radii r falls as
// 1 / r^3, from two pixels to half a side. A function of the shape and the count.
Tensor draw_discs(const PictureShape& shape, std::int64_t count);

}  // namespace sotto::images
