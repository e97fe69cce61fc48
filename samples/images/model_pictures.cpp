#include "samples/images/model_pictures.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/ranges.h>

#include "autograd/ops.h"

namespace sotto::images {

namespace {

Tensor of_channels(const std::vector<double>& values) {
  const std::vector<float> narrow(values.begin(), values.end());
  return Tensor::from(narrow, {std::ssize(narrow), 1, 1});
}

// The kernel at distance x.
double keys(double x) {
  constexpr double a = -0.5;
  x = std::abs(x);
  if (x < 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

}  // namespace

Tensor bicubic_weights(std::int64_t in, std::int64_t out) {
  const double step = static_cast<double>(in) / static_cast<double>(out);
  const double width = std::max(1.0, step);  // of the kernel
  std::vector<float> weights;
  for (std::int64_t o = 0; o < out; ++o) {
    const double centre = (static_cast<double>(o) + 0.5) * step - 0.5;
    std::vector<double> row;
    for (std::int64_t i = 0; i < in; ++i)
      row.push_back(keys((static_cast<double>(i) - centre) / width));
    const double sum = std::accumulate(row.begin(), row.end(), 0.0);
    for (const double weight : row) weights.push_back(static_cast<float>(weight / sum));
  }
  return Tensor::from(weights, {out, in});
}

ModelPictures::ModelPictures(const nn::ImageInput& input, std::int64_t size)
    : mean_(of_channels(input.mean)),
      deviation_(of_channels(input.deviation)),
      size_(size == 0 ? input.size : size) {}

Var ModelPictures::operator()(const Var& pictures) const {
  Tape& tape = pictures.tape();
  const Device device = pictures.value().device();
  const Shape& shape = pictures.value().shape();
  const auto weights = [&](std::int64_t in) {
    return tape.constant(bicubic_weights(in, size_).to(device));
  };
  Var square = pictures;
  if (shape[2] != size_) square = matmul(weights(shape[2]), square);
  if (shape[3] != size_) square = matmul(square, transpose(weights(shape[3]), 0, 1));
  return (square - tape.constant(mean_.to(device))) / tape.constant(deviation_.to(device));
}

std::string ModelPictures::to_text() const {
  return fmt::format("of {} pixels less {} over {}", size_,
                     fmt::join(mean_.to_vector<float>(), " "),
                     fmt::join(deviation_.to_vector<float>(), " "));
}

}  // namespace sotto::images
