#include "nn/data/images/scattering.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "nn/data/images/lane_fft.h"
#include "nn/data/images/scattering_filters.h"

namespace sotto {

namespace {

constexpr std::int64_t smallest_side = 8;
constexpr std::int64_t largest_side = 4 * (LaneFft::max_radix - 3);
constexpr std::int64_t padding = ScatteringFilters::padding;
constexpr std::int64_t angles = ScatteringFilters::angles;
constexpr std::int64_t groups_of_a_thread = 16;  // between two calls of `progress`

using Lanes = std::vector<ComplexLanes>;

// The transform in two dimensions of [h, w] points.
class LaneFft2d {
 public:
  LaneFft2d(std::int64_t h, std::int64_t w)
      : down_(h), across_(w), columns_(static_cast<std::size_t>(h * w)) {}

  std::int64_t height() const { return down_.size(); }
  std::int64_t width() const { return across_.size(); }

  void transform(const ComplexLanes* x, ComplexLanes* y) {
    const std::int64_t h = height(), w = width();
    for (std::int64_t j = 0; j < w; ++j) down_.transform(x + j, w, columns_.data() + j * h);
    for (std::int64_t i = 0; i < h; ++i) across_.transform(columns_.data() + i, h, y + i * w);
  }

 private:
  LaneFft down_, across_;
  Lanes columns_;
};

// y = |x|, with imaginary part 0.
void take_modulus(ComplexLanes* x, std::int64_t count) {
  for (std::int64_t k = 0; k < count; ++k) {
    const FloatLanes squared = x[k].re * x[k].re + x[k].im * x[k].im;
    for (int lane = 0; lane < fft_lanes; ++lane) x[k].re[lane] = std::sqrt(squared[lane]);
    x[k].im = FloatLanes{};
  }
}

// Transforms 8 planes, pictures' channels, at once. Since filters are real in frequency, the
// modulus of a filtered signal is that of the forward transform of its conjugate spectrum.
class PlaneScattering {
 public:
  explicit PlaneScattering(const ScatteringFilters& filters)
      : filters_(filters),
        fine_(filters.height, filters.width),
        coarse_(filters.height / 2, filters.width / 2),
        signal_(static_cast<std::size_t>(filters.height * filters.width)),
        spectrum_(signal_.size()),
        first_spectrum_(signal_.size()),
        product_(signal_.size()) {}

  // Planes [count, h, w] of x, count <= 8, to y[count, 81, h/4, w/4].
  void transform(const float* x, std::int64_t count, float* y) {
    load(x, count);
    y_ = y;
    count_ = count;
    low_pass(0, 0);
    fine_.transform(signal_.data(), spectrum_.data());
    for (std::int64_t angle = 0; angle < angles; ++angle) {
      multiply(wavelet(0, angle));
      fine_.transform(product_.data(), signal_.data());
      take_modulus(signal_.data(), std::ssize(signal_));
      low_pass(0, 1 + angle);
      fine_.transform(signal_.data(), first_spectrum_.data());
      for (std::int64_t second = 0; second < angles; ++second) {
        coarse_path(first_spectrum_, second, 1 + (2 + angle) * angles + second);
      }
    }
    for (std::int64_t angle = 0; angle < angles; ++angle) {
      coarse_path(spectrum_, angle, 1 + angles + angle);
    }
  }

 private:
  const std::vector<float>& wavelet(std::int64_t scale, std::int64_t angle) const {
    return filters_.wavelets[static_cast<std::size_t>(scale * angles + angle)];
  }

  // Reflects the border: pixel -k is pixel k, as the edge itself is not repeated. Lanes beyond
  // `count` repeat the last plane.
  void load(const float* x, std::int64_t count) {
    const std::int64_t h = filters_.height - 2 * padding, w = filters_.width - 2 * padding;
    const auto inside = [](std::int64_t at, std::int64_t size) {
      const std::int64_t k = std::abs(at - padding);
      return k < size ? k : 2 * (size - 1) - k;
    };
    for (std::int64_t i = 0; i < filters_.height; ++i) {
      for (std::int64_t j = 0; j < filters_.width; ++j) {
        ComplexLanes& to = signal_[static_cast<std::size_t>(i * filters_.width + j)];
        const float* const from = x + inside(i, h) * w + inside(j, w);
        for (int lane = 0; lane < fft_lanes; ++lane) {
          to.re[lane] = from[std::min<std::int64_t>(lane, count - 1) * h * w];
        }
        to.im = FloatLanes{};
      }
    }
  }

  void multiply(const std::vector<float>& filter) {
    for (std::size_t k = 0; k < filter.size(); ++k) {
      product_[k] = {spectrum_[k].re * filter[k], -spectrum_[k].im * filter[k]};
    }
  }

