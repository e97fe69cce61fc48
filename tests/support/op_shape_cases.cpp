#include "autograd/ops.h"
#include "core/random/philox.h"
#include "tests/support/op_cases.h"

namespace sotto {

namespace {

using Vars = std::vector<Var>;

// x with samples along a random axis (or shared), and an axis that is not the sample axis.
struct Beside {
  OpInput input;
  int axis;
};

Beside beside(PublicRandom& random, int rank) {
  OpInput input = random_input(random, random_shape(random, rank), rank);
  int axis = static_cast<int>(random.below(rank));
  if (input.samples.batched() && axis == input.samples.axis()) axis = (axis + 1) % rank;
  return {input, axis};
}

// Calls run(x, axis) with an axis other than the sample axis, counted from either end.
OpCase along(const char* op, const char* what, std::function<Var(const Var&, int)> run) {
  return {op, what, [run](PublicRandom& random) {
            const auto [input, at] = beside(random, static_cast<int>(draw(random, 2, 4)));
            const int axis = one_in(random, 2) ? at - input.value.rank() : at;
            return Instance{{input}, [run, axis](const Vars& x) { return run(x[0], axis); }};
          }};
}

// Merges the two axes after the sample axis, or splits the one before. A factor of 1 next to a
// single sample would leave open which of the two axes is the sample axis.
Instance reshape_case(PublicRandom& random) {
  const std::int64_t a = draw(random, 2, 3), n = draw(random, 1, 5), b = draw(random, 1, 3),
                     c = draw(random, 1, 3);
  switch (random.below(4)) {
    case 0:
      return {{{uniform_values(random, {a, n, b, c}), 1}}, [=](const Vars& x) {
                return reshape(x[0], {a, x[0].shape()[1], -1});
              }};
    case 1:
      return {{{uniform_values(random, {a * b, n, c}), 1}}, [=](const Vars& x) {
                return reshape(x[0], {b, a, -1, c});
              }};
    case 2:
      return {{{uniform_values(random, {n, a, b, c}), 0}},
              [](const Vars& x) { return flatten(x[0]); }};
    default:
      return {{parameter(random, {n, a, b})}, [=](const Vars& x) {
                return reshape(x[0], {a, b * n});
              }};
  }
}

Instance permute_case(PublicRandom& random) {
  const int rank = static_cast<int>(draw(random, 1, 4));
  std::vector<std::int64_t> axes;
  for (int i = 0; i < rank; ++i) axes.push_back(i);
  random.shuffle(axes);
  return {{random_input(random, random_shape(random, rank), rank)},
          [order = Shape(axes)](const Vars& x) { return permute(x[0], order); }};
}

Instance expand_case(PublicRandom& random) {
  Beside x = beside(random, 3);
  Shape shape = x.input.value.shape();
  shape[x.axis] = 1;
  x.input.value = uniform_values(random, shape);
  for (int i = 0; i < shape.rank(); ++i) shape[i] = i == x.axis ? 3 : -1;
  shape.insert(0, 2);
  return {{x.input}, [shape](const Vars& v) { return expand(v[0], shape); }};
}

Instance concat_case(PublicRandom& random) {
  const auto [first, axis] = beside(random, 3);
  std::vector<OpInput> parts{first};
  for (int i = 0; i < 2; ++i) {
    Shape shape = first.value.shape();
    shape[axis] = draw(random, 1, 3);
    const bool shared = one_in(random, 2) || !first.samples.batched();
    if (shared && first.samples.batched()) shape[first.samples.axis()] = 1;
    parts.push_back({uniform_values(random, shape), shared ? SampleAxis::shared() : first.samples});
  }
  std::swap(parts[0], parts[static_cast<std::size_t>(random.below(3))]);
  return {parts, [axis = axis](const Vars& x) { return concat(x, axis); }};
}

Instance stack_case(PublicRandom& random) {
  const OpInput a = random_input(random, random_shape(random, 2), 2);
  OpInput b = a;
  b.value = uniform_values(random, a.value.shape());
  const int axis = static_cast<int>(draw(random, -3, 2));
  return {{a, b}, [axis](const Vars& x) { return stack({x[0], x[1], x[0]}, axis); }};
}

Var padded(const Var& x, int axis, PadMode mode) {
  const std::int64_t n = x.value().size(axis);
  const std::int64_t max = mode == PadMode::reflect ? n - 1 : mode == PadMode::circular ? n : 3;
  return pad(x, axis, std::min<std::int64_t>(2, max), std::min<std::int64_t>(1, max), mode);
}

// Two or three views of each sample: joined, through one layer, and separated.
Instance views_case(PublicRandom& random) {
  const Shape shape{draw(random, 1, 3), draw(random, 1, 3), draw(random, 1, 4)};
  const int axis = static_cast<int>(random.below(2));
  std::vector<OpInput> inputs;
  for (std::int64_t k = draw(random, 2, 3); k > 0; --k)
    inputs.push_back({uniform_values(random, shape), axis});
  inputs.push_back(parameter(random, {2, shape[2]}));
  inputs.push_back(parameter(random, {2}));
  return {inputs, [](const std::vector<Var>& x) {
            const Var joined = join_views({x.begin(), x.end() - 2});
            const Var seen = tanh(mul(linear(joined, x[x.size() - 2]), x.back()));
            const std::vector<Var> views =
                split_views(seen, static_cast<std::int64_t>(x.size()) - 2);
            Var y = views[0];
            for (std::size_t k = 1; k < views.size(); ++k) y = mul(y, views[k]);
            return y;
          }};
}

}  // namespace

void add_shape_cases(std::vector<OpCase>& cases) {
  cases.push_back({"reshape", "joins and splits", reshape_case});
  cases.push_back(along("reshape", "unsqueeze and squeeze", [](const Var& x, int axis) {
    return x.rank() < 4 ? squeeze(unsqueeze(unsqueeze(x, axis), 0), 0) : unsqueeze(x, axis);
  }));
  cases.push_back({"permute", "any order", permute_case});
  cases.push_back(
      along("permute", "transpose", [](const Var& x, int axis) { return transpose(x, axis, 0); }));
  cases.push_back({"expand", "new and repeated axes", expand_case});
  cases.push_back(along("slice", "with steps", [](const Var& x, int axis) {
    const std::int64_t n = x.value().size(axis);
    return slice(x, axis, n / 3, n, n > 2 ? 2 : 1);
  }));
  cases.push_back(
      along("slice", "select", [](const Var& x, int axis) { return select(x, axis, -1); }));
  cases.push_back(along("split", "the parts exchanged", [](const Var& x, int axis) {
    const std::int64_t n = x.value().size(axis), first = n / 2;
    const std::vector<Var> parts = split(x, axis, {first, n - first});
    return concat({square(parts[1]), parts[0]}, axis);
  }));
  cases.push_back(along("split", "one part of three", [](const Var& x, int axis) {
    const std::int64_t n = x.value().size(axis);
    return split(x, axis, {0, n, 0})[1];
  }));
  cases.push_back({"concat", "batched and shared parts", concat_case});
  cases.push_back({"concat", "stack", stack_case});
  cases.push_back({"views", "joined for a layer", views_case});
  cases.push_back(along("take", "with repeats and gaps", [](const Var& x, int axis) {
    return take(x, axis, {x.value().size(axis) - 1, -1, 0, 0});
  }));
  cases.push_back(along("take", "flip", [](const Var& x, int axis) { return flip(x, {axis}); }));
  cases.push_back(along("take", "roll", [](const Var& x, int axis) { return roll(x, axis, -2); }));
  for (const PadMode mode :
       {PadMode::zeros, PadMode::reflect, PadMode::replicate, PadMode::circular}) {
    cases.push_back(
        along("take", "pad", [mode](const Var& x, int axis) { return padded(x, axis, mode); }));
  }
}

namespace {

// Adds to the arguments a weight and a bias, or one of them, of this shape; returns how to use
// them.
std::function<ScaleShift(const Vars&)> with_affine(PublicRandom& random, const Shape& shape,
                                                   std::vector<OpInput>& inputs) {
  const bool weight = !one_in(random, 4), bias = !weight || !one_in(random, 4);
  if (weight) inputs.push_back(parameter(random, shape));
  if (bias) inputs.push_back(parameter(random, shape));
  return [=](const Vars& x) {
    ScaleShift y;
    if (weight) y.weight = x[1];
    if (bias) y.bias = x.back();
    return y;
  };
}

Instance normalized_rows(PublicRandom& random, bool centered, bool affine) {
  const int features = static_cast<int>(draw(random, 1, 2));
  const Shape shape = random_shape(random, 4);
  Shape last;
  for (int i = 4 - features; i < 4; ++i) last.push_back(shape[i]);
  std::vector<OpInput> inputs{random_input(random, shape, 4 - features)};
  std::function<ScaleShift(const Vars&)> used = [](const Vars&) { return ScaleShift{}; };
  if (affine) used = with_affine(random, last, inputs);
  return {inputs,
          [=](const Vars& x) { return normalize(x[0], features, 1e-2, centered, used(x)); }};
}

// [n, h, w, c], whose channels lie side by side, or [n, c, h, w].
Instance normalized_groups(PublicRandom& random, bool affine) {
  const std::int64_t groups = draw(random, 1, 2), c = 2 * groups;
  const bool last = one_in(random, 2);
  Shape shape = random_shape(random, 4);
  shape[last ? 3 : 1] = c;
  std::vector<OpInput> inputs{random_input(random, shape, 1)};
  std::function<ScaleShift(const Vars&)> used = [](const Vars&) { return ScaleShift{}; };
  if (affine) used = with_affine(random, {c}, inputs);
  return {
      inputs, [=](const Vars& x) {
        return normalize_groups(last ? permute(x[0], {0, 3, 1, 2}) : x[0], groups, 1e-2, used(x));
      }};
}

void add_normalization_cases(std::vector<OpCase>& cases) {
  for (const bool affine : {false, true}) {
    for (const bool centered : {true, false}) {
      cases.push_back({"normalize", affine ? "last axes, scaled" : "last axes",
                       [=](PublicRandom& r) { return normalized_rows(r, centered, affine); }});
    }
    cases.push_back({"normalize", affine ? "groups of channels, scaled" : "groups of channels",
                     [=](PublicRandom& r) { return normalized_groups(r, affine); }});
  }
}

}  // namespace

void add_reduction_cases(std::vector<OpCase>& cases) {
  for (const bool keepdim : {false, true}) {
    cases.push_back(
        along("sum", "sum", [=](const Var& x, int axis) { return sum(x, {axis}, keepdim); }));
    cases.push_back(
        along("sum", "mean", [=](const Var& x, int axis) { return mean(x, {axis}, keepdim); }));
    cases.push_back(along("sum", "variance",
                          [=](const Var& x, int axis) { return variance(x, {axis}, keepdim, 0); }));
    cases.push_back(along("sum", "logsumexp",
                          [=](const Var& x, int axis) { return logsumexp(x, {axis}, keepdim); }));
    for (const double p : {0.5, 1.0, 3.0, 40.0, HUGE_VAL}) {
      cases.push_back(along("norm", "other exponents", [=](const Var& x, int axis) {
        return p_norm(affine(square(x), 1, 0.1), p, {axis}, keepdim);
      }));
    }
    cases.push_back(along("norm", "one axis",
                          [=](const Var& x, int axis) { return norm(x, {axis}, keepdim); }));
  }
  cases.push_back(along("sum", "everything but the samples", [](const Var& x, int) {
    return x.samples().batched() ? add(sum_per_sample(x), mean_per_sample(square(x))) : sum(x);
  }));
  cases.push_back({"sum", "several axes", [](PublicRandom& random) {
                     return Instance{{random_input(random, random_shape(random, 4), 2)},
                                     [](const Vars& x) {
                                       return add(sum(x[0], {-1, 2}), logsumexp(x[0], {2, 3}));
                                     }};
                   }});
  cases.push_back(along("sum", "standard deviation", [](const Var& x, int axis) {
    return standard_deviation(concat({x, affine(x, -1, 0.3)}, axis), {axis});
  }));
  cases.push_back(
      along("softmax", "any axis", [](const Var& x, int axis) { return softmax(x, axis); }));
  cases.push_back(along("log_softmax", "any axis",
                        [](const Var& x, int axis) { return log_softmax(x, axis); }));
  add_normalization_cases(cases);
  cases.push_back(along("map_axis", "any axis", [](const Var& x, int axis) {
    PublicRandom matrix(7);
    return map_axis(x, axis, uniform_values(matrix, {3, x.value().size(axis)}));
  }));
}

}  // namespace sotto
