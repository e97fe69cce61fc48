// The values of rows of tokens in front of a block of an encoder, which its frozen part computes.
#pragma once

#include <cstddef>

#include "nn/data/dataset.h"
#include "nn/models/text_encoder.h"

namespace sotto::text {

class TokenValues {
 public:
  TokenValues(nn::TextEncoder& encoder, std::int64_t block) : encoder_(encoder), block_(block) {}
  // Rows of classifier_rows() -> f16 [n, context, features], on the CPU. A row's values depend on
  // no other row: rows of one cut_length() are computed together, and zeros fill up the context.
  Tensor operator()(const Dataset& rows) const;
  // The bytes of the result.
  std::size_t bytes(const Dataset& rows) const;

 private:
  Tensor of_length(const Dataset& rows) const;

  nn::TextEncoder& encoder_;
  std::int64_t block_;
};

}  // namespace sotto::text
