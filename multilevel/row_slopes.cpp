#include <algorithm>

#include "autograd/ops/elementwise.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "multilevel/level.h"
#include "multilevel/responses.h"
#include "multilevel/row_factors.h"
#include "nn/optim/check_finite.h"

namespace sotto::multilevel {

namespace {

// Inner products with v; refuses a loss that reads u itself.
class SlopeSink final : public GradSink {
 public:
  SlopeSink(const Gradients& v, const std::vector<Parameter*>& u) : products_(v), u_(u) {}
  void receive(Parameter& parameter, std::vector<PerSampleGrad> uses) override {
    check(std::find(u_.begin(), u_.end(), &parameter) == u_.end(),
          "row_slopes: the loss itself reads a parameter {} of the problem above; only the weights "
          "may",
          parameter.value.shape());
    products_.receive(parameter, std::move(uses));
  }
  const Tensor& products() const { return products_.products(); }

 private:
  DirectionSink products_;
  const std::vector<Parameter*>& u_;
};

// <g_i, v> for the rows of a pass, and the rows' losses.
struct Slopes {
  Tensor losses, products;
};

Slopes slopes_of(Level& lower, Pass& pass, const Gradients& v, const std::vector<Parameter*>& u) {
  SlopeSink sink(v, u);
  const Var losses = lower.problem().loss(pass);
  check_row_losses("row_slopes", losses, pass);
  const Tensor values = losses.value();
  pass.tape.backward(losses, sink, lower.loss_scale());
  if (!sink.products().defined()) return {values, zeros_like(values)};
  const Tensor products = scale(sink.products(), 1 / lower.loss_scale());
  if (lower.loss_scale() != 1 && !nn::all_finite({products})) throw GradientOverflow();
  return {values, to_dtype(products, values.dtype())};
}

// Adds -(1 / n) sum_i <g_i, v> d(weight_i)/du for the rows of a pass.
void add_weight_slopes(Level& lower, Pass& pass, const Slopes& slopes, Gradients& total) {
  const Var weights = lower.problem().weights(pass, pass.tape.input(slopes.losses));
  SumSink sums;
  pass.tape.backward(mul(weights, pass.tape.input(slopes.products)), sums,
                     -1 / static_cast<double>(lower.rows()));
  for (const auto& [parameter, value] : sums.gradients()) accumulate(total, *parameter, value);
}

Gradients at_solution(LowerProblem& problem, const Gradients& v, const std::vector<Parameter*>& u) {
  Level& lower = level_of(problem);
  std::vector<Parameter*> both = lower.parameters();
  both.insert(both.end(), u.begin(), u.end());
  const auto add = [&](Pass& pass, Gradients& total) {
    add_weight_slopes(lower, pass, slopes_of(lower, pass, v, u), total);
  };
  return lower.sum_over_batch(both, u, add);
}

// The response from the gradients of the last step, which the level has kept.
Gradients of_step(Level& lower, const Gradients& v, const std::vector<Parameter*>& u) {
  std::vector<Tensor> losses, products;
  for (const Level::KeptRows& rows : lower.kept_rows()) {
    losses.push_back(rows.losses);
    const Tensor some = rows.factors->products(v);
    products.push_back(some.defined() ? to_dtype(some, rows.losses.dtype())
                                      : zeros_like(rows.losses));
  }
  const std::int64_t before = lower.first_row();
  const auto add = [&](Pass& pass, Gradients& total) {
    const std::int64_t first = pass.first() - before, end = first + std::ssize(pass.rows);
    const auto rows = [&](const std::vector<Tensor>& all) {
      return concat(all, 0).slice(0, first, end);
    };
    add_weight_slopes(lower, pass, {rows(losses), rows(products)}, total);
  };
  return lower.sum_over_batch(u, u, add);
}

}  // namespace

Response row_slopes(const RowSlopes& options) {
  if (!options.of_step) return {.apply = at_solution, .needs_weights = true};
  // The first time also at the solution, which refuses a loss that reads u itself.
  const auto apply = [](LowerProblem& problem, const Gradients& v,
                        const std::vector<Parameter*>& u) {
    Level& lower = level_of(problem);
    if (lower.is_new(u)) at_solution(lower, v, u);
    return of_step(lower, v, u);
  };
  return {.apply = apply, .needs_weights = true, .keeps_rows = true};
}

}  // namespace sotto::multilevel
