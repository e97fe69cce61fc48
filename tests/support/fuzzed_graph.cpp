#include "tests/support/fuzzed_graph.h"

#include <algorithm>
#include <cmath>

#include "autograd/op.h"
#include "autograd/ops.h"
#include "autograd/parameter.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// The features of a value: its shape without the sample axis.
Shape features_of(const Var& x) {
  Shape shape = x.shape();
  if (x.samples().batched()) shape.erase(x.samples().axis());
  return shape;
}

Shape range(int n) {
  Shape axes;
  for (int i = 0; i < n; ++i) axes.push_back(i);
  return axes;
}

// The axes in another order: that at `from` moves to `to`.
Shape moved(int rank, int from, int to) {
  Shape order = range(rank);
  order.erase(from);
  order.insert(to, from);
  return order;
}

double number(PublicRandom& random, Held held, double scale) {
  const double x = scale * (4 * random.uniform() - 2);
  switch (held) {
    case Held::nan: return std::nan("");
    case Held::infinite: return x < 0 ? -HUGE_VAL : HUGE_VAL;
    case Held::huge: return x * 1e30;
    default: return x;
  }
}

}  // namespace

GraphStep::GraphStep(FuzzedGraph& graph, Tape& tape, std::uint64_t seed)
    : graph_(graph), tape_(tape), random_(seed, 1) {}

std::int64_t GraphStep::size() { return one_in(24) ? 0 : draw(1, 4); }

Shape GraphStep::sizes(int rank) {
  Shape shape;
  for (int i = 0; i < rank; ++i) shape.push_back(size());
  return shape;
}

Var GraphStep::x() {
  const auto n = static_cast<std::int64_t>(graph_.pool_.size());
  if (n == 0 || one_in(6)) {
    const Shape features = sizes(static_cast<int>(draw(0, 3)));
    return input(features, static_cast<int>(draw(0, features.rank())));
  }
  if (one_in(8)) return shared();
  return graph_.pool_[static_cast<std::size_t>(std::max(draw(0, n - 1), draw(0, n - 1)))];
}

Var GraphStep::x(int rank) {
  std::vector<Var> fit;
  for (const Var& x : graph_.pool_) {
    if (x.samples().batched() && x.rank() == rank) fit.push_back(x);
  }
  if (fit.empty() || one_in(6)) return input(sizes(rank - 1));
  const Var& x = fit[static_cast<std::size_t>(draw(0, std::ssize(fit) - 1))];
  return x.samples().axis() == 0 ? x : permute(x, moved(rank, x.samples().axis(), 0));
}

Var GraphStep::shared() {
  std::vector<Var> fit;
  for (const Var& x : graph_.pool_) {
    if (x.samples().is_shared()) fit.push_back(x);
  }
  if (fit.empty() || one_in(3)) return parameter(sizes(static_cast<int>(draw(0, 3))));
  return fit[static_cast<std::size_t>(draw(0, std::ssize(fit) - 1))];
}

Var GraphStep::same(const Var& x) {
  for (const Var& y : graph_.pool_) {
    if (y.shape() == x.shape() && y.samples() == x.samples() && !y.is(x) && one_in(2)) return y;
  }
  return x.samples().batched() ? input(features_of(x), x.samples().axis()) : parameter(x.shape());
}

Var GraphStep::like(const Var& x) {
  if (one_in(2)) return same(x);
  Shape shape = x.shape();
  for (int i = 0; i < shape.rank(); ++i) {
    if (x.samples() == SampleAxis(i) || one_in(3)) shape[i] = 1;
  }
  while (shape.rank() > 0 && shape[0] == 1 && one_in(2)) shape.erase(0);
  return parameter(shape);
}

Var GraphStep::within(const Var& x, double low, double high) {
  return one_in(8) ? x : affine(sigmoid(x), high - low, low);
}

int GraphStep::axis(const Var& x) {
  if (x.rank() == 0) return 0;
  int axis = static_cast<int>(draw(0, x.rank() - 1));
  for (int k = 0; k < 5 && x.samples() == SampleAxis(axis); ++k)
    axis = static_cast<int>(draw(0, x.rank() - 1));
  return one_in(4) ? axis - x.rank() : axis;
}

