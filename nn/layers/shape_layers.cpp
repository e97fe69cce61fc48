#include "nn/layers/shape_layers.h"

namespace sotto::nn {

Pad::Pad(const Shape& sizes, PadMode mode) : sizes_(sizes), mode_(mode) {
  check(sizes.rank() % 2 == 0, "Pad: sizes {} are not pairs", sizes);
}

Var Pad::forward(const Var& x) {
  Var y = x;
  for (int i = 0; i + 1 < sizes_.rank(); i += 2)
    y = pad(y, -1 - i / 2, sizes_[i], sizes_[i + 1], mode_);
  return y;
}

}  // namespace sotto::nn
