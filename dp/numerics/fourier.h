// Fourier transforms of real sequences, for sums of many losses.
#pragma once

#include <complex>
#include <cstdint>
#include <vector>

namespace sotto {

// For one size: 2^k or 3 * 2^k, at least 4. Every output is a sum of inputs that were multiplied by
// log2(size) rounded roots of unity or fewer, one after the other.
class FourierTransform {
 public:
  explicit FourierTransform(std::int64_t size);

  // X_k = sum_j x_j e^{-2 pi i j k / size}, for k = 0 .. size / 2
  std::vector<std::complex<double>> forward(const std::vector<double>& x);
  // The x that these are the transform of.
  std::vector<double> inverse(const std::vector<std::complex<double>>& spectrum);

 private:
  // Complex numbers, real and imaginary parts apart.
  struct Numbers {
    explicit Numbers(std::size_t size) : real(size), imag(size) {}
    std::vector<double> real, imag;
  };
  void transform();

  std::size_t half_;  // size / 2
  Numbers z_, next_;
  std::vector<std::complex<double>> roots_;  // e^{-2 pi i j / size} for j = 0 .. size / 2
};

// The one that this thread keeps for a size.
FourierTransform& fourier_transform(std::int64_t size);

}  // namespace sotto
