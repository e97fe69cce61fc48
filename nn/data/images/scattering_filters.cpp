#include "nn/data/images/scattering_filters.h"

#include <array>
#include <cmath>
#include <complex>
#include <numbers>

#include "nn/data/images/lane_fft.h"

namespace sotto {

namespace {

using Complex = std::complex<double>;

// Kymatio's constants: widths in pixels at scale 0, frequency in radians a pixel, and its pi.
constexpr double sigma_0 = 0.8;
constexpr double xi_0 = 0.75 * std::numbers::pi;
constexpr double slant = 4.0 / ScatteringFilters::angles;
constexpr double norm_pi = 3.1415;
constexpr int periods = 2;  // at each side, summed for a periodic filter
constexpr double negligible = -60;

// A Gabor function, exp(-u^T curvature u + i frequency^T u), and its values.
struct Gabor {
  Gabor(double sigma, double angle, double xi) {
    const double c = std::cos(angle), s = std::sin(angle), squared = slant * slant;
    const double scale = 1 / (2 * sigma * sigma);
    xx = scale * (c * c + s * s * squared);
    xy = scale * 2 * c * s * (1 - squared);
    yy = scale * (s * s + c * c * squared);
    fx = xi * c;
    fy = xi * s;
    norm = 2 * norm_pi * sigma * sigma / slant;
  }

  // Adds the value at (x, y) to `wave`, and that of the envelope to `envelope`.
  void add(double x, double y, Complex& wave, double& envelope) const {
    const double exponent = -(xx * x * x + xy * x * y + yy * y * y);
    if (exponent < negligible) return;
    const double value = std::exp(exponent) / norm;
    wave += std::polar(value, fx * x + fy * y);
    envelope += value;
  }

  double xx, xy, yy, fx, fy, norm;
};

// Morlet's wavelet: the Gabor function, periodic, less the multiple of its envelope that makes its
// mean 0.
std::vector<Complex> morlet(std::int64_t height, std::int64_t width, const Gabor& gabor) {
  const auto count = static_cast<std::size_t>(height * width);
  std::vector<Complex> wave(count);
  std::vector<double> envelope(count);
  Complex wave_sum;
  double envelope_sum = 0;
  for (std::size_t k = 0; k < count; ++k) {
    const auto at = static_cast<std::int64_t>(k);
    for (int ex = -periods; ex <= periods; ++ex) {
      for (int ey = -periods; ey <= periods; ++ey) {
        gabor.add(static_cast<double>(at / width + ex * height),
                  static_cast<double>(at % width + ey * width), wave[k], envelope[k]);
      }
    }
    wave_sum += wave[k];
    envelope_sum += envelope[k];
  }
  const Complex mean = wave_sum / envelope_sum;
  for (std::size_t k = 0; k < count; ++k) wave[k] -= mean * envelope[k];
  return wave;
}

// Transforms the wavelets of a scale together: one in each lane.
std::vector<std::vector<float>> transformed(const std::vector<std::vector<Complex>>& waves,
                                            std::int64_t height, std::int64_t width) {
  static_assert(ScatteringFilters::angles <= fft_lanes);
  const LaneFft down(height), across(width);
  const auto count = static_cast<std::size_t>(height * width);
  std::vector<ComplexLanes> x(count), y(count);
  for (std::size_t lane = 0; lane < waves.size(); ++lane) {
    for (std::size_t k = 0; k < count; ++k) {
      x[k].re[lane] = static_cast<float>(waves[lane][k].real());
      x[k].im[lane] = static_cast<float>(waves[lane][k].imag());
    }
  }
  for (std::int64_t j = 0; j < width; ++j)
    down.transform(&x[static_cast<std::size_t>(j)], width,
                   &y[static_cast<std::size_t>(j * height)]);
  for (std::int64_t i = 0; i < height; ++i)
    across.transform(&y[static_cast<std::size_t>(i)], height,
                     &x[static_cast<std::size_t>(i * width)]);
  std::vector<std::vector<float>> filters(waves.size(), std::vector<float>(count));
  for (std::size_t lane = 0; lane < waves.size(); ++lane) {
    for (std::size_t k = 0; k < count; ++k) {
      filters[lane][k] = x[k].re[lane] / static_cast<float>(count);
    }
  }
  return filters;
}

// The transform of the periodic Gaussian on n points, which is real and even.
std::vector<double> gaussian_spectrum(std::int64_t n, double sigma) {
  std::vector<double> spectrum(static_cast<std::size_t>(n));
  const double norm = std::sqrt(2 * norm_pi * sigma * sigma);
  for (std::int64_t x = -periods * n; x < (periods + 1) * n; ++x) {
    const double exponent = -static_cast<double>(x * x) / (2 * sigma * sigma);
    if (exponent < negligible) continue;
    for (std::int64_t k = 0; k < n; ++k) {
      const double turns = static_cast<double>(k * x % n) / static_cast<double>(n);
      spectrum[static_cast<std::size_t>(k)] += std::exp(exponent) / norm * unit_root(turns).real();
    }
  }
  return spectrum;
}

// The smoothing of signals of n / 2^level points, by the Gaussian on n points without the
// frequencies beyond theirs. Outputs leave out one value at each side, which the padding reaches.
ScatteringFilters::LowPass low_pass(std::int64_t n, int level) {
  const double sigma = sigma_0 * (1 << (ScatteringFilters::scales - 1));
  const std::vector<double> spectrum = gaussian_spectrum(n, sigma);
  const std::int64_t inputs = n >> level, stride = ScatteringFilters::padding >> level;
  ScatteringFilters::LowPass y{inputs / stride - 2, inputs, {}};
  std::vector<double> filter(static_cast<std::size_t>(inputs));
  for (std::int64_t x = 0; x < inputs; ++x) {
    for (std::int64_t k = 0; k < inputs; ++k) {
      const bool negative = 2 * k >= inputs;
      const double turns = static_cast<double>(k * x % inputs) / static_cast<double>(inputs);
      filter[static_cast<std::size_t>(x)] +=
          spectrum[static_cast<std::size_t>(negative ? k + n - inputs : k)] *
          unit_root(turns).real() / static_cast<double>(inputs);
    }
  }
  for (std::int64_t a = 0; a < y.outputs; ++a) {
    for (std::int64_t i = 0; i < inputs; ++i) {
      const std::int64_t x = (stride * (a + 1) - i + inputs) % inputs;
      y.matrix.push_back(static_cast<float>(filter[static_cast<std::size_t>(x)]));
    }
  }
  return y;
}

}  // namespace

ScatteringFilters::ScatteringFilters(std::int64_t picture_height, std::int64_t picture_width)
    : height(picture_height + 2 * padding), width(picture_width + 2 * padding) {
  for (int scale = 0; scale < scales; ++scale) {
    std::vector<std::vector<Complex>> waves;
    for (int angle = 0; angle < angles; ++angle) {
      const double turned = (angles / 2 - 1 - angle) * std::numbers::pi / angles;
      const int wider = 1 << scale;
      waves.push_back(morlet(height, width, Gabor(sigma_0 * wider, turned, xi_0 / wider)));
    }
    for (auto& wavelet : transformed(waves, height, width)) wavelets.push_back(std::move(wavelet));
    rows[scale] = low_pass(height, scale);
    columns[scale] = low_pass(width, scale);
  }
}

}  // namespace sotto
