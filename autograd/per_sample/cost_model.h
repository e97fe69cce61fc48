// The cost model that chooses how norms and weighted sums of per-sample gradients are computed.
#pragma once

#include <cstdint>

namespace sotto {

class PerSampleGrad;

// How norms and inner products are computed: by Gram products of the factors (the ghost norm), from
// materialized gradients, or whichever the cost model says is cheaper.
enum class NormMethod { automatic, ghost, materialize };

// Expected seconds for one sample.
struct PerSampleTimes {
  double materialized_norm;  // norm of a gradient that is materialized for it and dropped
  double ghost_norm;         // norm by Gram products
  double kept;               // norm and weighted sum of a materialized gradient that is kept
  double sum;                // weighted sum by one product over the batch
};

namespace detail {

struct Patches;

PerSampleTimes expected_times(const PerSampleGrad& f);
// Whether inner products of f and g are computed by Gram products of their factors.
bool uses_gram_products(const PerSampleGrad& f, const PerSampleGrad& g, NormMethod norm_method);
// Whether a norm and a weighted sum together are computed from gradients that are kept.
bool keeps_materialized(const PerSampleGrad& f, NormMethod norm_method);
// Whether Gram products of a convolution's pixels take less time than those of its patches.
bool pixel_products_are_cheaper(const Patches& f);

}  // namespace detail

}  // namespace sotto
