#include "autograd/per_sample/rounded_products.h"

#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>

#include "autograd/per_sample/padded_outer.h"
#include "core/cuda/capture.h"
#include "core/devices.h"
#include "kernels/backend.h"
#include "kernels/functors/functors.h"
#include "kernels/host_device/gemm_blocking.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::detail {

namespace {

// Factors of more than one tile of the kernel and of two terms for each sample, the second of which
// is not to be read.
struct Problem {
  static constexpr double spacing = 0x1p-20, weights[] = {0.7, 0, -1.3};
  Tensor b, a;

  Problem(Device device, Dtype dtype)
      : b(factor(136, dtype).to(device)), a(factor(24, dtype).to(device)) {
    backend(device).fill(NAN, a.select(0, 1).view());
  }
  static Tensor factor(std::int64_t columns, Dtype dtype) {
    const Shape shape{3, product_chain + 20, columns};
    std::vector<double> values(static_cast<std::size_t>(shape.numel()));
    for (std::size_t k = 0; k < values.size(); ++k)
      values[k] = std::sin(static_cast<double>(k * k % 9973));  // looks random
    return to_dtype(Tensor::from(values, shape), dtype);
  }
  // sum_n w[n] b[n] (x) a[n] in f64, or that of absolute values.
  Tensor sum(bool absolute) const {
    const auto of = [&](const Tensor& x, std::int64_t n) {
      const Tensor y = to_dtype(x.select(0, n), Dtype::f64);
      return absolute ? unary(unary_index<functors::Abs>, y) : y;
    };
    const Tensor total = zeros({b.size(2), a.size(2)}, Dtype::f64, b.device());
    for (const std::int64_t n : {0, 2})
      axpby(absolute ? std::abs(weights[n]) : weights[n], outer_sum(of(b, n), of(a, n)), 1, total);
    return total;
  }
};

// How many elements are further from those of products in f64 than the charged errors of their
// terms allow; nullopt where the device has no kernel. The device counts them, so that one that
// does no work finds none.
std::optional<double> elements_off(Device device, Dtype dtype) {
  constexpr double u = 0x1p-24, terms = 4;
  const Problem problem(device, dtype);
  const Tensor y = zeros({problem.b.size(2), problem.a.size(2)}, Dtype::f64, device);
  const Tensor weights =
      Tensor::from(std::vector(std::begin(Problem::weights), std::end(Problem::weights)), {3})
          .to(device);
  if (!backend(device).add_rounded_products(problem.b.view(), problem.a.view(), weights.view(),
                                            Problem::spacing, y.view()))
    return std::nullopt;
  const Tensor one = full({}, 1, Dtype::f64, device),
               rounding = scale(problem.sum(true), u * static_cast<double>(problem.b.size(1) + 2)),
               allowed = add(rounding, scale(one, terms * Problem::spacing)),
               error = unary(unary_index<functors::Abs>, sub(y, problem.sum(false))),
               within = binary(binary_index<functors::Greater>, allowed, error);  // no NaN
  return sum(sub(one, within), {0, 1}).to_vector<double>()[0];
}

// True if a GPU's kernel for factors of this type may be used, which its first use decides.
bool passed_check(Device device, Dtype dtype) {
  static std::mutex mutex;
  static std::map<std::pair<int, Dtype>, bool> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find({device.index, dtype});
  if (found != known.end()) return found->second;
  if (Capture::any()) return false;  // the host cannot read
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
  const bool few = f.b.size(1) * uses <= max_terms * product_chain;
  if (!few || f.b.dtype() != f.a.dtype()) return false;
  if (device != cpu && !passed_check(device, f.b.dtype())) return false;
  const Tensor b = own_columns(f, sum.total.shape()),
               w = contiguous(to_dtype(weights, Dtype::f64).to(device)),
               total = reshape(sum.total, {b.size(2), f.a.size(2)});
  return backend(device).add_rounded_products(b.view(), f.a.view(), w.view(), sum.spacing,
                                              total.view());
}

}  // namespace sotto::detail
