#include <algorithm>

#include "autograd/ops/elementwise.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "multilevel/level.h"
#include "multilevel/responses.h"

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
  check(losses.samples().batched() && losses.shape() == Shape{std::ssize(pass.rows)},
        "row_slopes: a loss of shape {} for {} rows must be one of each", losses.shape(),
        pass.rows.size());
  const Tensor values = losses.value();
  pass.tape.backward(losses, sink, lower.loss_scale());
  if (!sink.products().defined()) return {values, zeros_like(values)};
  const Tensor products = scale(sink.products(), 1 / lower.loss_scale());
  // x - x is zero unless x is NaN or infinite, and then NaN.
  const bool finite = sum(sub(products, products)).item() == 0;
  if (!finite && lower.loss_scale() != 1) throw GradientOverflow();
  return {values, to_dtype(products, values.dtype())};
}

Gradients apply(Level& lower, const Gradients& v, const std::vector<Parameter*>& u) {
  std::vector<Parameter*> both = lower.parameters();
  both.insert(both.end(), u.begin(), u.end());
  Gradients total;
  lower.over_batch(both, [&](Pass& pass) {
    const Slopes slopes = slopes_of(lower, pass, v, u);
    const Var weights = lower.problem().weights(pass, pass.tape.input(slopes.losses));
    SumSink sums;
    pass.tape.backward(mul(weights, pass.tape.input(slopes.products)), sums,
                       -1 / static_cast<double>(lower.rows()));
    for (const auto& [parameter, value] : sums.gradients()) accumulate(total, *parameter, value);
  });
  return ordered(total, u);
}

}  // namespace

Response row_slopes() { return {.apply = apply, .needs_weights = true}; }

}  // namespace sotto::multilevel
