// The cost model that chooses how norms and weighted sums of per-sample gradients are computed.
#pragma once

#include <cstdint>

namespace sotto {

class PerSampleGrad;
struct CostModel;

// The method for norms and inner products: Gram products of the factors (the ghost norm),
// materialized gradients, or (automatic) the one that the cost model expects to be faster.
enum class NormMethod { automatic, ghost, materialize };

// Expected seconds for one sample.
struct PerSampleTimes {
  double materialized_norm;  // materializing the gradient, its norm, and dropping the gradient
  double ghost_norm;         // norm by Gram products
  double kept;               // materializing and keeping the gradient, its norm and term sum
  double sum;                // weighted sum by one product over the batch
  double term_sum;           // weighted sum in rounded terms (RoundedSum)
};

namespace detail {

struct Patches;

// The expected times of each way, from the backend's constants.
PerSampleTimes expected_times(const PerSampleGrad& f);
// The same from these constants.
PerSampleTimes expected_times(const PerSampleGrad& f, const CostModel& costs);
// True if inner products of f and g are to be computed by Gram products of their factors.
bool uses_gram_products(const PerSampleGrad& f, const PerSampleGrad& g, NormMethod norm_method);
// True if the gradients are to be materialized once and kept for both norm and weighted sum.
bool keeps_materialized(const PerSampleGrad& f, NormMethod norm_method);
// True if Gram products of a convolution's pixels take less time than those of its patches.
bool pixel_products_are_cheaper(const Patches& f);

}  // namespace detail

}  // namespace sotto
