// The operations of random graphs that move elements, select some or reduce axes.
#include "autograd/ops.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/fuzzed_graph.h"

namespace sotto {

namespace {

template <Var (*F)(const Var&, int, bool)>
Var along_axis(GraphStep& s) {
  const Var x = s.x();
  return F(x, s.axis(x), s.one_in(2));
}
template <Var (*F)(const Var&, const Shape&, bool)>
Var over_axes(GraphStep& s) {
  const Var x = s.x();
  Shape axes{s.axis(x)};
  if (s.one_in(3)) axes.push_back(s.axis(x));
  return F(x, axes, s.one_in(2));
}

// The axes of x in another order.
Shape shuffled(GraphStep& s, const Var& x) {
  Shape order;
  for (int i = 0; i < x.rank(); ++i) order.push_back(i);
  for (int i = x.rank() - 1; i > 0; --i) std::swap(order[i], order[static_cast<int>(s.draw(0, i))]);
  return order;
}

// Ids for gather() and scatter_add() along `axis` of x.
Var ids_beside(GraphStep& s, const Var& x, int axis) {
  Shape features = x.shape();
  features[axis] = s.draw(0, 4);
  const bool batched = x.samples().batched();
  if (batched) features.erase(x.samples().axis());
  return s.ids(features, std::max<std::int64_t>(1, x.shape()[axis]),
               batched ? x.samples().axis() : 0);
}

Var gathered(GraphStep& s) {
  const Var x = s.x();
  const int axis = normalize_axis("gather", s.axis(x), x.rank());
  return gather(x, axis, ids_beside(s, x, axis));
}

Var gathered_from_shared(GraphStep& s) {
  const std::int64_t rows = s.draw(1, 4), columns = s.draw(1, 3);
  const int axis = static_cast<int>(s.draw(0, 1)), samples = static_cast<int>(s.draw(0, 1));
  const std::int64_t kept = axis == 0 ? columns : rows;
  const Var ids =
      s.ids({axis == samples ? kept : s.draw(1, 3)}, axis == 0 ? rows : columns, samples);
  return gather(s.parameter({rows, columns}), axis, ids);
}

Var scattered(GraphStep& s) {
  const Var x = s.x();
  const int axis = normalize_axis("scatter", s.axis(x), x.rank());
  const Var ids = ids_beside(s, x, axis);
  Shape features = ids.shape();
  if (ids.samples().batched()) features.erase(ids.samples().axis());
  return scatter_add(x, axis, ids,
                     s.input(features, ids.samples().batched() ? ids.samples().axis() : 0));
}

Var reshaped(GraphStep& s) {
  const Var x = s.x(static_cast<int>(s.draw(2, 4)));
  const std::int64_t n = x.shape()[0];
  Shape shape{n};
  for (int i = 1; i < x.rank(); ++i) {
    const std::int64_t size = x.shape()[i];
    if (size % 2 == 0 && size > 0 && shape.rank() < 4 && s.one_in(2)) {
      shape.push_back(2);
      shape.push_back(size / 2);
    } else if (i > 1 && s.one_in(2)) {
      shape[shape.rank() - 1] *= size;
    } else {
      shape.push_back(size);
    }
  }
  return reshape(x, shape);
}

Var expanded(GraphStep& s) {
  const Var x = s.x();
  Shape shape = x.shape();
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1 && !(x.samples() == SampleAxis(i))) shape[i] = s.size();
  }
  if (s.one_in(2)) shape.insert(0, s.draw(1, 2));
  return expand(x, shape);
}

Var sliced(GraphStep& s) {
  const Var x = s.x();
  const int axis = normalize_axis("slice", s.axis(x), x.rank());
  const std::int64_t size = x.shape()[axis], begin = s.draw(0, 3);
  return x.samples() == SampleAxis(axis) ? slice(x, axis, 0, size, 2)
                                         : slice(x, axis, begin, size, s.draw(1, 2));
}

Var selected(GraphStep& s) {
  const Var x = s.x();
  const int axis = s.axis(x);
  return select(x, axis, s.one_in(2) ? -1 : 0);
}

Var concatenated(GraphStep& s) {
  const Var x = s.x();
  const int axis = s.axis(x);
  return concat({x, s.same(x), tanh(x)}, axis);
}

Var stacked(GraphStep& s) {
  const Var x = s.x();
  return stack({x, s.same(x)}, static_cast<int>(s.draw(0, x.rank())));
}

Var split_and_joined(GraphStep& s) {
  const Var x = s.x();
  const int axis = normalize_axis("split", s.axis(x), x.rank());
  const std::int64_t size = x.samples() == SampleAxis(axis) ? 0 : x.shape()[axis];
  const std::int64_t first = s.draw(0, size);
  const std::vector<Var> parts = split(x, axis, {first, size - first});
  return concat({parts[1], parts[0]}, axis);
}

Var viewed(GraphStep& s) {
  const Var x = s.x(static_cast<int>(s.draw(1, 3)));
  const Var y = join_views({x, s.same(x), sin(x)});
  const std::vector<Var> views = split_views(tanh(y * s.parameter({})), 3);
  return views[0] * views[1] - views[2];
}

Var repeated(GraphStep& s) {
  const Var x = s.x();
  Shape counts;
  for (int i = 0; i < x.rank(); ++i) {
    counts.push_back(x.samples() == SampleAxis(i) ? 1 : s.draw(1, 2));
  }
  return repeat(x, counts);
}

