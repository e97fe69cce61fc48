#include "nn/data/images/scaled_bytes.h"

#include "core/threads/parallel.h"

namespace sotto {

Tensor scaled_bytes(const Tensor& x) {
  constexpr std::int64_t grain = std::int64_t{1} << 20;
  Tensor y = Tensor::empty(x.shape());
  const std::uint8_t* const from = x.data<std::uint8_t>();
  float* const to = y.data<float>();
  parallel_for(x.numel(), grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) to[k] = static_cast<float>(from[k]) / 255.0f;
  });
  return y;
}

}  // namespace sotto
