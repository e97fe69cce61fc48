#include "nn/data/images/augment.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/random/philox.h"
#include "core/threads/parallel.h"

namespace sotto {

namespace {

constexpr std::int64_t max_record = std::int64_t{1} << 40;
constexpr std::int64_t max_view = std::int64_t{1} << 48;
constexpr std::int64_t view_grain = 8;
constexpr double min_mixup = 0.01;  // below, the powers in beta() would be 0
// The Philox streams of views, of those that are mixed with them, and of the shares: ASCII "aug",
// "mix" and "sha", then 40 bits of the record's number. Each view has so many words of its stream.
constexpr std::uint64_t view_stream = 0x6175670000000000;
constexpr std::uint64_t mixed_stream = 0x6d69780000000000;
constexpr std::uint64_t share_stream = 0x7368610000000000;
constexpr std::uint64_t words_of_a_view = std::uint64_t{1} << 12;

struct PictureShape {
  std::int64_t c, h, w;
};

// Copies the picture, moved and perhaps flipped.
void move(const float* x, const PictureShape& shape, const Augmentation& options,
          PublicRandom& random, float* y) {
  const auto [c, h, w] = shape;
  const std::int64_t down = random.below(2 * options.shift + 1) - options.shift;
  const std::int64_t right = random.below(2 * options.shift + 1) - options.shift;
  const bool flipped = random.below(2) == 1 && options.flip;
  const auto reflected = [](std::int64_t at, std::int64_t size) {
    const std::int64_t k = std::abs(at);
    return k < size ? k : 2 * (size - 1) - k;
  };
  for (std::int64_t i = 0; i < c * h; ++i) {
    const float* const row = x + (i / h * h + reflected(i % h - down, h)) * w;
    for (std::int64_t j = 0; j < w; ++j) {
      *y++ = row[reflected((flipped ? w - 1 - j : j) - right, w)];
    }
  }
}

double mean(const float* y, std::int64_t count) {
  double sum = 0;
  for (std::int64_t k = 0; k < count; ++k) sum += static_cast<double>(y[k]);
  return sum / static_cast<double>(count);
}

// y <- towards + factor (y - towards), limited to [0, 1].
float stretched(float y, float towards, float factor) {
  return std::clamp(towards + factor * (y - towards), 0.0f, 1.0f);
}

void jitter(float* y, const PictureShape& shape, const Augmentation& options,
            PublicRandom& random) {
  const std::int64_t plane = shape.h * shape.w, count = shape.c * plane;
  const auto factor = [&](double spread) {
    return static_cast<float>(1 + spread * (2 * random.uniform() - 1));
  };
  const float brightness = factor(options.brightness), contrast = factor(options.contrast);
  const float saturation = factor(options.saturation);
  if (options.brightness > 0) {
    for (std::int64_t k = 0; k < count; ++k) y[k] = stretched(y[k], 0, brightness);
  }
  if (options.contrast > 0) {
    const auto middle = static_cast<float>(mean(y, count));
    for (std::int64_t k = 0; k < count; ++k) y[k] = stretched(y[k], middle, contrast);
  }
  if (options.saturation > 0) {
    for (std::int64_t k = 0; k < plane; ++k) {
      // ITU-R BT.601
      const float grey = 0.299f * y[k] + 0.587f * y[k + plane] + 0.114f * y[k + 2 * plane];
      for (std::int64_t at = k; at < count; at += plane) y[at] = stretched(y[at], grey, saturation);
    }
  }
}

void cut_out(float* y, const PictureShape& shape, std::int64_t side, PublicRandom& random) {
  const auto [c, h, w] = shape;
  const std::int64_t top = random.below(h) - side / 2, left = random.below(w) - side / 2;
  const std::int64_t first_row = std::max<std::int64_t>(top, 0), rows = std::min(top + side, h);
  const std::int64_t first_column = std::max<std::int64_t>(left, 0),
                     columns = std::min(left + side, w);
  for (std::int64_t channel = 0; channel < c; ++channel) {
    float* const plane = y + channel * h * w;
    const auto middle = static_cast<float>(mean(plane, h * w));
    for (std::int64_t i = first_row; i < rows; ++i) {
      std::fill(plane + i * w + first_column, plane + i * w + columns, middle);
    }
  }
}

// The generator of a view's numbers in a stream.
PublicRandom random_of(std::uint64_t seed, std::uint64_t stream, const RecordView& of) {
  PublicRandom random(seed, stream + static_cast<std::uint64_t>(of.record));
  random.set_counter(static_cast<std::uint64_t>(of.view) * words_of_a_view);
  return random;
}

void draw_view(const float* x, const PictureShape& shape, const Augmentation& options,
               PublicRandom random, float* y) {
  move(x, shape, options, random, y);
  jitter(y, shape, options, random);
  if (options.cutout > 0) cut_out(y, shape, options.cutout, random);
}

// Beta(alpha, alpha) for alpha <= 1 (Jöhnk 1964), with at least half of the pairs accepted.
double beta(double alpha, PublicRandom random) {
  while (true) {
    const double a = std::pow(random.uniform(), 1 / alpha),
                 b = std::pow(random.uniform(), 1 / alpha);
    if (a + b > 0 && a + b <= 1) return a / (a + b);
  }
}

void check_augmentation(const Tensor& images, const Augmentation& options) {
  check(images.defined() && images.rank() == 4 && images.dtype() == Dtype::f32 &&
            images.device() == cpu && images.contiguous(),
        "augment: pictures are to be [n, c, h, w] f32, row-major on the CPU");
  const Shape& shape = images.shape();
  check(options.shift >= 0 && options.shift < std::min(shape[2], shape[3]),
        "augment: a shift of {} pixels of pictures {}", options.shift, shape);
  check(options.cutout >= 0, "augment: a cutout of {} pixels", options.cutout);
  for (const double value : {options.brightness, options.contrast, options.saturation}) {
    check(value >= 0 && value <= 1, "augment: a change of colours by {} is not in [0, 1]", value);
  }
  check(options.saturation == 0 || shape[1] == 3,
        "augment: saturation of pictures {} without red, green and blue", shape);
  check(options.mixup == 0 || (options.mixup >= min_mixup && options.mixup <= 1),
        "augment: mixup of {} is neither 0 nor in [{}, 1]", options.mixup, min_mixup);
}

void check_record(std::int64_t record) {
  check(record >= 0 && record < max_record, "augment: record {} is not in 0 to 2^40 - 1", record);
}

void check_views(std::span<const std::int64_t> records, const Views& views) {
  check(views.count >= 1 && views.first >= 0 && views.count <= max_view &&
            views.first <= max_view - views.count,
        "augment: views {} to {} + {}", views.first, views.first, views.count);
  for (const std::int64_t record : records) check_record(record);
}

void check_view(const RecordView& of) {
  check(of.view >= 0 && of.view < max_view, "augment: view {} is not in 0 to 2^48 - 1", of.view);
  check_record(of.record);
}

// Draws `rows` views, where row k is of the picture and the numbers that source(k) returns.
struct Source {
  std::int64_t picture;
  RecordView of;
};
template <class SourceOf>
Tensor draw_views(const Tensor& images, const Augmentation& augmentation, std::uint64_t seed,
                  std::int64_t rows, const SourceOf& source) {
  const PictureShape shape{images.size(1), images.size(2), images.size(3)};
  const std::int64_t values = shape.c * shape.h * shape.w;
  Tensor augmented = Tensor::empty({rows, shape.c, shape.h, shape.w});
  const float* const x = images.data<float>();
  float* const y = augmented.data<float>();
  parallel_for(rows, view_grain, [&](std::int64_t begin, std::int64_t end) {
    std::vector<float> other(static_cast<std::size_t>(values));
    for (std::int64_t row = begin; row < end; ++row) {
      const auto [picture, of] = source(row);
      const float* const from = x + picture * values;
      float* const to = y + row * values;
      draw_view(from, shape, augmentation, random_of(seed, view_stream, of), to);
      if (augmentation.mixup == 0) continue;
      draw_view(from, shape, augmentation, random_of(seed, mixed_stream, of), other.data());
      const auto share =
          static_cast<float>(beta(augmentation.mixup, random_of(seed, share_stream, of)));
      for (std::int64_t at = 0; at < values; ++at) {
        to[at] = share * to[at] + (1 - share) * other[static_cast<std::size_t>(at)];
      }
    }
  });
  return augmented;
}

}  // namespace

Tensor augment(const Tensor& images, std::span<const std::int64_t> records,
               const Augmentation& augmentation, const Views& views) {
  check_augmentation(images, augmentation);
  const std::int64_t n = images.size(0);
  check(std::ssize(records) == n, "augment: {} pictures, numbers of {} records", n, records.size());
  check_views(records, views);
  return draw_views(images, augmentation, views.seed, n * views.count, [&](std::int64_t row) {
    const std::int64_t k = row / views.count;
    return Source{k, {records[static_cast<std::size_t>(k)], views.first + row % views.count}};
  });
}

Tensor augment_each(const Tensor& images, std::span<const RecordView> views,
                    const Augmentation& augmentation, std::uint64_t seed) {
  check_augmentation(images, augmentation);
  const std::int64_t n = images.size(0);
  check(std::ssize(views) == n, "augment: {} pictures, numbers of {} views", n, views.size());
  for (const RecordView& of : views) check_view(of);
  return draw_views(images, augmentation, seed, n, [&](std::int64_t row) {
    return Source{row, views[static_cast<std::size_t>(row)]};
  });
}

}  // namespace sotto