Var padded(GraphStep& s) {
  const Var x = s.x();
  const int axis = s.axis(x);
  return pad(x, axis, s.draw(0, 2), s.draw(0, 2), static_cast<PadMode>(s.draw(0, 3)));
}

Var taken(GraphStep& s) {
  const Var x = s.x();
  const int axis = s.axis(x);
  std::vector<std::int64_t> ids;
  for (std::int64_t k = s.draw(0, 4); k > 0; --k)
    ids.push_back(s.draw(-1, std::max<std::int64_t>(1, x.value().size(axis)) - 1));
  return take(x, axis, ids);
}

Var mapped(GraphStep& s) {
  const Var x = s.x();
  const int axis = s.axis(x);
  const std::int64_t in = x.samples() == SampleAxis(axis) ? 2 : x.value().size(axis);
  std::vector<double> matrix;
  for (std::int64_t i = 0; i < 3 * in; ++i) matrix.push_back(static_cast<double>(s.draw(-2, 2)));
  return map_axis(x, axis, Tensor::from(matrix, {3, in}));
}

Var ordered(GraphStep& s, const Ordered& y) { return s.also(y.ids), y.values; }

Var grouped(GraphStep& s) {
  const Var x = s.x(static_cast<int>(s.draw(2, 4)));
  const std::int64_t c = x.shape()[1];
  return normalize_groups(x, c % 2 == 0 && s.one_in(2) ? 2 : 1, 0.1);
}

const FuzzedOp layouts[] = {
    {"reshape", reshaped},
    {"flatten", [](GraphStep& s) { return flatten(s.x(static_cast<int>(s.draw(2, 4)))); }},
    {"permute",
     [](GraphStep& s) {
       const Var x = s.x();
       return permute(x, shuffled(s, x));
     }},
    {"transpose",
     [](GraphStep& s) {
       const Var x = s.x();
       const int a = s.axis(x);
       return transpose(x, a, s.axis(x));
     }},
    {"unsqueeze",
     [](GraphStep& s) {
       const Var x = s.x();
       return unsqueeze(x, static_cast<int>(s.draw(0, x.rank())));
     }},
    {"squeeze",
     [](GraphStep& s) {
       const Var x = s.x();
       return squeeze(unsqueeze(x, x.rank()), -1);
     }},
    {"expand", expanded},
    {"slice", sliced},
    {"select", selected},
    {"concat", concatenated},
    {"stack", stacked},
    {"split", split_and_joined},
    {"chunk",
     [](GraphStep& s) {
       const Var x = s.x();
       const int axis = s.axis(x);
       return chunk(x, axis, 2).at(0);
     }},
    {"join_views", viewed},
    {"split_views", viewed},
    {"repeat", repeated},
    {"take", taken},
    {"flip",
     [](GraphStep& s) {
       const Var x = s.x();
       return flip(x, {s.axis(x)});
     }},
    {"roll",
     [](GraphStep& s) {
       const Var x = s.x();
       const int axis = s.axis(x);
       return roll(x, axis, s.draw(-3, 3));
     }},
    {"pad", padded},
    {"tril", [](GraphStep& s) { return tril(s.x(3), s.draw(-1, 1)); }},
    {"triu", [](GraphStep& s) { return triu(s.x(3), s.draw(-1, 1)); }},
    {"gather", gathered},
    {"gather", gathered_from_shared},
    {"scatter_add", scattered},
    {"max", along_axis<max>},
    {"min", along_axis<min>},
    {"argmax", along_axis<argmax>},
    {"prod", along_axis<prod>},
    {"amax", over_axes<amax>},
    {"amin", over_axes<amin>},
    {"cumulative_sum",
     [](GraphStep& s) {
       const Var x = s.x();
       return cumulative_sum(x, s.axis(x));
     }},
    {"sort",
     [](GraphStep& s) {
       const Var x = s.x();
       return ordered(s, sort(x, s.axis(x), s.one_in(2)));
     }},
    {"topk",
     [](GraphStep& s) {
       const Var x = s.x();
       return ordered(s, topk(x, s.draw(0, 2), s.axis(x), s.one_in(2)));
     }},
    {"sum", over_axes<sum>},
    {"mean", over_axes<mean>},
    {"variance",
     [](GraphStep& s) {
       const Var x = s.x();
       return variance(x, {s.axis(x)}, s.one_in(2), 0);
     }},
    {"standard_deviation",
     [](GraphStep& s) {
       const Var x = s.x();
       return standard_deviation(x, {s.axis(x)}, s.one_in(2));
     }},
    {"norm", over_axes<norm>},
    {"p_norm",
     [](GraphStep& s) {
       const Var x = s.x();
       return p_norm(x, static_cast<double>(s.draw(1, 3)), {s.axis(x)}, s.one_in(2));
     }},
    {"logsumexp", over_axes<logsumexp>},
    {"sum_per_sample", [](GraphStep& s) { return sum_per_sample(s.x()); }},
    {"mean_per_sample", [](GraphStep& s) { return mean_per_sample(s.x()); }},
    {"softmax",
     [](GraphStep& s) {
       const Var x = s.x();
       return softmax(x, s.axis(x));
     }},
    {"log_softmax",
     [](GraphStep& s) {
       const Var x = s.x();
       return log_softmax(x, s.axis(x));
     }},
    {"normalize", [](GraphStep& s) { return normalize(s.x(), 1, 0.1, s.one_in(2)); }},
    {"normalize_groups", grouped},
    {"map_axis", mapped}};

}  // namespace

std::span<const FuzzedOp> fuzzed_layouts() { return layouts; }

}  // namespace sotto
