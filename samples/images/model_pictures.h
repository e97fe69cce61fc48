// Pictures as a published model wants them.
#pragma once

#include <cstdint>
#include <string>

#include "autograd/var.h"
#include "nn/models/image_input.h"

namespace sotto::images {

// Resizes pictures [n, c, h, w] in [0, 1] to a square, by smooth bicubic interpolation
// (nn/models/bicubic.h), and normalises their channels.
class ModelPictures {
 public:
  // `size`: the square's side; 0: the model's own.
  ModelPictures(const nn::ImageInput& input, std::int64_t size);
  Var operator()(const Var& pictures) const;
  std::int64_t size() const { return size_; }
  std::int64_t channels() const { return mean_.size(0); }
  std::string to_text() const;  // the size, and the numbers of the normalisation

 private:
  Tensor mean_, deviation_;  // [c, 1, 1]
  std::int64_t size_;
};

}  // namespace sotto::images
