#include <algorithm>
#include <cmath>
#include <optional>
#include <span>

#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "multilevel/empirical_fisher.h"
#include "multilevel/level.h"
#include "multilevel/responses.h"

namespace sotto::multilevel {

namespace {

// The error of products with H by differences of the usual step, over the product.
constexpr double error_of_products = 1e-10;

void validate(const char* response, const Differences& differences) {
  check(differences.step > 0 && std::isfinite(differences.step), "{}: step is {}", response,
        differences.step);
}

// A response in f64, whatever type the parameters have: a difference of gradients in f32 would keep
// three digits, or none where they cancel. Its result has the parameters' types.
using Apply =
    std::function<Gradients(Level& lower, const Gradients& v, const std::vector<Parameter*>& u)>;
Response::Apply computed_in_f64(const Differences& differences, const Apply& apply) {
  return [=, hold = differences.hold_detached](LowerProblem& problem, const Gradients& v,
                                               const std::vector<Parameter*>& u) {
    Level& lower = level_of(problem);
    Gradients y;
    {
      const Level::InF64 scope(lower);
      const Level::DetachedHeld held(lower, hold);
      y = apply(lower, v, u);
    }
    for (auto& [parameter, value] : y) value = to_dtype(value, parameter->value.dtype());
    return y;
  };
}

// The derivative of the lower gradient by `by` along a direction of the lower parameters, in f64.
Gradients derivative(Level& lower, const Gradients& direction, const std::vector<Parameter*>& by,
                     const Differences& differences) {
  struct Term {
    double at, weight;
  };
  static constexpr Term points[] = {{1, 2.0 / 3}, {-1, -2.0 / 3}, {2, -1.0 / 12}, {-2, 1.0 / 12}};
  static constexpr Term central[] = {{1, 0.5}, {-1, -0.5}};
  const bool fourth = differences.order == Differences::Order::fourth;
  const double length = norm(direction);
  if (length == 0) return ordered({}, by);
  const double step = differences.step / length;
  Gradients y;
  for (const Term& point : fourth ? std::span<const Term>(points) : std::span(central)) {
    const Replaced scope(moved(direction, point.at * step));
    const Gradients g = lower.gradient(by);
    if (y.empty())
      y = scaled(g, point.weight / step);
    else
      add_scaled(point.weight / step, g, y);
  }
  return y;
}

// lr ((1 - b1) b2 s0 - b1 (1 - b2) g m0) / (sqrt(s) + eps)^3 v, with the moments m and s after the
// step and m0 and s0 before it.
Tensor adam_scaled(const nn::AdamRule<false>& rule, double rate, const NamedTensors& state,
                   const std::string& name, const Tensor& g, const Tensor& v) {
  const auto found = state.find(name + ".mean"), square = state.find(name + ".mean_square");
  check(found != state.end() && square != state.end(),
        "adam_derivative: the lower problem's optimizer keeps no moments of {}", name);
  const Tensor &m = found->second, &s = square->second;
  const Tensor m0 = scale(m, 1 / rule.beta1), s0 = scale(s, 1 / rule.beta2);
  axpby(-(1 - rule.beta1) / rule.beta1, g, 1, m0);
  axpby(-(1 - rule.beta2) / rule.beta2, mul(g, g), 1, s0);
  const Tensor slope = scale(s0, rate * (1 - rule.beta1) * rule.beta2);
  axpby(-rate * rule.beta1 * (1 - rule.beta2), mul(g, m0), 1, slope);
  const Tensor root =
      unary(unary_index<functors::Affine>, unary(unary_index<functors::Sqrt>, s), {1, rule.eps});
  const Tensor cube = mul(root, mul(root, root));
  return mul(binary(binary_index<functors::Div>, slope, cube), v);
}

// Returns the fault of a problem whose optimizer is not Adam with these options, or an empty text.
std::string adam_fault(nn::AdamRule<false> rule, const Problem& lower) {
  const std::vector<std::string> theirs = lower.optimizer.group_descriptions();
  for (std::size_t group = 0; group < theirs.size(); ++group) {
    rule.learning_rate = lower.optimizer.learning_rate(static_cast<int>(group));
    Parameter any(zeros({1}));
    const nn::Adam same(std::vector<nn::Adam::Group>{{{&any}, rule}});
    if (theirs[group] != same.group_descriptions()[0])
      return "adam_derivative, and its optimizer is not Adam with the same options";
  }
  return {};
}

Gradients through_adam(Level& lower, const Gradients& v, const nn::AdamRule<false>& rule) {
  const NamedTensors state = lower.optimizer_state();
  const Gradients& g = lower.last_gradient();
  const double rate = lower.problem().optimizer.learning_rate();
  Gradients y;
  for (std::size_t i = 0; i < v.size(); ++i) {
    const auto& [parameter, value] = v[i];
    y.emplace_back(parameter,
                   adam_scaled(rule, rate, state, lower.name_of(parameter), g[i].second, value));
  }
  return y;
}

// y = rate sum_{k=0..K} (1 - rate H)^k v
Gradients neumann_sum(Level& lower, const Gradients& v, const NeumannSeries& series) {
  Gradients term = scaled(v, 1), y = scaled(v, 1);
  for (int k = 0; k < series.iterations; ++k) {
    const Gradients product = derivative(lower, term, lower.parameters(), series.differences);
    add_scaled(-series.rate, product, term);
    add_scaled(1, term, y);
  }
  return scaled(y, series.rate);
}

// Hestenes and Stiefel 1952. It ends when the residual is within the rounding error of v and of the
// products: a further direction would be noise.
Gradients solved(Level& lower, const Gradients& v, double rounding,
                 const ConjugateGradients& solver) {
  std::optional<EmpiricalFisher> fisher;
  if (solver.matrix == ConjugateGradients::Matrix::empirical_fisher) fisher.emplace(lower);
  Gradients y = scaled(v, 0), residual = scaled(v, 1), direction = scaled(v, 1);
  double square = inner_product(residual, residual);
  const double end = square * rounding * rounding;
  double largest = 0;  // of the products, over their directions
  for (int k = 0; k < solver.iterations && square > end; ++k) {
    Gradients product = fisher
                            ? fisher->times(direction)
                            : derivative(lower, direction, lower.parameters(), solver.differences);
    add_scaled(solver.damping, direction, product);
    const double curvature = inner_product(direction, product), length = norm(direction);
    largest = std::max(largest, norm(product) / length);
    check(!(std::abs(curvature) <= error_of_products * largest * length * length),
          "conjugate_gradients: no curvature in direction {}; set damping", k);
    const double step = square / curvature;
    add_scaled(step, direction, y);
    add_scaled(-step, product, residual);
    const double next = inner_product(residual, residual);
    Gradients turned = scaled(direction, next / square);
    add_scaled(1, residual, turned);
    direction = std::move(turned);
    square = next;
  }
  return y;
}

// Half a unit in the last place of 1.
double rounding_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64: return 0x1p-53;
    case Dtype::f32: return 0x1p-24;
    case Dtype::f16: return 0x1p-11;
    default: return 0x1p-8;
  }
}