  // Filters a spectrum by the wavelet of scale 1 at half the resolution, whose spectrum is the sum
  // of the quarters of the whole.
  void coarse_path(const Lanes& spectrum, std::int64_t angle, std::int64_t path) {
    const std::int64_t h = coarse_.height(), w = coarse_.width();
    const ComplexLanes* const x = spectrum.data();
    const float* const filter = wavelet(1, angle).data();
    for (std::int64_t i = 0; i < h; ++i) {
      for (std::int64_t j = 0; j < w; ++j) {
        const std::int64_t a = i * 2 * w + j, b = a + w, c = a + h * 2 * w, d = c + w;
        product_[static_cast<std::size_t>(i * w + j)] = {
            x[a].re * filter[a] + x[b].re * filter[b] + x[c].re * filter[c] + x[d].re * filter[d],
            -(x[a].im * filter[a] + x[b].im * filter[b] + x[c].im * filter[c] +
              x[d].im * filter[d])};
      }
    }
    coarse_.transform(product_.data(), signal_.data());
    take_modulus(signal_.data(), h * w);
    low_pass(1, path);
  }

  // Smooths the signal of this level down its columns, then along its rows.
  void low_pass(int level, std::int64_t path) {
    const auto &rows = filters_.rows[level], &columns = filters_.columns[level];
    const std::int64_t w = columns.inputs, h_out = rows.outputs, w_out = columns.outputs;
    for (std::int64_t a = 0; a < h_out; ++a) {
      for (std::int64_t j = 0; j < w; ++j) {
        FloatLanes sum{};
        for (std::int64_t i = 0; i < rows.inputs; ++i) {
          sum += signal_[static_cast<std::size_t>(i * w + j)].re *
                 rows.matrix[static_cast<std::size_t>(a * rows.inputs + i)];
        }
        product_[static_cast<std::size_t>(j)].re = sum;
      }
      for (std::int64_t b = 0; b < w_out; ++b) {
        FloatLanes sum{};
        for (std::int64_t j = 0; j < w; ++j) {
          sum += product_[static_cast<std::size_t>(j)].re *
                 columns.matrix[static_cast<std::size_t>(b * w + j)];
        }
        for (std::int64_t lane = 0; lane < count_; ++lane) {
          y_[((lane * scattering_paths + path) * h_out + a) * w_out + b] = sum[lane];
        }
      }
    }
  }

  const ScatteringFilters& filters_;
  LaneFft2d fine_, coarse_;
  Lanes signal_, spectrum_, first_spectrum_, product_;
  float* y_ = nullptr;
  std::int64_t count_ = 0;
};

void check_images(const Tensor& x) {
  check(x.defined() && x.rank() == 4, "scattering: pictures need four axes: n, c, h, w");
  check(x.dtype() == Dtype::f32 && x.device() == cpu && x.contiguous(),
        "scattering: pictures {} are not row-major f32 on the CPU", x.shape());
  for (const int axis : {2, 3}) {
    check(x.size(axis) % 4 == 0 && x.size(axis) >= smallest_side && x.size(axis) <= largest_side,
          "scattering: pictures {}: a side of {} is no multiple of 4 from {} to {}", x.shape(),
          x.size(axis), smallest_side, largest_side);
  }
}

}  // namespace

Tensor scattering_features(const Tensor& images,
                           const std::function<void(std::int64_t, std::int64_t)>& progress) {
  check_images(images);
  const std::int64_t n = images.size(0), c = images.size(1), h = images.size(2), w = images.size(3);
  Tensor features = Tensor::empty({n, scattering_paths * c, h / 4, w / 4});
  const float* const x = images.data<float>();
  float* const y = features.data<float>();
  const ScatteringFilters filters(h, w);
  const std::int64_t planes = n * c, features_of_a_plane = scattering_paths * (h / 4) * (w / 4);
  const auto transform = [&](std::int64_t begin, std::int64_t end) {
    PlaneScattering scattering(filters);
    for (std::int64_t plane = begin; plane < end; plane += fft_lanes) {
      const std::int64_t count = std::min<std::int64_t>(fft_lanes, end - plane);
      simd_dispatch_avx512(
          [&] { scattering.transform(x + plane * h * w, count, y + plane * features_of_a_plane); });
    }
  };
  const std::int64_t step = thread_count() * groups_of_a_thread * fft_lanes;
  for (std::int64_t first = 0; first < planes; first += step) {
    const std::int64_t count = std::min(step, planes - first);
    parallel_for(count, fft_lanes, [&](std::int64_t begin, std::int64_t end) {
      transform(first + begin, first + end);
    });
    if (progress) progress((first + count) / c, n);
  }
  return features;
}

}  // namespace sotto
