#include "samples/images/shapes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include <sotto/core/random/philox.h>
#include <sotto/core/threads/parallel.h>

namespace sotto::images {

namespace {

constexpr std::array names = {"circle", "cross", "ring", "square", "triangle"};
constexpr double noise = 0.12;

// A point in the shape's own coordinates, where the shape is about two units wide.
struct Point {
  double x, y;
};

bool inside(std::int64_t shape, Point p) {
  const double radius = std::hypot(p.x, p.y);
  switch (shape) {
    case 0: return radius < 1;
    case 1:
      return std::max(std::abs(p.x), std::abs(p.y)) < 1 &&
             std::min(std::abs(p.x), std::abs(p.y)) < 0.3;
    case 2: return radius < 1 && radius > 0.6;
    case 3: return std::max(std::abs(p.x), std::abs(p.y)) < 0.85;
    default: return p.y > -0.6 && std::numbers::sqrt3 * std::abs(p.x) + p.y < 1.1;
  }
}

// A shape's place and look, drawn at random.
struct Figure {
  std::int64_t shape;
  double x, y, radius, turn;  // lengths in sides of the picture
  std::array<double, 3> color, background;
};

Figure draw_figure(PublicRandom& random) {
  Figure f{};
  f.shape = random.below(std::ssize(names));
  f.radius = 0.2 + 0.15 * random.uniform();
  f.x = 0.5 + (random.uniform() - 0.5) * (0.9 - 2 * f.radius);
  f.y = 0.5 + (random.uniform() - 0.5) * (0.9 - 2 * f.radius);
  f.turn = (random.uniform() - 0.5) * std::numbers::pi / 6;
  const double bright = random.below(2) == 1 ? 1 : -1;
  for (std::size_t c = 0; c < f.color.size(); ++c) {
    f.background[c] = 0.5 - bright * (0.1 + 0.2 * random.uniform());
    f.color[c] = 0.5 + bright * (0.1 + 0.4 * random.uniform());
  }
  return f;
}

void draw(const ShapeOptions& options, PublicRandom& random, const Figure& f, float* pixels) {
  const std::int64_t channels = options.grey ? 1 : 3, size = options.size;
  const double cosine = std::cos(f.turn), sine = std::sin(f.turn);
  for (std::int64_t k = 0; k < size * size; ++k) {
    const double x = (static_cast<double>(k % size) + 0.5) / static_cast<double>(size) - f.x;
    const double y = f.y - (static_cast<double>(k / size) + 0.5) / static_cast<double>(size);
    const bool in =
        inside(f.shape, {(cosine * x - sine * y) / f.radius, (sine * x + cosine * y) / f.radius});
    for (std::int64_t c = 0; c < channels; ++c) {
      const auto channel = static_cast<std::size_t>(c);
      const double value =
          (in ? f.color[channel] : f.background[channel]) + noise * random.normal();
      pixels[c * size * size + k] = static_cast<float>(std::clamp(value, 0.0, 1.0));
    }
  }
}

}  // namespace

std::vector<std::string> shape_names() { return {names.begin(), names.end()}; }

Dataset draw_shapes(const ShapeOptions& options, std::int64_t count, std::int64_t first) {
  const std::int64_t channels = options.grey ? 1 : 3, side = options.size;
  Dataset data{.inputs = Tensor::empty({count, channels, side, side}),
               .targets = Tensor::empty({count}, Dtype::i64)};
  auto* const pixels = data.inputs.data<float>();
  auto* const labels = data.targets.data<std::int64_t>();
  parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      PublicRandom random(options.seed, static_cast<std::uint64_t>(first + k));
      const Figure figure = draw_figure(random);
      labels[k] = figure.shape;
      draw(options, random, figure, pixels + k * channels * side * side);
    }
  });
  return data;
}

}  // namespace sotto::images
