// Random cases of every operation on the tape, on which the laws of check_op() are checked.
#pragma once

#include <string>
#include <vector>

#include "autograd/check/check_op.h"
#include "core/random/philox.h"

namespace sotto {

using testing::Instance;
using testing::OpCase;
using testing::OpInput;
using testing::uniform_values;

// At least one case for each registered operation.
std::vector<OpCase> op_cases();

// Whether GPUs refuse the operation (kernels/quantized/quantized.h).
inline bool cpu_alone(const OpCase& one) { return one.op == "quantized_linear"; }

// The registered operations without a case: should be empty.
std::vector<std::string> ops_without_case(const std::vector<OpCase>& cases);

// Each adds a part of op_cases().
void add_elementwise_cases(std::vector<OpCase>& cases);
void add_shape_cases(std::vector<OpCase>& cases);
void add_reduction_cases(std::vector<OpCase>& cases);
void add_product_cases(std::vector<OpCase>& cases);
void add_image_cases(std::vector<OpCase>& cases);
void add_index_cases(std::vector<OpCase>& cases);
void add_segment_cases(std::vector<OpCase>& cases);

// Building blocks of generators.
inline std::int64_t draw(PublicRandom& random, std::int64_t low, std::int64_t high) {
  return low + random.below(high - low + 1);
}
inline bool one_in(PublicRandom& random, std::int64_t n) { return random.below(n) == 0; }
// Uniform in 0 .. below - 1.
Tensor random_ids(PublicRandom& random, const Shape& shape, std::int64_t below);
// `rank` sizes in 1 .. most.
Shape random_shape(PublicRandom& random, int rank, std::int64_t max = 4);
// An input of the given shape, batched along a random axis among the first `axes`, or (one in four)
// shared.
OpInput random_input(PublicRandom& random, const Shape& shape, int axes, double low = -2,
                     double high = 2);
inline OpInput parameter(PublicRandom& random, const Shape& shape) {
  return {uniform_values(random, shape)};
}

}  // namespace sotto
