// The empirical Fisher matrix of a level, by products. For the sources of this folder.
#pragma once

#include <optional>

#include "multilevel/level.h"
#include "multilevel/row_factors.h"

namespace sotto::multilevel {

// F = (1 / n) sum_i g_i g_i', with the gradients g_i of the n rows' losses, times their weights, by
// the level's parameters at its last batch. A product is one of inner products and a weighted sum
// of factors. These are kept from one backward for all products if the batch is a single physical
// batch; otherwise each product runs backward again.
class EmpiricalFisher {
 public:
  // The level must outlive it, and its parameters must not change.
  explicit EmpiricalFisher(Level& level) : level_(level) {}
  // F p. Throws std::invalid_argument for a loss that is not one number of each row.
  Gradients times(const Gradients& p);

 private:
  void add_product(const RowFactors& factors, const Gradients& p, Gradients& total) const;

  Level& level_;
  std::optional<RowFactors> kept_;
};

}  // namespace sotto::multilevel
