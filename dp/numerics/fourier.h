// Fourier transforms of real sequences, for sums of many losses.
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

namespace sotto {

// Complex numbers, with real and imaginary parts in separate arrays.
struct SplitComplex {
  explicit SplitComplex(std::size_t size) : real(size), imag(size) {}

  std::vector<double> real, imag;
};

// The transform of one size, 2^k or 3 * 2^k, at least 4. Every output is a sum of inputs, each
// multiplied successively by at most log2(size) rounded roots of unity.
class FourierTransform {
 public:
  explicit FourierTransform(std::int64_t size);

  // X_k = sum_j x_j e^{-2 pi i j k / size}, for k = 0 .. size / 2
  std::vector<std::complex<double>> forward(const std::vector<double>& x);
  // The x whose transform is `spectrum`.
  std::vector<double> inverse(const std::vector<std::complex<double>>& spectrum);

 private:
  void transform();

  std::size_t half_;  // size / 2
  SplitComplex z_, next_;
  std::vector<std::complex<double>> roots_;  // e^{-2 pi i j / size} for j = 0 .. size / 2
};

// The transform of this size that the thread keeps.
FourierTransform& fourier_transform(std::int64_t size);

}  // namespace sotto
