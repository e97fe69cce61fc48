#include "nn/data/images/resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/threads/simd_dispatch.h"

namespace sotto {

namespace {

// One value of the result as a sum of some of the source, along one axis.
struct Weights {
  std::int64_t first = 0;
  std::vector<float> values;
};

// `outputs` values, each of `scale` pixels, in the middle of `inputs` pixels.
std::vector<Weights> triangle_weights(std::int64_t inputs, std::int64_t outputs, double scale) {
  const double begin = (static_cast<double>(inputs) - scale * static_cast<double>(outputs)) / 2;
  const double radius = std::max(scale, 1.0);
  std::vector<Weights> all;
  for (std::int64_t k = 0; k < outputs; ++k) {
    const double centre = begin + (static_cast<double>(k) + 0.5) * scale;
    Weights weights{std::max<std::int64_t>(0, std::llround(std::floor(centre - radius + 0.5))), {}};
    const auto end = std::min(inputs, static_cast<std::int64_t>(std::floor(centre + radius + 0.5)));
    double sum = 0;
    for (std::int64_t at = weights.first; at < end; ++at) {
      const double distance = std::abs(static_cast<double>(at) + 0.5 - centre) / radius;
      weights.values.push_back(static_cast<float>(std::max(0.0, 1 - distance)));
      sum += weights.values.back();
    }
    for (float& value : weights.values) value = static_cast<float>(value / sum);
    all.push_back(std::move(weights));
  }
  return all;
}

// Resizes a row of pixels, from pixel `begin` of the picture's row.
template <int channels>
void resize_row(const float* row, std::int64_t begin, const std::vector<Weights>& across,
                float* to) {
  for (const Weights& weights : across) {
    const float* from = row + (weights.first - begin) * channels;
    float sum[channels]{};
    for (const float weight : weights.values) {
      for (int channel = 0; channel < channels; ++channel) sum[channel] += weight * *from++;
    }
    for (const float value : sum) *to++ = value;
  }
}

// Resizes down the columns, those that `across` looks at, whole rows at a time, and then along the
// rows: [down, across, channels], from 0 to 255.
std::vector<float> resize(const Picture& picture, const std::vector<Weights>& down,
                          const std::vector<Weights>& across) {
  const std::int64_t c = picture.channels, begin = across.front().first;
  const std::int64_t end = across.back().first + std::ssize(across.back().values);
  std::vector<float> row(static_cast<std::size_t>((end - begin) * c));
  std::vector<float> y(down.size() * across.size() * static_cast<std::size_t>(c));
  float* to = y.data();
  for (const Weights& weights : down) {
    const std::uint8_t* from = picture.pixels.data() + (weights.first * picture.width + begin) * c;
    std::fill(row.begin(), row.end(), 0.0f);
    for (const float weight : weights.values) {
      for (std::size_t k = 0; k < row.size(); ++k) row[k] += weight * static_cast<float>(from[k]);
      from += picture.width * c;
    }
    (c == 1 ? resize_row<1> : resize_row<3>)(row.data(), begin, across, to);
    to += std::ssize(across) * c;
  }
  return y;
}

// Orientations 5 to 8 exchange rows and columns.
bool transposed(int orientation) { return orientation >= 5; }

// Where the pixels of the upright picture lie in the stored one: pixel (i, j) at first + i down + j
// right.
struct StoredOrder {
  std::int64_t first, down, right;
};

// EXIF 2.3, table 4, "Orientation"; of a stored picture of this size.
StoredOrder stored_order(int orientation, std::int64_t height, std::int64_t width) {
  const bool bottom_up =
      orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool right_to_left =
      orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const std::int64_t row = bottom_up ? -width : width, column = right_to_left ? -1 : 1;
  const std::int64_t first =
      (bottom_up ? (height - 1) * width : 0) + (right_to_left ? width - 1 : 0);
  return transposed(orientation) ? StoredOrder{first, column, row}
                                 : StoredOrder{first, row, column};
}

// ITU-R BT.601
float brightness(const float* colour) {
  return 0.299f * colour[0] + 0.587f * colour[1] + 0.114f * colour[2];
}

}  // namespace

void fit_picture(const Picture& picture, std::int64_t channels, std::int64_t height,
                 std::int64_t width, float* y) {
  const bool turned = transposed(picture.orientation);
  const std::int64_t rows = turned ? width : height, columns = turned ? height : width;
  const double scale = std::min(static_cast<double>(picture.height) / static_cast<double>(rows),
                                static_cast<double>(picture.width) / static_cast<double>(columns));
  const std::vector<Weights> down = triangle_weights(picture.height, rows, scale);
  const std::vector<Weights> across = triangle_weights(picture.width, columns, scale);
  std::vector<float> resized;
  simd_dispatch([&] { resized = resize(picture, down, across); });
  const StoredOrder at = stored_order(picture.orientation, rows, columns);
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    for (std::int64_t i = 0; i < height; ++i) {
      for (std::int64_t j = 0; j < width; ++j) {
        const std::int64_t place = at.first + i * at.down + j * at.right;
        const float* const pixel = resized.data() + place * picture.channels;
        const float value = channels < picture.channels
                                ? brightness(pixel)
                                : pixel[std::min(channel, picture.channels - 1)];
        *y++ = std::min(1.0f, value / 255);
      }
    }
  }
}

}  // namespace sotto
