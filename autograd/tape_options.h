// What a tape is told when it is made.
#pragma once

#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace sotto {

struct TapeOptions {
  // Refuses ops that mix samples, and delivers gradients only to sinks that bound each sample's
  // influence.
  bool private_data = false;
  // Dropout and the like are active.
  bool training = true;
  // f16 or bf16: operations compute in it where possible (precision.h). f32: in the type of their
  // inputs.
  Dtype precision = Dtype::f32;
  // The key of the public randomness: equal seed, step and row give equal draws, whatever the
  // division into physical batches. On private data the number of a row must not depend on the
  // other rows of the batch: `rows` holds the numbers. If empty, they are first_row, first_row + 1,
  // ...
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::int64_t first_row = 0;
  std::vector<std::int64_t> rows = {};

  // The row of a sample. Throws std::invalid_argument for one beyond `rows`.
  std::uint64_t sample_id(std::int64_t sample) const;
};

}  // namespace sotto
