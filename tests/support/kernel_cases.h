// Shared helpers of the tests of primitives: random tensors in any memory order, their values as
// doubles, and comparison within a type's accuracy.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <vector>

#include "core/devices.h"
#include "core/tensor.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/fake_gpu/host_executor.h"
#include "tests/fake_gpu/staging_backend.h"
#include "tests/support/catch.h"

namespace sotto {

using Random = std::mt19937_64;

inline constexpr Dtype float_dtypes[] = {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16};

inline std::int64_t between(Random& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
}

// The axes of a tensor in random memory order.
inline Shape random_order(Random& random, int rank) {
  Shape order;
  for (int i = 0; i < rank; ++i) order.push_back(i);
  std::shuffle(&order[0], &order[0] + rank, random);
  return order;
}

inline void set_value(const Tensor& x, std::int64_t offset, double value) {
  dispatch(x.dtype(), [&]<class T>(std::type_identity<T>) {
    x.view().as<T>()[offset] = static_cast<T>(static_cast<acc_t<T>>(value));
  });
}

inline Tensor fill(const Tensor& x, const std::function<double()>& value) {
  for_each_offset(x.shape(), x.strides(), [&](std::int64_t at) { set_value(x, at, value()); });
  return x;
}

// Values uniform in [-1, 1], with the axes stored in the given order.
inline Tensor random_tensor(Random& random, const Shape& shape, const Shape& order, Dtype dtype) {
  std::uniform_real_distribution<double> uniform(-1, 1);
  return fill(Tensor::empty_ordered(shape, order, dtype, cpu), [&] { return uniform(random); });
}
inline Tensor random_tensor(Random& random, const Shape& shape, Dtype dtype) {
  return random_tensor(random, shape, random_order(random, shape.rank()), dtype);
}

// An output before it is written: all NaN, so that unwritten elements are noticed.
inline Tensor unwritten(const Shape& shape, const Shape& order, Dtype dtype) {
  return fill(Tensor::empty_ordered(shape, order, dtype, cpu), [] { return std::nan(""); });
}
inline Tensor unwritten(const Shape& shape, Dtype dtype) {
  return fill(Tensor::empty(shape, dtype), [] { return std::nan(""); });
}

// The values in row-major order.
inline std::vector<double> values(const Tensor& x) {
  std::vector<double> y;
  dispatch(x.dtype(), [&]<class T>(std::type_identity<T>) {
    for (const T v : x.to_vector<T>()) y.push_back(static_cast<double>(static_cast<acc_t<T>>(v)));
  });
  return y;
}

// The tolerance relative to the largest value: the rounding of the stored result, and that of sums
// in the accumulation type.
inline double tolerance(Dtype dtype) {
  constexpr double sums = 32;
  switch (dtype) {
    case Dtype::f64: return sums * 0x1p-52;
    case Dtype::f32: return sums * 0x1p-23;
    case Dtype::f16: return 0x1p-10;
    default: return 0x1p-7;
  }
}

inline void check_close(const Tensor& y, const std::vector<double>& expected) {
  const std::vector<double> got = values(y);
  REQUIRE(got.size() == expected.size());
  double largest = 1, difference = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    largest = std::max(largest, std::abs(expected[i]));
    const double here = std::abs(got[i] - expected[i]);
    if (!(here <= difference) && !std::isnan(difference)) difference = here;  // NaN stays NaN
  }
  CHECK(difference <= tolerance(y.dtype()) * largest);
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = values(a), y = values(b);
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](double p, double q) {
    return std::bit_cast<std::uint64_t>(p) == std::bit_cast<std::uint64_t>(q);
  });
}

// Calls f() with the GPU's kernels in place of the CPU's: run on the host, and on every GPU.
template <class F>
void for_each_device_code(F&& f) {
  {
    const DeviceCodeOnHost device_code;
    f();
  }
  Backend& engine = backend(cpu);
  for (const DeviceInfo& info : devices()) {
    if (info.device == cpu) continue;
    StagedBackend staged(info.device);
    set_cpu_backend(staged);
    f();
    set_cpu_backend(engine);
  }
}

// Calls f(backend) for every engine of the CPU, and for the GPU's kernels.
template <class F>
void for_each_engine(F&& f) {
  for (const CpuEngine engine : {CpuEngine::portable, CpuEngine::onednn}) {
    if (!has_cpu_engine(engine)) continue;
    set_cpu_engine(engine);
    INFO(backend(cpu).name());
    f(backend(cpu));
  }
  for_each_device_code([&] {
    INFO(backend(cpu).name());
    f(backend(cpu));
  });
}

// Runs call(backend, y) by the CPU and, twice, by the device's code, and compares the outputs.
template <class Call>
void check_on_devices(const Tensor& y, Call&& call) {
  const Tensor expected = clone(y);
  call(backend(cpu), expected.view());
  for_each_device_code([&] {
    INFO(backend(cpu).name());
    const Tensor got = clone(y), again = clone(y);
    call(backend(cpu), got.view());
    check_close(got, values(expected));
    call(backend(cpu), again.view());
    CHECK(same_bits(got, again));
  });
}

}  // namespace sotto
