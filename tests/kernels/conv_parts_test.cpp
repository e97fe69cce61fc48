// Weight gradients of images of many positions, which are summed in parts: right, and rounded as
// chains of conv_chain positions.
#include <algorithm>

#include "kernels/backend.h"
#include "kernels/cpu/conv/conv_images.h"
#include "kernels/functors/functors.h"
#include "kernels/host_device/gemm_blocking.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

struct Case {
  Shape size;  // d h w
  std::int64_t channels, outputs;
  Window window;
};

Window window(const Shape& kernel, std::int64_t padding, std::int64_t stride, std::int64_t dilation,
              std::int64_t groups = 1) {
  Window y;
  y.groups = groups;
  for (int axis = 0; axis < 3; ++axis) {
    y.kernel[axis] = kernel[axis];
    if (kernel[axis] == 1) continue;
    y.before[axis] = y.after[axis] = padding;
    y.stride[axis] = stride;
    y.dilation[axis] = dilation;
  }
  return y;
}

std::vector<Case> cases() {
  return {{{1, 40, 70}, 1, 2, window({1, 3, 3}, 1, 1, 1)},
          {{1, 150, 150}, 1, 2, window({1, 5, 5}, 2, 1, 2)},
          {{1, 130, 90}, 2, 3, window({1, 3, 3}, 1, 2, 1)},
          {{1, 66, 65}, 16, 16, window({1, 3, 3}, 1, 1, 1)},
          {{1, 45, 52}, 4, 4, window({1, 3, 3}, 1, 1, 1, 2)},
          {{1, 45, 52}, 4, 4, window({1, 3, 3}, 1, 1, 1, 4)},
          {{1, 1, 5000}, 2, 2, window({1, 1, 3}, 1, 1, 1)},
          {{1, 1, 5000}, 2, 2, window({1, 1, 3}, 1, 1, 1, 2)},
          {{1, 2500, 2}, 2, 2, window({1, 3, 3}, 1, 1, 1, 2)},
          {{13, 12, 14}, 2, 2, window({3, 3, 3}, 1, 1, 1)},
          {{1, 34, 36}, 1, 1, window({1, 40, 40}, 39, 1, 1)}};
}

struct Operands {
  Tensor dy, x;
  Shape weight;
};

Operands operands(const Case& c, double value, Random* random) {
  Shape in{2, c.channels}, out{2, c.outputs}, weight{c.outputs, c.channels / c.window.groups};
  for (int axis = 0; axis < 3; ++axis) {
    in.push_back(c.size[axis]);
    out.push_back(c.window.output_size(axis, c.size[axis]));
    weight.push_back(c.window.kernel[axis]);
  }
  const auto factor = [&](const Shape& shape) {
    return channels_last(random ? random_tensor(*random, shape, Dtype::f32) : full(shape, value));
  };
  return {factor(out), factor(in), weight};
}

// Checks |got - exact| <= bound for each element, where `exact` and `bound` are in f64.
void check_within(const Tensor& got, const Tensor& exact, const Tensor& bound) {
  const std::vector<double> x = values(got), y = values(exact), most = values(bound);
  REQUIRE(x.size() == y.size());
  double worst = 0;
  for (std::size_t k = 0; k < x.size(); ++k)
    worst = std::max(worst, std::abs(x[k] - y[k]) / (most[k] + 1e-300));
  CHECK(worst <= 1);
}

Tensor magnitude(const Tensor& x) {
  return to_dtype(unary(unary_index<functors::Abs>, x), Dtype::f64);
}

void check_case(const Case& c, const Operands& f) {
  const auto& [dy, x, weight] = f;
  const Tensor wide_dy = to_dtype(dy, Dtype::f64), wide_x = to_dtype(x, Dtype::f64);
  Tensor norms;
  const Tensor exact = conv_weight_rows(wide_dy, wide_x, c.window, weight),
               all = conv_weight_rows(magnitude(dy), magnitude(x), c.window, weight),
               rows = conv_weight_rows(dy, x, c.window, weight, &norms);
  const double k = roundings(static_cast<double>(dy.numel() / dy.size(0) / dy.size(1)),
                             static_cast<double>(conv_chain));
  check_within(rows, exact, scale(all, k * 0x1p-24));
  const Tensor of_rows = sum(mul(to_dtype(rows, Dtype::f64), to_dtype(rows, Dtype::f64)),
                             {1, 2, 3, 4, 5}),
               direct = conv_weight_norms(dy, x, c.window);
  check_within(norms.select(1, 0), of_rows, scale(of_rows, 0x1p-20));
  check_within(direct.select(1, 0), of_rows, scale(of_rows, 4 * k * 0x1p-24));
  const Tensor sum_exact = sum(exact, {0}), sum_all = scale(sum(all, {0}), (2 * k + 2) * 0x1p-24);
  check_within(conv_weight(dy, x, c.window, weight), sum_exact, sum_all);
  const Tensor total = zeros(weight, Dtype::f64);
  const std::vector<std::int64_t> ends{1, 2};
  if (backend(cpu).conv_weight_rounded(dy.view(), x.view(), c.window, ends, 0, total.view()))
    check_within(total, sum_exact, sum_all);
}

}  // namespace

TEST_CASE("weight gradients of long images are rounded as sums of short chains") {
  Random random(3);
  for (const Case& c : cases()) {
    CAPTURE(c.size, c.channels, c.outputs);
    check_case(c, operands(c, 0.1F, nullptr));
    check_case(c, operands(c, 0, &random));
  }
}

TEST_CASE("sums over ranges of any number of images are those of each range alone", "[gate]") {
  Random random(4);
  constexpr double spacing = 0x1p-12;
  std::vector<Range> ranges;
  for (const std::int64_t count : {1, 2, 3, 4, 5, 6, 7, 8, 9, 33}) {
    const std::int64_t first = ranges.empty() ? 0 : ranges.back().last;
    ranges.push_back({first, first + count});
  }
  const Window w = window({1, 3, 3}, 1, 1, 1);
  for (const auto& [channels, side] : {std::pair{8L, 16L}, {64L, 16L}, {128L, 16L}, {128L, 20L}}) {
    const Shape shape{ranges.back().last, channels, 1, side, side},
        weight{channels, channels, 1, 3, 3};
    const Tensor x = channels_last(random_tensor(random, shape, Dtype::f32)),
                 dy = channels_last(random_tensor(random, shape, Dtype::f32)),
                 exact = conv_weight(to_dtype(dy, Dtype::f64), to_dtype(x, Dtype::f64), w, weight);
    for_each_engine([&](Backend& engine) {
      const Tensor total = zeros(weight, Dtype::f64), alone = zeros(weight, Dtype::f64);
      std::vector<std::int64_t> ends;
      for (const Range& range : ranges) ends.push_back(range.last);
      if (!engine.conv_weight_rounded(dy.view(), x.view(), w, ends, spacing, total.view())) return;
      for (const Range& range : ranges) {
        const std::vector<std::int64_t> end{range.count()};
        engine.conv_weight_rounded(dy.slice(0, range.first, range.last).view(),
                                   x.slice(0, range.first, range.last).view(), w, end, spacing,
                                   alone.view());
      }
      CHECK(same_bits(total, alone));
      const double rounded = static_cast<double>(ranges.size()) * spacing / 2;
      check_within(
          total, exact,
          full(weight, rounded + 0x1p-12 * std::sqrt(static_cast<double>(dy.numel())), Dtype::f64));
      CHECK(same_bits(scale(total, 1 / spacing),
                      to_dtype(to_dtype(scale(total, 1 / spacing), Dtype::i64), Dtype::f64)));
    });
  }
}
