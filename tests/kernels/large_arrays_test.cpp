// Arrays of more than 2^31 elements: on every GPU with enough memory; and on the CPU, by its
// kernels and by the GPU's, if the environment variable SOTTO_LARGE_ARRAYS is 1, which takes 9 GB
// and four minutes.
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "core/devices.h"
#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/fake_gpu/host_executor.h"
#include "tests/support/catch.h"

using namespace sotto;

namespace {

constexpr std::int64_t width = 1 << 11, rows = (std::int64_t{1} << 20) + 3, size = rows * width;
static_assert(size > std::int64_t{1} << 31);

// One number per row, exact in bf16.
Tensor marks(Device device) {
  const Tensor y = zeros({rows, 1}, Dtype::bf16);
  for (const std::int64_t row : {std::int64_t{0}, rows / 2, rows - 1})
    copy_into(full({}, static_cast<double>(row % 7 + 1)), y.slice(0, row, row + 1));
  return y.to(device);
}

double at(const Tensor& x, std::int64_t row, std::int64_t column) {
  return to_dtype(x.slice(0, row, row + 1).slice(1, column, column + 1), Dtype::f64).item();
}

void check_on(Device device) {
  const Tensor some = marks(device), x = Tensor::empty({rows, width}, Dtype::bf16, device);
  copy_into(some.expand({rows, width}), x);
  double total = 0;
  for (const std::int64_t row : {std::int64_t{0}, rows / 2, rows - 1}) {
    const auto mark = static_cast<double>(row % 7 + 1);
    total += mark * width;
    CHECK(at(x, row, 0) == mark);
    CHECK(at(x, row, width - 1) == mark);
  }
  CHECK(at(x, rows - 2, width - 1) == 0);
  CHECK(to_dtype(sum_f32(x, {0, 1}), Dtype::f64).item() == total);
  CHECK(at(sum_f32(x, {0}, true), 0, width - 1) == total / width);
  unary(unary_index<functors::Affine>, x, {.a = -1, .b = 0}, x);
  CHECK(at(x, rows - 1, width - 1) == -static_cast<double>((rows - 1) % 7 + 1));
  const Tensor y = mul(x, some);
  CHECK(at(y, rows - 1, width - 1) == -std::pow(static_cast<double>((rows - 1) % 7 + 1), 2));
  const Tensor last = Tensor::from(std::vector<std::int64_t>{rows - 1, -1, 0}, {3}).to(device);
  const Tensor picked = gather(x, last, 0);
  CHECK(at(picked, 0, width - 1) == at(x, rows - 1, width - 1));
  CHECK(at(picked, 1, 0) == 0);
  scatter_add_into(picked, last, 0, x);
  CHECK(at(x, rows - 1, 5) == -2 * static_cast<double>((rows - 1) % 7 + 1));
}

}  // namespace

TEST_CASE("arrays of more than 2^31 elements are computed to their ends") {
  constexpr std::int64_t needed = std::int64_t{16} << 30;
  for (const DeviceInfo& info : devices()) {
    if (info.device != cpu && info.memory >= needed) check_on(info.device);
  }
  const char* const asked = std::getenv("SOTTO_LARGE_ARRAYS");
  if (!asked || std::string_view(asked) != "1") return;
  check_on(cpu);
  const DeviceCodeOnHost device_code;
  check_on(cpu);
}
