#include "multilevel/empirical_fisher.h"

#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/check_finite.h"

namespace sotto::multilevel {

// Adds sum_i <g_i, p> g_i / n. The factors have the loss scale, and the product twice.
void EmpiricalFisher::add_product(const RowFactors& factors, const Gradients& p,
                                  Gradients& total) const {
  const Tensor products = factors.products(p);
  if (!products.defined()) return;
  const double loss_scale = level_.loss_scale();
  if (loss_scale != 1 && !nn::all_finite({products})) throw GradientOverflow();
  const double divisor = loss_scale * loss_scale * static_cast<double>(level_.rows());
  factors.add_sum(scale(products, 1 / divisor), total);
}

Gradients EmpiricalFisher::times(const Gradients& p) {
  const std::vector<Parameter*>& by = level_.parameters();
  if (kept_) {
    std::optional<Gradients> own(std::in_place);
    try {
      add_product(*kept_, p, *own);
    } catch (const GradientOverflow&) {
      own.reset();
    }
    return level_.sum_over_ranks(by, own);
  }
  const auto add = [&](Pass& pass, Gradients& total) {
    const Var losses = level_.loss(pass);
    check_row_losses("the empirical Fisher matrix", losses, pass);
    RowFactors factors;
    pass.tape.backward(losses, factors, level_.loss_scale());
    add_product(factors, p, total);
    if (pass.rows.size() == level_.own_rows().size()) kept_ = std::move(factors);
  };
  return level_.sum_over_batch(by, by, add);
}

}  // namespace sotto::multilevel
