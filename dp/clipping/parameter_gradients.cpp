#include "dp/clipping/parameter_gradients.h"

#include <cmath>
#include <string_view>

#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

std::vector<PerSampleGrad> grouped(std::vector<PerSampleGrad> uses, const Grouping* grouping,
                                   std::int64_t units) {
  for (PerSampleGrad& use : uses) {
    if (grouping)
      use = use.group(*grouping);
    else if (use.samples() > units)
      use = use.captured() ? PerSampleGrad::captured_prefix(use.captured(), units)
                           : use.slice(0, units);
  }
  return uses;
}

std::vector<PerSampleGrad> materialize_if_cheaper(std::vector<PerSampleGrad> uses,
                                                  NormMethod norm_method, std::size_t& budget) {
  for (PerSampleGrad& use : uses) {
    const PerSampleGrad kept = use.materialize_if_cheaper(norm_method, budget);
    if (std::string_view(kept.form()) == "dense" && std::string_view(use.form()) != "dense")
      budget -= kept.materialized_bytes();
    use = kept;
    use.count_as_kept();
  }
  return uses;
}

bool all_finite(const Tensor& x) { return std::isfinite(sum(x).item()); }

}  // namespace sotto
