// Pictures of shapes that the program draws, for a first try without files.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <sotto/nn/data/dataset.h>

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

}  // namespace sotto::images