// The rounding of v's elements and of products with H.
double rounding_of(const Gradients& v) {
  double most = error_of_products;
  for (const auto& [parameter, value] : v) most = std::max(most, rounding_of(value.dtype()));
  return most;
}

}  // namespace

Response finite_differences(const Differences& differences) {
  validate("finite_differences", differences);
  return {.apply = computed_in_f64(
              differences, [=](Level& lower, const Gradients& v, const std::vector<Parameter*>& u) {
                return scaled(derivative(lower, in_f64(v), u, differences), -1);
              })};
}

Response adam_derivative(const nn::AdamRule<false>& rule, const Differences& differences) {
  rule.validate();
  validate("adam_derivative", differences);
  check(rule.beta1 > 0 && rule.beta2 > 0 && rule.weight_decay == 0 && !rule.amsgrad,
        "adam_derivative: beta1 {}, beta2 {}, weight decay {}, amsgrad {}; both betas must be "
        "above 0 and the others off",
        rule.beta1, rule.beta2, rule.weight_decay, rule.amsgrad);
  return {.apply = computed_in_f64(
              differences,
              [=](Level& lower, const Gradients& v, const std::vector<Parameter*>& u) {
                const Gradients direction = in_f64(through_adam(lower, v, rule));
                return scaled(derivative(lower, direction, u, differences), -1);
              }),
          .keeps_gradient = true,
          .fault = [rule](const Problem& lower) { return adam_fault(rule, lower); }};
}

Response neumann(const NeumannSeries& series) {
  validate("neumann", series.differences);
  check(series.iterations >= 0 && series.rate > 0, "neumann: {} iterations with rate {}",
        series.iterations, series.rate);
  return {.apply = computed_in_f64(series.differences, [=](Level& lower, const Gradients& v,
                                                           const std::vector<Parameter*>& u) {
            const Gradients y = neumann_sum(lower, in_f64(v), series);
            return scaled(derivative(lower, y, u, series.differences), -1);
          })};
}

Response conjugate_gradients(const ConjugateGradients& solver) {
  validate("conjugate_gradients", solver.differences);
  check(solver.iterations >= 1 && solver.damping >= 0,
        "conjugate_gradients: {} iterations with damping {}", solver.iterations, solver.damping);
  check(solver.damping > 0 || solver.matrix == ConjugateGradients::Matrix::hessian,
        "conjugate_gradients: an empirical Fisher matrix needs damping above 0");
  return {.apply = computed_in_f64(solver.differences, [=](Level& lower, const Gradients& v,
                                                           const std::vector<Parameter*>& u) {
            const Gradients y = solved(lower, in_f64(v), rounding_of(v), solver);
            return scaled(derivative(lower, y, u, solver.differences), -1);
          })};
}

}  // namespace sotto::multilevel
