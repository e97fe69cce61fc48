#include "samples/images/model_pictures.h"

#include <fmt/ranges.h>

#include "autograd/ops.h"
#include "nn/models/bicubic.h"

namespace sotto::images {

namespace {

Tensor of_channels(const std::vector<double>& values) {
  const std::vector<float> narrow(values.begin(), values.end());
  return Tensor::from(narrow, {std::ssize(narrow), 1, 1});
}

}  // namespace

ModelPictures::ModelPictures(const nn::ImageInput& input, std::int64_t size)
    : mean_(of_channels(input.mean)),
      deviation_(of_channels(input.deviation)),
      size_(size == 0 ? input.size : size) {}

Var ModelPictures::operator()(const Var& pictures) const {
  Tape& tape = pictures.tape();
  const Device device = pictures.value().device();
  const Shape& shape = pictures.value().shape();
  const auto weights = [&](std::int64_t in) {
    return tape.constant(nn::bicubic_weights(in, size_, nn::Bicubic::smooth).to(device));
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
