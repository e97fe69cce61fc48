#include "autograd/ops.h"
#include "autograd/ops/sequence/rotary.h"
#include "core/random/philox.h"
#include "tests/support/op_cases.h"
#include "tests/support/random_blocks.h"

namespace sotto {

namespace {

using Vars = std::vector<Var>;

Instance linear_case(PublicRandom& random) {
  const Shape shape = random_shape(random, static_cast<int>(draw(random, 2, 4)));
  const std::int64_t o = draw(random, 1, 4);
  std::vector<OpInput> inputs{random_input(random, shape, shape.rank() - 1),
                              parameter(random, {o, shape.back()})};
  if (one_in(random, 2)) inputs.push_back(parameter(random, {o}));
  return {inputs, [](const Vars& x) {
            return linear(x[0], x[1], x.size() > 2 ? std::optional(x[2]) : std::nullopt);
          }};
}

Instance quantized_case(PublicRandom& random, BlockFormat format) {
  Shape shape = random_shape(random, static_cast<int>(draw(random, 2, 3)), 3);
  shape[shape.rank() - 1] = block_size(format).values;
  const BlockMatrix w = random_blocks(random, format, draw(random, 1, 4), shape.back());
  std::vector<OpInput> inputs{random_input(random, shape, shape.rank() - 1)};
  if (one_in(random, 2)) inputs.push_back(parameter(random, {w.rows()}));
  return {inputs, [w](const Vars& x) {
            return quantized_linear(x[0], w, x.size() > 1 ? std::optional(x[1]) : std::nullopt);
          }};
}

Instance matmul_of(const OpInput& a, const OpInput& b) {
  return {{a, b}, [](const Vars& x) { return matmul(x[0], x[1]); }};
}

Instance matmul_batched(PublicRandom& random) {
  const std::int64_t n = draw(random, 1, 4), h = draw(random, 1, 3), m = draw(random, 1, 3),
                     k = draw(random, 1, 4), j = draw(random, 1, 3);
  const auto values = [&](const Shape& shape) { return uniform_values(random, shape); };
  switch (random.below(3)) {
    case 0: return matmul_of({values({n, m, k}), 0}, {values({n, k, j}), 0});
    case 1: return matmul_of({values({h, n, m, k}), 1}, {values({n, k, j}), 0});
    default: return matmul_of({values({n, 1, m, k}), 0}, {values({n, h, k, j}), 0});
  }
}

Instance matmul_shared(PublicRandom& random) {
  const std::int64_t n = draw(random, 1, 4), h = draw(random, 1, 3), m = draw(random, 1, 3),
                     k = draw(random, 1, 4), j = draw(random, 1, 3);
  const auto values = [&](const Shape& shape) { return uniform_values(random, shape); };
  switch (random.below(12)) {
    case 0:
      return matmul_of({values({n, m, k}), 0}, {values({k, j})});  // shared weight on the right
    case 1: return matmul_of({values({m, n, k}), 1}, {values({k, j})});
    case 2:
      return matmul_of({values({m, k})}, {values({n, k, j}), 0});     // shared weight on the left
    case 3: return matmul_of({values({m, k})}, {values({k, n}), 1});  // samples as columns
    case 4: return matmul_of({values({h, m, k})}, {values({h, k, n}), 2});
    case 5:
      return matmul_of({values({h, n, k}), 1}, {values({h, k, j})});  // samples as rows, by head
    case 6:
      return matmul_of({values({n, h, m, k}), 0}, {values({h, k, j})});  // one weight per head
    case 7: return matmul_of({values({h, 1, m, k})}, {values({n, k, j}), 0});
    case 8: return matmul_of({values({n, k}), 0}, {values({k})});  // vectors
    case 9: return matmul_of({values({k})}, {values({n, k, j}), 0});
    case 10: return matmul_of({values({m, k})}, {values({k, j})});  // shared operands only
    default: return matmul_of({values({k})}, {values({k})});
  }
}

Instance embedding_case(PublicRandom& random) {
  const std::int64_t rows = draw(random, 2, 5);
  const Shape shape = random_shape(random, static_cast<int>(draw(random, 1, 3)));
  OpInput ids{random_ids(random, shape, rows), SampleAxis::shared(), false};
  if (!one_in(random, 4)) ids.samples = static_cast<int>(random.below(shape.rank()));
  return {{parameter(random, {rows, draw(random, 1, 4)}), ids},
          [](const Vars& x) { return embedding(x[0], x[1]); }};
}

// Positions of each row or of all, and one or several heads.
Instance rotary_case(PublicRandom& random) {
  const std::int64_t n = draw(random, 1, 3), t = draw(random, 1, 4);
  const bool shared = one_in(random, 2);
  const OpInput x{uniform_values(random, {n, draw(random, 1, 2), t, 2 * draw(random, 1, 3)}), 0};
  const OpInput positions{random_ids(random, {shared ? 1 : n, t}, 9),
                          shared ? SampleAxis::shared() : SampleAxis(0), false};
  return {{x, positions}, [](const Vars& v) {
            const std::vector<double> all{1, 0.3, 0.1};
            const auto half = v[0].shape().back() / 2;
            const RotaryAngles angles =
                rotary_angles(v[1], {all.begin(), all.begin() + half}, v[0].dtype());
            return rotary(v[0], angles);
          }};
}

Instance cross_entropy_case(PublicRandom& random) {
  const std::int64_t n = draw(random, 1, 4), classes = draw(random, 2, 4), t = draw(random, 1, 3);
  CrossEntropyOptions options;
  options.label_smoothing = one_in(random, 2) ? 0.1 : 0;
  options.z_loss = one_in(random, 2) ? 0.01 : 0;
  options.ignore_index = one_in(random, 2) ? 0 : -1;
  if (one_in(random, 2)) options.class_weights = uniform_values(random, {classes}, 0.5, 2);
  const auto run = [options](const Vars& x) { return cross_entropy(x[0], x[1].value(), options); };
  if (one_in(random, 2)) {
    return {
        {{uniform_values(random, {n, classes}), 0}, {random_ids(random, {n}, classes), 0, false}},
        run};
  }
  return {{{uniform_values(random, {n, classes, t}), 0},
           {random_ids(random, {n, t}, classes), 0, false}},
          run};
}

// One to three spatial axes of up to five pixels.
Shape image_shape(PublicRandom& random, std::int64_t channels) {
  Shape shape{draw(random, 1, 4), channels};
  for (std::int64_t axes = draw(random, 1, 3); axes > 0; --axes)
    shape.push_back(draw(random, 3, 5));
  return shape;
}

Instance conv_case(PublicRandom& random) {
  ConvOptions options;
  options.groups = draw(random, 1, 2);
  const std::int64_t c = draw(random, 1, 2), o = options.groups * draw(random, 1, 2);
  const Shape shape = image_shape(random, c * options.groups);
  Shape kernel{o, c};
  for (int i = 2; i < shape.rank(); ++i) kernel.push_back(draw(random, 1, 3));
  options.same = one_in(random, 3);
  options.stride = {draw(random, 1, 2)};
  if (!options.same) options.padding = {draw(random, 0, 2)};
  options.mode = static_cast<PadMode>(random.below(4));
  std::vector<OpInput> inputs{{uniform_values(random, shape), 0}, parameter(random, kernel)};
  if (one_in(random, 6)) inputs[0].samples = SampleAxis::shared();
  if (one_in(random, 2)) inputs.push_back(parameter(random, {o}));
  return {inputs, [options](const Vars& x) {
            return conv(x[0], x[1], x.size() > 2 ? std::optional(x[2]) : std::nullopt, options);
          }};
}

Instance pool_case(PublicRandom& random, bool maximum) {
  const Shape shape = image_shape(random, draw(random, 1, 3));
  PoolOptions options;
  options.kernel = {draw(random, 2, 3)};
  options.stride = one_in(random, 2) ? Shape{} : Shape{draw(random, 1, 2)};
  options.padding = {draw(random, 0, 1)};
  options.ceil_mode = one_in(random, 2);
  options.count_padding = one_in(random, 2);
  const OpInput x = random_input(random, shape, 2);
  return {{x}, [=](const Vars& v) {
            return maximum ? max_pool(v[0], options) : avg_pool(v[0], options);
          }};
}

Instance adaptive_case(PublicRandom& random) {
  const Shape shape = image_shape(random, 2);
  Shape output;
  for (int i = 2; i < shape.rank(); ++i) output.push_back(draw(random, 1, 3));
  return {{{uniform_values(random, shape), 0}},
          [=](const Vars& v) { return adaptive_avg_pool(v[0], output); }};
}

}  // namespace

void add_product_cases(std::vector<OpCase>& cases) {
  cases.push_back({"linear", "any axis", linear_case});
  for (const BlockFormat format : {BlockFormat::q8_0, BlockFormat::q4_1})
    cases.push_back({"quantized_linear", name(format),
                     [format](PublicRandom& random) { return quantized_case(random, format); }});
  cases.push_back({"matmul", "both batched", matmul_batched});
  cases.push_back({"matmul", "one or both shared", matmul_shared});
  cases.push_back({"embedding", "any axis", embedding_case});
  cases.push_back({"rotary", "positions of a row or of all", rotary_case});
  cases.push_back({"cross_entropy", "elements and samples", cross_entropy_case});
  cases.push_back({"sub", "mean squared error", [](PublicRandom& random) {
                     const Shape shape = random_shape(random, 3);
                     return Instance{
                         {{uniform_values(random, shape), 1}, {uniform_values(random, shape), 1}},
                         [](const Vars& x) { return mse_loss(x[0], x[1]); }};
                   }});
}

void add_image_cases(std::vector<OpCase>& cases) {
  cases.push_back({"conv", "any window", conv_case});
  cases.push_back(
      {"max_pool", "any window", [](PublicRandom& random) { return pool_case(random, true); }});
  cases.push_back(
      {"avg_pool", "any window", [](PublicRandom& random) { return pool_case(random, false); }});
  cases.push_back({"map_axis", "adaptive average", adaptive_case});
}

}  // namespace sotto
