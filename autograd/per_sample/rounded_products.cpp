#include "autograd/per_sample/rounded_products.h"

#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>

#include "autograd/per_sample/padded_outer.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "core/cuda/capture.h"
#include "core/devices.h"
#include "kernels/backend.h"
#include "kernels/functors/functors.h"
#include "kernels/host_device/gemm_blocking.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::detail {

namespace {

// A sum of products. Every third of several samples has weight 0 and holds NaN, which is not to be
// read.
struct Problem {
  static constexpr double spacing = 0x1p-20;
  Tensor b, a;
  std::vector<double> weights;

  // Factors of random signs, or of one sign: then roundings that cut off add up.
  Problem(const Shape& b_shape, std::int64_t inputs, bool one_sign, Device device, Dtype dtype)
      : b(factor(b_shape, one_sign, dtype).to(device)),
        a(factor({b_shape[0], b_shape[1], inputs}, one_sign, dtype).to(device)) {
    for (std::int64_t n = 0; n < b_shape[0]; ++n) {
      weights.push_back(n % 3 == 0 ? 0.7 : n % 3 == 1 ? 0 : -1.3);
      if (weights.back() == 0) backend(device).fill(NAN, a.select(0, n).view());
    }
  }
  static Tensor factor(const Shape& shape, bool one_sign, Dtype dtype) {
    std::vector<double> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t k = 0; k < values.size(); ++k) {
      const double value = std::sin(static_cast<double>(k * k % 9973));  // looks random
      values[k] = one_sign ? std::abs(value) : value;
    }
    return to_dtype(Tensor::from(values, shape), dtype);
  }
  // sum_n w[n] b[n] (x) a[n] in f64, or that of absolute values.
  Tensor sum(bool absolute) const {
    const auto of = [&](const Tensor& x, std::int64_t n) {
      const Tensor y = to_dtype(x.select(0, n), Dtype::f64);
      return absolute ? unary(unary_index<functors::Abs>, y) : y;
    };
    const Tensor total = zeros({b.size(2), a.size(2)}, Dtype::f64, b.device());
    for (std::int64_t n = 0; n < b.size(0); ++n) {
      const double w = weights[static_cast<std::size_t>(n)];
      if (w != 0) axpby(absolute ? std::abs(w) : w, outer_sum(of(b, n), of(a, n)), 1, total);
    }
    return total;
  }
};

// How many elements are further from those of products in f64 than the charged errors of their
// terms allow; nullopt where the device has no kernel. The device counts them, so that one that
// does no work finds none.
std::optional<double> elements_off(const Problem& problem) {
  constexpr double u = 0x1p-24;
  const Device device = problem.b.device();
  const std::int64_t samples = problem.b.size(0), positions = problem.b.size(1);
  const Tensor before = full({problem.b.size(2), problem.a.size(2)}, 1, Dtype::f64, device),
               y = clone(before), weights = Tensor::from(problem.weights, {samples}).to(device);
  if (!backend(device).add_rounded_products(problem.b.view(), problem.a.view(), weights.view(),
                                            Problem::spacing, y.view()))
    return std::nullopt;
  const double terms = static_cast<double>(2 * samples);
  const Tensor rounding = scale(problem.sum(true), u * static_cast<double>(positions + 2)),
               allowed = add(rounding, scale(before, terms * Problem::spacing)),
               error = unary(unary_index<functors::Abs>, sub(sub(y, before), problem.sum(false))),
               within = binary(binary_index<functors::Greater>, allowed, error);  // no NaN
  return sum(sub(before, within), {0, 1}).to_vector<double>()[0];
}

// That of two problems: many samples of odd widths, which a block of the kernel takes one after the
// other, and one sample of several terms, tiles and cut-off sums.
std::optional<double> elements_off(Device device, Dtype dtype) {
  const std::optional<double> several = elements_off({{24, 40, 131}, 21, false, device, dtype});
  if (several.value_or(1) != 0) return several;
  return elements_off({{1, product_chain + 20, 136}, 152, true, device, dtype});
}

// True if a GPU's kernel for factors of this type may be used, which its first use decides.
bool passed_check(Device device, Dtype dtype) {
  static std::mutex mutex;
  static std::map<std::pair<int, Dtype>, bool> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find({device.index, dtype});
  if (found != known.end()) return found->second;
  if (Capture::here()) return false;  // this thread cannot read
  const std::optional<double> off = elements_off(device, dtype);
  if (off.value_or(0) != 0)
    fmt::print(stderr,
               "sotto: {}: {} elements of a sum of products of {} are wrong; such sums are "
               "computed by way of the gradients\n",
               name(device), *off, name(dtype));
  return known[{device.index, dtype}] = off == 0;
}

}  // namespace

bool add_rounded_products(const Outer& f, const RoundedSum& sum, const Tensor& weights,
                          std::int64_t uses) {
  // A term may be off by half a spacing, and 128 spacings are charged for each unit
  // (docs/appendix/proofs-rounding.md).
  constexpr std::int64_t max_terms = 256;
  const Device device = f.b.device();
  const bool few = (f.b.size(1) + product_chain - 1) / product_chain * uses <= max_terms;
  if (!few || f.b.dtype() != f.a.dtype()) return false;
  if (device != cpu && !passed_check(device, f.b.dtype())) return false;
  const Tensor b = own_columns(f, sum.total.shape()),
               w = contiguous(to_dtype(weights, Dtype::f64).to(device)),
               total = reshape(sum.total, {b.size(2), f.a.size(2)});
  return backend(device).add_rounded_products(b.view(), f.a.view(), w.view(), sum.spacing,
                                              total.view());
}

}  // namespace sotto::detail
