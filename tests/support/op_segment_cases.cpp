#include "autograd/ops.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/op_cases.h"

namespace sotto {

namespace {

using Vars = std::vector<Var>;

// A layer with an inner segment, which uses the weight a second time.
Instance nested_case(PublicRandom& random) {
  const Shape shape = random_shape(random, static_cast<int>(draw(random, 2, 3)));
  const std::int64_t d = shape.back();
  return {
      {random_input(random, shape, shape.rank() - 1), parameter(random, {d, d}),
       parameter(random, {d})},
      [](const Vars& inputs) {
        return segment(
            [](const Vars& x) {
              const Vars inner{tanh(linear(x[0], x[1], x[2])), x[1]};
              return Vars{
                  segment([](const Vars& z) { return Vars{linear(z[0], z[1])}; }, inner)[0] + x[0]};
            },
            inputs)[0];
      }};
}

// A segment that computes the weight itself.
Instance shared_case(PublicRandom& random) {
  const std::int64_t o = draw(random, 1, 3), r = draw(random, 1, 2), i = draw(random, 1, 4);
  return {{parameter(random, {o, r}), parameter(random, {r, i})}, [](const Vars& inputs) {
            return segment([](const Vars& x) { return Vars{matmul(x[0], tanh(x[1]))}; }, inputs)[0];
          }};
}

// A segment with two results, one of them used twice, and a third one without gradient.
Instance results_case(PublicRandom& random) {
  const Shape shape = random_shape(random, 2);
  return {{{uniform_values(random, shape), 0}, parameter(random, {shape.back()})},
          [](const Vars& inputs) {
            const Vars y = segment(
                [](const Vars& x) {
                  const Var two = x[0].tape().constant(full({}, 2, x[0].dtype()));
                  return Vars{x[0] * x[1], tanh(x[0]), two};
                },
                inputs);
            return y[0] * y[1] + y[0] * y[2];
          }};
}

}  // namespace

void add_segment_cases(std::vector<OpCase>& cases) {
  cases.push_back({"segment", "nested", nested_case});
  cases.push_back({"segment", "of shared values", shared_case});
  cases.push_back({"segment_result", "two and a constant", results_case});
}

}  // namespace sotto
