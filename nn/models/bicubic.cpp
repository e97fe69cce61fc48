#include "nn/models/bicubic.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "autograd/ops.h"

namespace sotto::nn {

namespace {

// The kernel at distance x.
double keys(double x, double a) {
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

// The weights of `in` pixels for a new one at `centre`, each pixel being `step` old ones wide.
std::vector<double> smooth_row(std::int64_t in, double centre, double step) {
  constexpr double a = -0.5;
  const double width = std::max(1.0, step);  // of the kernel
  std::vector<double> row;
  for (std::int64_t i = 0; i < in; ++i)
    row.push_back(keys((static_cast<double>(i) - centre) / width, a));
  const double sum = std::accumulate(row.begin(), row.end(), 0.0);
  for (double& weight : row) weight /= sum;
  return row;
}

std::vector<double> plain_row(std::int64_t in, double centre) {
  constexpr double a = -0.75;
  std::vector<double> row(static_cast<std::size_t>(in));
  const auto left = static_cast<std::int64_t>(std::floor(centre));
  for (std::int64_t i = left - 1; i <= left + 2; ++i) {
    const std::int64_t inside = std::clamp<std::int64_t>(i, 0, in - 1);
    row[static_cast<std::size_t>(inside)] += keys(static_cast<double>(i) - centre, a);
  }
  return row;
}

}  // namespace

Tensor bicubic_weights(std::int64_t in, std::int64_t out, Bicubic kind) {
  const double step = static_cast<double>(in) / static_cast<double>(out);
  std::vector<float> weights;
  for (std::int64_t o = 0; o < out; ++o) {
    const double centre = (static_cast<double>(o) + 0.5) * step - 0.5;
    const std::vector<double> row =
        kind == Bicubic::smooth ? smooth_row(in, centre, step) : plain_row(in, centre);
    weights.insert(weights.end(), row.begin(), row.end());
  }
  return Tensor::from(weights, {out, in});
}

Tensor bicubic_table(const Tensor& table, std::int64_t first, const Shape& from, const Shape& to,
                     Bicubic kind) {
  Tape tape({.training = false});
  const auto weights = [&](int axis) {
    return tape.constant(bicubic_weights(from[axis], to[axis], kind));
  };
  const std::int64_t features = table.size(2);
  const Var all = tape.constant(table), grid = slice(all, 1, first, table.size(1));
  const Var wide = matmul(weights(1), reshape(grid, {from[0], from[1], features}));
  const Var resized = matmul(weights(0), reshape(wide, {from[0], to[1] * features}));
  return concat({slice(all, 1, 0, first), reshape(resized, {1, to.numel(), features})}, 1).value();
}

}  // namespace sotto::nn
