// Options of a tape: the privacy of its data, its precision, and the key of its randomness.
#pragma once

#include <cstdint>
#include <vector>

#include "core/dtype.h"

namespace sotto {

struct TapeOptions {
  // Refuses ops that mix samples, and delivers gradients only to sinks that bound each sample's
  // influence.
  bool private_data = false;
  // Training mode: without it, dropout returns its input unchanged.
  bool training = true;
  // f16 or bf16: operations compute in this type where possible (precision.h). f32: operations
  // compute in the type of their inputs. f64: everything is computed in f64, whatever type inputs,
  // constants and parameters have; not with private_data.
  Dtype precision = Dtype::f32;
  // The key of public randomness, such as dropout: equal seed, step and row number give equal
  // draws, whatever the division into physical batches. `rows` holds the row numbers; if it is
  // empty, they are first_row, first_row + 1, ... On private data the number of a row must not
  // depend on the other rows of the batch.
  std::uint64_t seed = 0;
  std::uint64_t step = 0;               // number of the step
  std::int64_t first_row = 0;           // number of row 0
  std::vector<std::int64_t> rows = {};  // or one number for each row

  // Returns the row number of the sample-th row of the batch. Throws std::invalid_argument if
  // `rows` is too short.
  std::uint64_t sample_id(std::int64_t sample) const;
};

}  // namespace sotto
