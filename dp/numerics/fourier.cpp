#include "dp/numerics/fourier.h"

#include <cmath>
#include <map>
#include <numbers>
#include <utility>

#include "core/threads/simd_dispatch.h"

namespace sotto {

namespace {

using Complex = std::complex<double>;

// Numbers that a pass reads or writes.
struct ComplexSpan {
  double* __restrict real;
  double* __restrict imag;

  ComplexSpan from(std::size_t first) const { return {real + first, imag + first}; }
};

struct Root {
  double real, imag;
};

inline void put(const ComplexSpan& y, std::size_t q, double real, double imag) {
  y.real[q] = real;
  y.imag[q] = imag;
}

inline void put(const ComplexSpan& y, std::size_t q, double real, double imag, const Root& w) {
  put(y, q, real * w.real - imag * w.imag, real * w.imag + imag * w.real);
}

// Transforms of 4, 2 and 3 numbers that are `apart` from each other, for `stride` sequences side by
// side, multiplied by the roots for later passes.
inline void of_4(const ComplexSpan& x, std::size_t apart, const ComplexSpan& y, std::size_t stride,
                 const Root (&w)[3]) {
  const ComplexSpan a = x, b = x.from(apart), c = x.from(2 * apart), d = x.from(3 * apart);
  const ComplexSpan y0 = y, y1 = y.from(stride), y2 = y.from(2 * stride), y3 = y.from(3 * stride);
  for (std::size_t q = 0; q < stride; ++q) {
    const double even_real = a.real[q] + c.real[q], even_imag = a.imag[q] + c.imag[q];
    const double odd_real = b.real[q] + d.real[q], odd_imag = b.imag[q] + d.imag[q];
    const double more_real = a.real[q] - c.real[q], more_imag = a.imag[q] - c.imag[q];
    const double less_real = b.real[q] - d.real[q], less_imag = b.imag[q] - d.imag[q];
    put(y0, q, even_real + odd_real, even_imag + odd_imag);
    put(y1, q, more_real + less_imag, more_imag - less_real, w[0]);
    put(y2, q, even_real - odd_real, even_imag - odd_imag, w[1]);
    put(y3, q, more_real - less_imag, more_imag + less_real, w[2]);
  }
}

inline void of_2(const ComplexSpan& x, std::size_t apart, const ComplexSpan& y, std::size_t stride,
                 const Root& w) {
  const ComplexSpan b = x.from(apart), y1 = y.from(stride);
  for (std::size_t q = 0; q < stride; ++q) {
    put(y, q, x.real[q] + b.real[q], x.imag[q] + b.imag[q]);
    put(y1, q, x.real[q] - b.real[q], x.imag[q] - b.imag[q], w);
  }
}

inline void of_3(const ComplexSpan& x, const ComplexSpan& y, std::size_t stride) {
  constexpr double sine = std::numbers::sqrt3 / 2;
  const ComplexSpan b = x.from(stride), c = x.from(2 * stride);
  const ComplexSpan y1 = y.from(stride), y2 = y.from(2 * stride);
  for (std::size_t q = 0; q < stride; ++q) {
    const double sum_real = b.real[q] + c.real[q], sum_imag = b.imag[q] + c.imag[q];
    const double real = x.real[q] - 0.5 * sum_real, imag = x.imag[q] - 0.5 * sum_imag;
    const double turned_real = sine * (b.imag[q] - c.imag[q]);
    const double turned_imag = sine * (c.real[q] - b.real[q]);
    put(y, q, x.real[q] + sum_real, x.imag[q] + sum_imag);
    put(y1, q, real + turned_real, imag + turned_imag);
    put(y2, q, real - turned_real, imag - turned_imag);
  }
}

// One pass over all numbers: `stride` sequences with `size` numbers remaining (Stockham's order).
// `roots` are e^{-2 pi i j / (2 size stride)}. Returns the factor by which the sequences become
// shorter.
inline std::size_t pass(const ComplexSpan& x, const ComplexSpan& y, std::size_t size,
                        std::size_t stride, const Complex* roots) {
  const auto root = [&](std::size_t j) {
    const bool beyond = 2 * j > size;  // half a turn back
    const Complex& w = roots[2 * stride * j - (beyond ? stride * size : 0)];
    return beyond ? Root{-w.real(), -w.imag()} : Root{w.real(), w.imag()};
  };
  if (size % 4 == 0) {
    const std::size_t apart = size / 4;
    for (std::size_t p = 0; p < apart; ++p) {
      const Root w[3] = {root(p), root(2 * p), root(3 * p)};
      of_4(x.from(stride * p), stride * apart, y.from(4 * stride * p), stride, w);
    }
    return 4;
  }
  if (size % 2 == 0) {
    for (std::size_t p = 0; p < size / 2; ++p)
      of_2(x.from(stride * p), stride * size / 2, y.from(2 * stride * p), stride, root(p));
    return 2;
  }
  of_3(x, y, stride);
  return 3;
}

}  // namespace

FourierTransform::FourierTransform(std::int64_t size)
    : half_(static_cast<std::size_t>(size) / 2), z_(half_), next_(half_), roots_(half_ + 1) {
  const double step = std::numbers::pi / static_cast<double>(half_);
  for (std::size_t j = 0; j <= half_; ++j)
    roots_[j] = std::polar(1.0, -step * static_cast<double>(j));
}

// Transforms z_ in place.
void FourierTransform::transform() {
  simd_dispatch([&] {
    std::size_t stride = 1;
    for (std::size_t size = half_; size > 1;) {
      const std::size_t factor =
          pass({z_.real.data(), z_.imag.data()}, {next_.real.data(), next_.imag.data()}, size,
               stride, roots_.data());
      std::swap(z_, next_);
      stride *= factor;
      size /= factor;
    }
  });
}

// The real sequence is transformed as complex numbers z_j = x_2j + i x_{2j+1}, half as many; their
// transform contains those of both halves.
std::vector<Complex> FourierTransform::forward(const std::vector<double>& x) {
  for (std::size_t j = 0; j < half_; ++j) {
    z_.real[j] = x[2 * j];
    z_.imag[j] = x[2 * j + 1];
  }
  transform();
  std::vector<Complex> spectrum(half_ + 1);
  for (std::size_t k = 0; k <= half_; ++k) {
    const std::size_t at = k == half_ ? 0 : k, other = k == 0 ? 0 : half_ - k;
    const double even_real = z_.real[at] + z_.real[other], even_imag = z_.imag[at] - z_.imag[other];
    const double odd_real = z_.imag[at] + z_.imag[other], odd_imag = z_.real[other] - z_.real[at];
    const Complex& w = roots_[k];
    spectrum[k] = {0.5 * (even_real + odd_real * w.real() - odd_imag * w.imag()),
                   0.5 * (even_imag + odd_real * w.imag() + odd_imag * w.real())};
  }
  return spectrum;
}

// The reverse of forward(). The inverse transform is the transform with real and imaginary parts
// exchanged.
std::vector<double> FourierTransform::inverse(const std::vector<Complex>& spectrum) {
  const double scale = 0.5 / static_cast<double>(half_);
  for (std::size_t k = 0; k < half_; ++k) {
    const Complex &a = spectrum[k], &b = spectrum[half_ - k], &w = roots_[k];
    const double real = a.real() - b.real(), imag = a.imag() + b.imag();
    const double odd_real = real * w.real() + imag * w.imag();
    const double odd_imag = imag * w.real() - real * w.imag();
    z_.imag[k] = scale * (a.real() + b.real() - odd_imag);
    z_.real[k] = scale * (a.imag() - b.imag() + odd_real);
  }
  transform();
  std::vector<double> x(2 * half_);
  for (std::size_t j = 0; j < half_; ++j) {
    x[2 * j] = z_.imag[j];
    x[2 * j + 1] = z_.real[j];
  }
  return x;
}

FourierTransform& fourier_transform(std::int64_t size) {
  thread_local std::map<std::int64_t, FourierTransform> known;
  return known.try_emplace(size, size).first->second;
}

}  // namespace sotto
