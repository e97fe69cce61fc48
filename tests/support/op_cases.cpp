#include "tests/support/op_cases.h"

#include <algorithm>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "core/random/philox.h"
#include "kernels/functors/functors.h"

namespace sotto {

namespace {

template <class F>
double lowest() {
  if constexpr (requires { F::low; })
    return F::low;
  else
    return -3;
}
template <class F>
double highest() {
  if constexpr (requires { F::high; })
    return F::high;
  else
    return 3;
}
template <class F>
Constants constants() {
  if constexpr (requires { F::sample; })
    return F::sample;
  else
    return {};
}

// An operand of an elementwise op with result `y` and samples along `axis`: shared or batched, with
// leading axes sometimes left out, and others sometimes of size 1.
OpInput operand(PublicRandom& random, const Shape& y, int axis, double low, double high) {
  const bool shared = one_in(random, 3);
  Shape shape = y;
  for (int i = 0; i < y.rank(); ++i) {
    if ((shared && i == axis) || (i != axis && one_in(random, 3))) shape[i] = 1;
  }
  int dropped = 0;
  while (shape.rank() > 0 && (shared || dropped < axis) && one_in(random, 3)) {
    shape.erase(0);
    ++dropped;
  }
  const SampleAxis samples = shared ? SampleAxis::shared() : SampleAxis(axis - dropped);
  return {uniform_values(random, shape, low, high), samples};
}

template <class... F>
void add_unary(std::vector<OpCase>& cases, FunctorList<F...>) {
  const auto add_one = [&]<class G>(std::type_identity<G>) {
    cases.push_back(
        {G::name, "any axis", [](PublicRandom& random) {
           const Shape shape = random_shape(random, static_cast<int>(draw(random, 1, 4)));
           return Instance{{random_input(random, shape, shape.rank(), lowest<G>(), highest<G>())},
                           [](const std::vector<Var>& x) {
                             return unary(unary_index<G>, x[0], constants<G>());
                           }};
         }});
  };
  (add_one(std::type_identity<F>{}), ...);
}

template <class... F>
void add_binary(std::vector<OpCase>& cases, FunctorList<F...>) {
  const auto add_one = [&]<class G>(std::type_identity<G>) {
    cases.push_back({G::name, "broadcast", [](PublicRandom& random) {
                       const Shape y = random_shape(random, static_cast<int>(draw(random, 1, 4)));
                       const int axis = static_cast<int>(random.below(y.rank()));
                       return Instance{{operand(random, y, axis, lowest<G>(), highest<G>()),
                                        operand(random, y, axis, lowest<G>(), highest<G>())},
                                       [](const std::vector<Var>& x) {
                                         return binary(binary_index<G>, x[0], x[1]);
                                       }};
                     }});
    cases.push_back({G::name, "of one value twice", [](PublicRandom& random) {
                       const Shape shape = random_shape(random, 2);
                       OpInput input = random_input(random, shape, 2, lowest<G>(), highest<G>());
                       input.far = !std::is_same_v<G, functors::Div>;  // x / x has a gap at zero
                       return Instance{{input}, [](const std::vector<Var>& x) {
                                         return binary(binary_index<G>, x[0], x[0]);
                                       }};
                     }});
  };
  (add_one(std::type_identity<F>{}), ...);
}

Instance where_case(PublicRandom& random) {
  const Shape y = random_shape(random, 3);
  const int axis = static_cast<int>(random.below(3));
  OpInput condition = operand(random, y, axis, 0, 1);
  for (double& value : std::span(condition.value.data<double>(),
                                 static_cast<std::size_t>(condition.value.numel()))) {
    value = value < 0.5 ? 0 : 1;
  }
  condition.wants_grad = condition.far = false;
  return {{condition, operand(random, y, axis, -2, 2), operand(random, y, axis, -2, 2)},
          [](const std::vector<Var>& x) { return where(x[0], x[1], x[2]); }};
}

}  // namespace

std::vector<OpCase> op_cases() {
  std::vector<OpCase> cases;
  add_elementwise_cases(cases);
  add_shape_cases(cases);
  add_reduction_cases(cases);
  add_product_cases(cases);
  add_image_cases(cases);
  add_index_cases(cases);
  add_segment_cases(cases);
  return cases;
}

std::vector<std::string> ops_without_case(const std::vector<OpCase>& cases) {
  std::vector<std::string> missing;
  for (const char* op : registered_ops()) {
    const bool found =
        std::any_of(cases.begin(), cases.end(), [op](const OpCase& one) { return one.op == op; });
    if (!found) missing.emplace_back(op);
  }
  return missing;
}

void add_elementwise_cases(std::vector<OpCase>& cases) {
  add_unary(cases, UnaryFunctors{});
  add_binary(cases, BinaryFunctors{});
  cases.push_back({"where", "broadcast", where_case});
  cases.push_back({"cast", "to f64 and back", [](PublicRandom& random) {
                     const Shape shape = random_shape(random, static_cast<int>(draw(random, 1, 3)));
                     return Instance{
                         {random_input(random, shape, shape.rank())},
                         [](const auto& x) { return cast(cast(x[0], Dtype::f64), x[0].dtype()); }};
                   }});
  cases.push_back({"dropout", "any axis", [](PublicRandom& random) {
                     return Instance{{random_input(random, random_shape(random, 3), 3)},
                                     [](const std::vector<Var>& x) { return dropout(x[0], 0.4); }};
                   }});
}

Tensor random_ids(PublicRandom& random, const Shape& shape, std::int64_t below) {
  std::vector<std::int64_t> values(static_cast<std::size_t>(shape.numel()));
  for (std::int64_t& value : values) value = random.below(below);
  return Tensor::from(values, shape);
}

Shape random_shape(PublicRandom& random, int rank, std::int64_t max) {
  Shape shape;
  for (int i = 0; i < rank; ++i) shape.push_back(draw(random, 1, max));
  return shape;
}

OpInput random_input(PublicRandom& random, const Shape& shape, int axes, double low, double high) {
  const Tensor value = uniform_values(random, shape, low, high);
  if (one_in(random, 4)) return {value};
  return {value, static_cast<int>(random.below(axes))};
}

}  // namespace sotto