// The same values in another memory order: row-major, any, channels last, with gaps, or repeated.
Tensor GraphStep::laid_out(const Tensor& x, int samples) {
  const int kind = static_cast<int>(draw(0, 5)), rank = x.rank(),
            at = static_cast<int>(draw(0, rank - 1));
  Shape order = range(rank);
  for (int i = rank - 1; kind == 1 && i > 0; --i)
    std::swap(order[i], order[static_cast<int>(draw(0, i))]);
  if (kind == 2 && rank > 2) order = moved(rank, 1, rank - 1);
  if (kind <= 2) {
    const Tensor y = Tensor::empty_ordered(x.shape(), order, x.dtype(), cpu);
    return copy_into(x, y), y;
  }
  if (kind == 3) {
    Shape larger = x.shape();
    larger[at] = 2 * larger[at] + 1;
    const Tensor y = full(larger, 7, x.dtype()).slice(at, 1, larger[at], 2);
    return copy_into(x, y), y;
  }
  if (kind == 4 && at != samples && x.size(at) > 0)
    return contiguous(x.slice(at, 0, 1)).expand(x.shape());
  return x;
}

template <class T, class F>
Tensor GraphStep::rows(const Shape& features, F&& value) {
  const GraphBatch& batch = graph_.batch_;
  const auto stream = 16 + static_cast<std::uint64_t>(graph_.inputs_so_far_++) * 64;
  std::vector<T> values;
  for (const std::int64_t sample : batch.samples) {
    const bool changed =
        std::find(batch.changed.begin(), batch.changed.end(), sample) != batch.changed.end();
    const Held held = changed ? batch.held : Held::own;
    PublicRandom random(graph_.plan_.seed + (held == Held::own ? 0 : 1),
                        stream + static_cast<std::uint64_t>(sample));
    for (std::int64_t i = 0; i < features.numel(); ++i) values.push_back(value(random, held));
  }
  Shape shape = features;
  shape.insert(0, std::ssize(batch.samples));
  return Tensor::from(values, shape);
}

Var GraphStep::input(const Shape& features, int axis) {
  constexpr double scales[] = {1, 1, 1, 0.01, 30};
  const double scale = scales[draw(0, 4)];
  const Tensor x = rows<double>(
      features, [&](PublicRandom& random, Held held) { return number(random, held, scale); });
  const Tensor placed = to_dtype(x, graph_.plan_.dtype).permute(moved(x.rank(), 0, axis));
  graph_.inputs_.push_back(tape_.input(laid_out(placed, axis), axis, true));
  return also(graph_.inputs_.back());
}

Var GraphStep::ids(const Shape& features, std::int64_t below, int axis) {
  const Tensor x =
      rows<std::int64_t>(features, [&](PublicRandom& random, Held) { return random.below(below); });
  return tape_.input(x.permute(moved(x.rank(), 0, axis)), axis);
}

Var GraphStep::hidden(const Shape& features) {
  constexpr Dtype types[] = {Dtype::boolean, Dtype::u8, Dtype::i32, Dtype::i64};
  const Tensor x =
      rows<std::int64_t>(features, [](PublicRandom& random, Held) { return random.below(2); });
  return tape_.input(to_dtype(x, types[draw(0, 3)]), 0);
}

Var GraphStep::parameter(const Shape& shape) {
  std::vector<double> values;
  for (std::int64_t i = 0; i < shape.numel(); ++i) values.push_back(2 * random_.uniform() - 1);
  if (graph_.used_ == graph_.parameters_.size())
    graph_.parameters_.emplace_back(to_dtype(Tensor::from(values, shape), graph_.plan_.dtype));
  Parameter& parameter = graph_.parameters_[graph_.used_++];
  if (parameter.value.shape() != shape)
    throw std::runtime_error(fmt::format("graph: {}: another parameter {} than {} before",
                                         graph_.op_, shape, parameter.value.shape()));
  return also(tape_.use(parameter));
}

