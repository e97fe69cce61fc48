#include "nn/models/bicubic.h"

#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"

using namespace sotto;
using nn::Bicubic;

namespace {

constexpr Bicubic kinds[] = {Bicubic::plain, Bicubic::smooth};

void check_close(const Tensor& x, const std::vector<double>& wanted) {
  const std::vector<float> values = x.to_vector<float>();
  REQUIRE(values.size() == wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    CHECK(values[i] == Approx(wanted[i]).margin(1e-5));
}

}  // namespace

TEST_CASE(
    "a table of 3 x 4 positions for 5 x 2 has PyTorch's values behind the rows without a place") {
  // torch.nn.functional.interpolate(mode="bicubic", align_corners=False), without antialias and
  // with it.
  const std::vector<double> values[] = {
      {6.14375, 2.54825, 4.494, 3.194, 2.71875, 3.78125, 3.66038, 3.00163, 4.808, 2.24},
      {4.56269, 4.48082, 4.04225, 4.1651, 3.43388, 3.45868, 4.44662, 2.1203, 5.1893, 1.31218}};
  const Tensor table =
      Tensor::from(std::vector<float>{-7, 0, 10, 1, 6, 3, 3, 6, 1, 10, 0, 4, 0}, {1, 13, 1});
  for (const Bicubic kind : kinds) {
    std::vector<double> wanted{-7};
    const std::vector<double>& grid = values[kind == Bicubic::smooth];
    wanted.insert(wanted.end(), grid.begin(), grid.end());
    check_close(bicubic_table(table, 1, {3, 4}, {5, 2}, kind), wanted);
  }
}

TEST_CASE("features of a table are interpolated apart") {
  const Tensor table = Tensor::from(std::vector<float>{1, -1, 2, -2, 5, -5, 3, -3}, {1, 4, 2});
  const Tensor y = bicubic_table(table, 0, {2, 2}, {3, 3}, Bicubic::plain);
  CHECK(y.shape() == Shape{1, 9, 2});
  for (std::int64_t t = 0; t < 9; ++t) CHECK(y.at({0, t, 0}) == -y.at({0, t, 1}));
}

TEST_CASE("bicubic weights sum to 1, and take each pixel as it is where the number stays") {
  for (const Bicubic kind : kinds) {
    for (const auto& [in, out] : {std::pair{1, 4}, {7, 3}, {5, 12}}) {
      const Tensor sums = sum_to(nn::bicubic_weights(in, out, kind), {out, 1});
      for (const float sum : sums.to_vector<float>()) CHECK(sum == Approx(1));
    }
    check_close(nn::bicubic_weights(2, 2, kind), {1, 0, 0, 1});
  }
}
