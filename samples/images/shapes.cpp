#include "samples/images/shapes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "core/random/philox.h"
#include "core/threads/parallel.h"

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

namespace {

constexpr std::int64_t fine = 4;  // points of a disc's canvas for a pixel, along an axis
constexpr double least_radius = 2 * fine;

// The colours of one picture's discs: differences from its own grey.
struct Palette {
  double grey, contrast;

  std::array<float, 3> draw(PublicRandom& random) const {
    constexpr double color_contrast = 0.3;
    const double shade = random.uniform() - 0.5;
    std::array<float, 3> color{};
    for (float& c : color) {
      const double value = grey + contrast * (shade + color_contrast * (random.uniform() - 0.5));
      c = static_cast<float>(std::clamp(value, 0.0, 1.0));
    }
    return color;
  }
};

// Paints a disc on a canvas [channels, side, side].
void paint_disc(PublicRandom& random, const Palette& palette, std::int64_t channels,
                std::int64_t side, float* canvas) {
  const auto size = static_cast<double>(side);
  const double ratio = 2 * least_radius / size;
  const double radius = least_radius / std::sqrt(1 - random.uniform() * (1 - ratio * ratio));
  const double x = size * (2 * random.uniform() - 0.5), y = size * (2 * random.uniform() - 0.5);
  const std::array<float, 3> color = palette.draw(random);
  const auto point = [size](double at) {
    return static_cast<std::int64_t>(std::clamp(std::ceil(at), 0.0, size));
  };
  for (std::int64_t row = point(y - radius); row < point(y + radius); ++row) {
    const double dy = static_cast<double>(row) - y;
    const double half = std::sqrt(std::max(0.0, radius * radius - dy * dy));
    for (std::int64_t c = 0; c < channels; ++c) {
      float* const line = canvas + (c * side + row) * side;
      std::fill(line + point(x - half), line + point(x + half), color[static_cast<std::size_t>(c)]);
    }
  }
}

// The means of blocks of fine x fine points: rows of `size` pixels.
void reduce(std::span<const float> canvas, std::int64_t size, float* pixels) {
  const std::int64_t side = fine * size;
  std::fill(pixels, pixels + std::ssize(canvas) / (fine * fine), 0.0F);
  for (std::int64_t k = 0; k < std::ssize(canvas); ++k)
    pixels[k / side / fine * size + k % side / fine] +=
        canvas[static_cast<std::size_t>(k)] / (fine * fine);
}

}  // namespace

Tensor draw_discs(const PictureShape& shape, std::int64_t count) {
  constexpr std::uint64_t seed = 0x64697363;  // ASCII "disc"
  const std::int64_t side = fine * shape.size;
  const std::int64_t discs = shape.size * shape.size / 4;
  Tensor pictures = Tensor::empty({count, shape.channels, shape.size, shape.size});
  auto* const to = pictures.data<float>();
  parallel_for(count, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      PublicRandom random(seed, static_cast<std::uint64_t>(k));
      const Palette palette{.grey = 0.3 + 0.4 * random.uniform(),
                            .contrast = 0.2 + 0.8 * random.uniform()};
      std::vector<float> canvas(static_cast<std::size_t>(shape.channels * side * side), 0.5F);
      for (std::int64_t disc = 0; disc < discs; ++disc)
        paint_disc(random, palette, shape.channels, side, canvas.data());
      reduce(canvas, shape.size, to + k * shape.channels * shape.size * shape.size);
    }
  });
  return pictures;
}

}  // namespace sotto::images
