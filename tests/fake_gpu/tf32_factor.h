// The factors of products as TF32 rounds them.
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

#include "kernels/cuda/cudnn/cudnn_dispatch.h"

namespace sotto {

// x rounded to 11 bits, halves to even.
inline float rounded_to_tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  constexpr std::uint32_t dropped = 13, last = 1u << dropped;
  return std::bit_cast<float>((bits + last / 2 - 1 + (bits >> dropped & 1)) & ~(last - 1));
}

// A factor of a TF32 product: a rounded row-major copy if it is f32, else the view itself.
class Tf32Factor {
 public:
  Tf32Factor(Backend& engine, const View& x, bool tf32) : view_(x) {
    if (!tf32 || x.dtype != Dtype::f32) return;
    values_.resize(static_cast<std::size_t>(x.numel()));
    view_ = in_order(x, false);
    view_.data = values_.data();
    engine.copy(x, view_);
    for (float& value : values_) value = rounded_to_tf32(value);
  }
  const View& view() const { return view_; }

 private:
  std::vector<float> values_;
  View view_;
};

}  // namespace sotto