Var GraphStep::weight(const Shape& shape) {
  const Var w = parameter(shape);
  switch (draw(0, 4)) {
    case 0: return tanh(w);
    case 1: return w * parameter(Shape::filled(shape.rank(), 1));
    case 2: return shape.rank() == 2 ? transpose(parameter({shape[1], shape[0]}), 0, 1) : w;
    default: return w;
  }
}

Var GraphStep::shared_rows(const Shape& features) {
  if (samples() < 0) input({});
  Shape shape = features;
  shape.insert(0, samples());
  return expand(parameter(features), shape);
}

Var GraphStep::also(const Var& y) {
  graph_.take(graph_.op_, y);
  return y;
}

GraphPlan random_graph(std::uint64_t seed) {
  PublicRandom random(seed, 2);
  constexpr std::pair<Dtype, Dtype> types[] = {{Dtype::f64, Dtype::f32},  {Dtype::f32, Dtype::f32},
                                               {Dtype::f32, Dtype::bf16}, {Dtype::f32, Dtype::f16},
                                               {Dtype::bf16, Dtype::f32}, {Dtype::f16, Dtype::f32}};
  const auto [dtype, precision] = types[random.below(std::size(types))];
  GraphPlan plan{seed, 2 + random.below(4), dtype, precision};
  const std::int64_t depth = 1 + random.below(14);
  for (std::int64_t i = 0; i < depth; ++i)
    plan.steps.push_back(static_cast<std::uint64_t>(random.below(1ll << 40)));
  return plan;
}

const std::vector<FuzzedOp>& fuzzed_ops() {
  static const std::vector<FuzzedOp> ops = [] {
    std::vector<FuzzedOp> all;
    for (const auto part : {fuzzed_elementwise(), fuzzed_layouts(), fuzzed_structures(),
                            fuzzed_losses(), fuzzed_refusals()})
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }();
  return ops;
}

void FuzzedGraph::take(const char* op, const Var& y) {
  constexpr std::int64_t max_elements = 400;
  values_.push_back({op, y});
  if (is_float(y.dtype()) && features_of(y).numel() <= max_elements && y.rank() <= 4)
    pool_.push_back(y);
}

void FuzzedGraph::step(Tape& tape, std::uint64_t seed) {
  GraphStep step(*this, tape, seed);
  const FuzzedOp& op =
      fuzzed_ops()[static_cast<std::size_t>(step.draw(0, std::ssize(fuzzed_ops()) - 1))];
  op_ = op.name;
  try {
    step.also(op.apply(step));
    outcomes_.emplace_back(op.name);
    if (op.refused) accepted_wrongly_.push_back(std::string(op.name) + " was accepted");
  } catch (const std::invalid_argument& error) {
    outcomes_.push_back(std::string(op.name) + " refused");
    if (op.refused && std::string_view(error.what()).find(op.refused) == std::string_view::npos)
      accepted_wrongly_.push_back(error.what());
  }
}

TapeOptions FuzzedGraph::tape_options(const GraphBatch& batch) const {
  return {.private_data = true, .precision = plan_.precision, .seed = 3, .rows = batch.samples};
}

Var FuzzedGraph::loss(Tape& tape, const GraphBatch& batch) {
  batch_ = batch;
  used_ = 0;
  inputs_so_far_ = 0;
  values_.clear();
  inputs_.clear();
  pool_.clear();
  outcomes_.clear();
  accepted_wrongly_.clear();
  GraphStep start(*this, tape, plan_.seed);
  op_ = "input";
  const Dtype wide = plan_.dtype == Dtype::f64 ? Dtype::f64 : Dtype::f32;
  Var total = cast(start.input({}), wide);
  for (const std::uint64_t seed : plan_.steps) step(tape, seed);
  constexpr std::size_t last = 8;
  const std::size_t begin = pool_.size() > last ? pool_.size() - last : 0;
  for (std::size_t i = begin; i < pool_.size(); ++i) {
    const Var y = cast(pool_[i], wide);
    total = y.samples().batched() ? total + sum_per_sample(softsign(y))
                                  : total + total * softsign(sum(y));
  }
  return cast(total, wide);
}

}  // namespace sotto
