// Clipping on the CPU: term bounds from norms, and the check and the zeroing of several arrays at
// once.
#include "kernels/host_device/clip_sample.h"
#include "kernels/host_device/term_bounds.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>

#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/per_sample/dot.h"

namespace sotto {

namespace {

// One pass for all four sums, each of which adds its terms as sum_terms() does.
TermSums sums_of(const TermOperands& terms, std::int64_t n) {
  constexpr std::int64_t lanes = 2 * sum_lanes;
  TermSums parts[lanes], sums;
  for (std::int64_t t = 0; t < terms.positions(); ++t) terms.add(n, t, parts[t % lanes]);
  for (double TermSums::*sum :
       {&TermSums::norms, &TermSums::count, &TermSums::a_squares, &TermSums::b_squares}) {
    double pairs[sum_lanes];
    for (std::int64_t lane = 0; lane < sum_lanes; ++lane)
      pairs[lane] = parts[lane].*sum + parts[lane + sum_lanes].*sum;
    sums.*sum = sum_of(pairs);
  }
  return sums;
}

// True if all of x is finite: x - x is 0, or else NaN.
template <class T>
bool all_finite(const T* x, std::int64_t begin, std::int64_t end) {
  using A = acc_t<T>;
  bool finite = true;
  simd_dispatch([&] {
    constexpr A max = std::numeric_limits<A>::max();
    std::int64_t outside = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      const A v = A(x[i]);
      outside += ((v >= -max) & (v <= max)) ? 0 : 1;
    }
    finite = outside == 0;
  });
  return finite;
}

}  // namespace

void CpuBackend::clip_factors(const ClipRule& rule, double margin, View terms, View settings,
                              View y) {
  const ClipSample clip(rule, margin, terms, settings, y);
  for (std::int64_t n = 0; n < clip.samples; ++n) clip(n);
}

void CpuBackend::term_bounds(std::span<const BoundedTerms> parameters) {
  for (const BoundedTerms& parameter : parameters) {
    const TermOperands terms(parameter);
    const std::int64_t grain = elementwise_grain / (4 * terms.positions() + 1) + 1;
    parallel_for(parameter.error_bounds.size[0], grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t n = begin; n < end; ++n) terms.write(n, sums_of(terms, n));
    });
  }
}

void CpuBackend::mark_cancelled(const CancelledSquares& squares, View marks) {
  for (std::int64_t n = 0; n < marks.size[0]; ++n)
    marks.as<double>()[n * marks.stride[0]] += squares.cancelled(n) ? 1 : 0;
}

void CpuBackend::mark_nonfinite(std::span<const View> arrays, View y) {
  for (std::size_t k = 0; k < arrays.size(); ++k) {
    std::atomic<bool> finite = true;
    dispatch_float(arrays[k].dtype, [&]<class T>(std::type_identity<T>) {
      parallel_for(arrays[k].numel(), 4 * elementwise_grain,
                   [&](std::int64_t begin, std::int64_t end) {
                     if (!all_finite(arrays[k].as<T>(), begin, end)) finite = false;
                   });
    });
    y.as<double>()[k] = finite ? 0 : 1;
  }
}

void CpuBackend::zero_all(std::span<const View> arrays) {
  for (const View& array : arrays) {
    if (array.numel() > 0)
      std::memset(array.data, 0, static_cast<std::size_t>(array.numel()) * size_of(array.dtype));
  }
}

}  // namespace sotto
