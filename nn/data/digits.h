// An endless set of digits that look hand-drawn and need no files: strokes as people write them,
// bent, slanted, scaled and inked at random.
#pragma once

#include <cstdint>

#include "nn/data/dataset.h"

namespace sotto {

// Samples first, ..., first + count - 1 of the set with this seed: grey images [n, 1, 28, 28] f32
// in [0, 1] (multiples of 1/255, ink is bright) and labels [n] i64, each of the ten digits equally
// likely. Sample k is a function of (seed, k) alone, so disjoint ranges share no sample. Throws
// std::invalid_argument unless count >= 0 and 0 <= first <= 2^48 - count.
Dataset make_digits(std::int64_t count, std::uint64_t seed, std::int64_t first = 0);

}  // namespace sotto
