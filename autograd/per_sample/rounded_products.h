// Rounded sums of outer forms on devices that add up products without writing them to memory
// (Backend::add_rounded_products). For the sources of this folder.
#pragma once

#include "autograd/per_sample/forms.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/per_sample/rounded_sum.h"

namespace sotto::detail {

// Adds each sample's gradient as one term, or as one for every product_chain positions. Returns
// false, and does nothing, where the device has no kernel for the factors, or one that did not pass
// its check: at the first use of a type on each GPU a small sum is compared with products in f64. A
// kernel that is off by more than the charged error is not used, and stderr has a line.
bool add_rounded_products(const Outer& f, const RoundedSum& sum, const Tensor& weights,
                          std::int64_t uses);

}  // namespace sotto::detail
