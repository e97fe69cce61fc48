#include "nn/models/normed_conv.h"

#include <algorithm>

#include "nn/layers/conv_pool_layers.h"
#include "nn/layers/norm_layers.h"
#include "nn/models/frozen_norm.h"

namespace sotto::nn {

std::int64_t norm_groups(std::int64_t channels, std::int64_t most) {
  check(channels >= 1 && most >= 1, "norm_groups: {} of {} channels", most, channels);
  std::int64_t groups = std::min(channels, most);
  while (channels % groups != 0) --groups;
  return groups;
}

NormedConv::NormedConv(std::int64_t in, std::int64_t out, std::int64_t kernel,
                       const ConvOptions& options, const ConvNorm& norm)
    : conv(std::make_unique<Conv2d>(in, out, kernel, options, false)) {
  if (norm.group)
    this->norm = std::make_unique<GroupNorm>(norm_groups(out, norm.groups), out,
                                             NormOptions{.eps = norm.eps});
  else
    this->norm = std::make_unique<FrozenBatchNorm>(out, norm.eps);
}

}  // namespace sotto::nn
