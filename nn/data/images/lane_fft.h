// Discrete Fourier transforms of 8 signals at once, one in each lane of a vector, so that every
// operation is one of whole vectors whatever the size.
#pragma once

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace sotto {

inline constexpr int fft_lanes = 8;  // an AVX2 register; wider vectors were no faster with AVX-512
typedef float FloatLanes __attribute__((vector_size(4 * fft_lanes)));

// The alignment that wide instructions expect; a compiler for narrower ones would have less.
struct alignas(sizeof(FloatLanes)) ComplexLanes {
  FloatLanes re, im;
};

// exp(2 pi i turns)
std::complex<double> unit_root(double turns);

// Joins `radix` transforms of m points to one of radix * m.
struct FftStage {
  using Root = std::array<float, 2>;
  template <std::int64_t n>
  using Constant = std::integral_constant<std::int64_t, n>;

  static constexpr std::int64_t max_radix = 127;

  std::int64_t radix, m;
  std::vector<Root> twiddles;  // [m, radix]: exp(-2 pi i k q / (radix m))
  std::vector<Root> roots;     // [radix]: exp(2 pi i k / radix)

  // y[q m], the k-th point of transform q, turned to its place in the sum.
  ComplexLanes point(std::int64_t k, const ComplexLanes* y, std::int64_t q) const {
    const ComplexLanes& x = y[q * m];
    if (m == 1) return x;
    const Root& by = twiddles[static_cast<std::size_t>(k * radix + q)];
    return {x.re * by[0] - x.im * by[1], x.re * by[1] + x.im * by[0]};
  }

  void join(std::int64_t k, ComplexLanes* y) const {
    if (radix == 2) return join2(k, y);
    if (radix == 4) return join4(k, y);
    if (radix == 3) return join_odd(k, Constant<3>(), y);
    if (radix == 5) return join_odd(k, Constant<5>(), y);
    join_odd(k, radix, y);
  }

  void join2(std::int64_t k, ComplexLanes* y) const {
    const ComplexLanes a = y[0], b = point(k, y, 1);
    y[0] = {a.re + b.re, a.im + b.im};
    y[m] = {a.re - b.re, a.im - b.im};
  }

  void join4(std::int64_t k, ComplexLanes* y) const {
    const ComplexLanes a = y[0], b = point(k, y, 1), c = point(k, y, 2), d = point(k, y, 3);
    const ComplexLanes even{a.re + c.re, a.im + c.im}, even_rest{a.re - c.re, a.im - c.im};
    const ComplexLanes odd{b.re + d.re, b.im + d.im}, odd_rest{b.re - d.re, b.im - d.im};
    y[0] = {even.re + odd.re, even.im + odd.im};
    y[m] = {even_rest.re + odd_rest.im, even_rest.im - odd_rest.re};
    y[2 * m] = {even.re - odd.re, even.im - odd.im};
    y[3 * m] = {even_rest.re - odd_rest.im, even_rest.im + odd_rest.re};
  }

  // Points j and radix - j have conjugate roots: the sum of the two meets the cosine, and their
  // difference the sine. A constant radix unrolls the loops.
  template <class Radix>
  void join_odd(std::int64_t k, Radix r, ComplexLanes* y) const {
    constexpr bool constant = !std::is_same_v<Radix, std::int64_t>;
    constexpr std::int64_t most = constant ? std::int64_t{Radix{}} : max_radix;
    ComplexLanes sum[most / 2 + 1], difference[most / 2 + 1];
    const ComplexLanes first = y[0];
    ComplexLanes all = first;
    for (std::int64_t j = 1; j <= r / 2; ++j) {
      const ComplexLanes a = point(k, y, j), b = point(k, y, r - j);
      sum[j] = {a.re + b.re, a.im + b.im};
      difference[j] = {a.re - b.re, a.im - b.im};
      all = {all.re + sum[j].re, all.im + sum[j].im};
    }
    y[0] = all;
    for (std::int64_t q = 1; q <= r / 2; ++q) {
      ComplexLanes even = first, odd{};
      for (std::int64_t j = 1; j <= r / 2; ++j) {
        const auto [cosine, sine] = roots[static_cast<std::size_t>(j * q % r)];
        even = {even.re + sum[j].re * cosine, even.im + sum[j].im * cosine};
        odd = {odd.re + difference[j].re * sine, odd.im + difference[j].im * sine};
      }
      y[q * m] = {even.re + odd.im, even.im - odd.re};
      y[(r - q) * m] = {even.re - odd.im, even.im + odd.re};
    }
  }
};

// The transform of n points, y[k] = sum_j x[j] exp(-2 pi i j k / n), by decimation in time
// (Cooley and Tukey 1965) with radices 4 and 2 and the odd primes of n. It is in the header so that
// it is compiled for the caller's instructions (core/threads/simd_dispatch.h).
class LaneFft {
 public:
  // Throws std::invalid_argument if n < 1 or n has a prime above max_radix.
  explicit LaneFft(std::int64_t n);

  static constexpr std::int64_t max_radix = FftStage::max_radix;

  std::int64_t size() const { return std::ssize(order_); }

  // Writes the n points of y in succession; x has its points at multiples of the stride. x and y
  // do not overlap.
  void transform(const ComplexLanes* x, std::int64_t stride, ComplexLanes* y) const {
    for (std::int64_t k = 0; k < size(); ++k)
      y[k] = x[order_[static_cast<std::size_t>(k)] * stride];
    for (const FftStage& stage : stages_) {
      for (std::int64_t block = 0; block < size(); block += stage.radix * stage.m) {
        for (std::int64_t k = 0; k < stage.m; ++k) stage.join(k, y + block + k);
      }
    }
  }

 private:
  std::vector<std::int64_t> order_;  // the stages begin with point order_[k] of x at k
  std::vector<FftStage> stages_;
};

}  // namespace sotto
