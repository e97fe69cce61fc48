#include "tests/support/random_model.h"

#include <algorithm>
#include <functional>

#include "autograd/ops.h"
#include "core/random/philox.h"
#include "nn/functional.h"
#include "tests/support/op_cases.h"

namespace sotto {

// One run of a model. The first run creates the parameters; later ones use them in creation order.
class ModelRun {
 public:
  ModelRun(RandomModel& model, Tape& tape) : model_(model), tape_(&tape) {}

  Var start(const Tensor& x);
  // Steps begin .. end - 1, some of them as checkpointed segments.
  Var steps_cut(Var x, std::size_t begin, std::size_t end);
  Var step(const Var& x, std::uint64_t seed);

 private:
  using Step = Var (ModelRun::*)(const Var&);

  std::int64_t pick(std::int64_t low, std::int64_t high) { return draw(random_, low, high); }
  bool maybe(std::int64_t n) { return one_in(random_, n); }
  void say(const std::string& words);
  Var parameter(const Shape& shape, double size);
  Var weight(const Shape& shape);
  Var derived(const Shape& shape, double size);

  Var activation(const Var& x);
  Var gain(const Var& x);
  Var residual(const Var& x);
  Var normalised(const Var& x);
  Var dropped(const Var& x);
  Var reused(const Var& x);
  Var linear_step(const Var& x);
  Var samples_moved(const Var& x);
  Var reshaped(const Var& x);
  Var mixed_positions(const Var& x);
  Var attention(const Var& x);
  Var convolved(const Var& x);
  Var pooled(const Var& x);
  Var group_normalised(const Var& x);
  Var joined(const Var& x);
  Var sequence(const Var& x);
  Var enlarged(const Var& x);
  Var sorted(const Var& x);

  RandomModel& model_;
  Tape* tape_;
  PublicRandom random_{0};
  std::size_t used_ = 0;
};

namespace {

// The shape without the sample axis, which is the first.
Shape features(const Var& x) {
  Shape shape = x.shape();
  shape.erase(0);
  return shape;
}

double fan_in(const Shape& shape) {
  return std::max(1.0, static_cast<double>(shape.numel() / std::max<std::int64_t>(shape[0], 1)));
}

}  // namespace

void ModelRun::say(const std::string& words) { model_.words_.push_back(words); }

Var ModelRun::parameter(const Shape& shape, double size) {
  // Drawn even if the parameter exists, so that the decisions that follow do not differ.
  const Tensor initial = uniform_values(random_, shape, -size, size);
  const bool frozen = maybe(8);
  if (used_ == model_.parameters_.size()) {
    model_.parameters_.emplace_back(initial);
    model_.parameters_.back().trainable = !frozen;
  }
  return tape_->use(model_.parameters_[used_++]);
}

// A weight [o, ...]: a parameter, one that is also used elsewhere, or a function of parameters.
Var ModelRun::weight(const Shape& shape) {
  const double size = 1.5 / std::sqrt(fan_in(shape));
  if (maybe(3)) return derived(shape, size);
  const bool tie = maybe(3);
  const Shape turned = shape.rank() == 2 ? Shape{shape[1], shape[0]} : Shape{};
  for (std::size_t i = 0; tie && i < used_; ++i) {
    Parameter& other = model_.parameters_[i];
    if (other.value.shape() == shape) return say("  weight tied"), tape_->use(other);
    if (shape.rank() == 2 && other.value.shape() == turned) {
      return say("  weight tied, transposed"), transpose(tape_->use(other), 0, 1);
    }
  }
  return parameter(shape, size);
}

Var ModelRun::derived(const Shape& shape, double size) {
  Shape rest;
  for (int axis = 1; axis < shape.rank(); ++axis) rest.push_back(axis);
  Shape one_each = Shape::filled(shape.rank(), 1);
  one_each[0] = shape[0];
  switch (pick(0, 3)) {
    case 0: {
      say("  weight standardised");
      const Var w = parameter(shape, 1);
      const Var centred = w - mean(w, rest, true);
      const Var variance = mean(square(centred), rest, true);
      return affine(centred * rsqrt(affine(variance, 1, 0.1)), size, 0);
    }
    case 1: {
      say("  weight of low rank");
      const std::int64_t rank = pick(1, 2), columns = shape.numel() / shape[0];
      const Var a = parameter({shape[0], rank}, 1), b = parameter({rank, columns}, size);
      return parameter(shape, size) + reshape(matmul(a, b), shape);
    }
    case 2: {
      say("  weight with a gain");
      return parameter(shape, size) * softplus(parameter(one_each, 1));
    }
    default: {
      say("  weight bounded");
      return affine(tanh(parameter(shape, 1)), size, 0);
    }
  }
}

Var ModelRun::start(const Tensor& x) {
  const Var in = tape_->input(x);
  if (is_float(x.dtype())) return in;
  say("embedding");
  random_ = PublicRandom(model_.plan_.seed, 1);
  constexpr std::int64_t rows = 4;
  return embedding(parameter({rows, 3}, 1), in,
                   maybe(2) ? std::optional<std::int64_t>(1) : std::nullopt);
}

Var ModelRun::activation(const Var& x) {
  say("activation");
  switch (pick(0, 6)) {
    case 0: return tanh(x);
    case 1: return sigmoid(x);
    case 2: return gelu(x);
    case 3: return sin(x);
    case 4: return elu(x);
    case 5: return softsign(x);
    default: return relu(affine(x, 1, 0.1));
  }
}

// Arithmetic with parameters of any shape that broadcasts.
Var ModelRun::gain(const Var& x) {
  say("gain and shift");
  Shape shape = features(x);
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (maybe(2)) shape[axis] = 1;
  }
  while (shape.rank() > 0 && maybe(3)) shape.erase(0);
  return x * parameter(shape, 1.5) + parameter(features(x), 0.5);
}

Var ModelRun::residual(const Var& x) {
  say("residual");
  return x + tanh(x * parameter(features(x), 1));
}

Var ModelRun::normalised(const Var& x) {
  say("layer norm");
  const Shape all = features(x);
  const Shape last{all[all.rank() - 1]};
  nn::ScaleShift affine;
  if (maybe(2)) affine.weight = parameter(last, 1.5);
  if (maybe(2)) affine.bias = parameter(last, 0.5);
  return maybe(3) ? nn::rms_norm(x, last, {affine.weight, {}}, 0.1)
                  : nn::layer_norm(x, last, affine, 0.1);
}

Var ModelRun::dropped(const Var& x) {
  say("dropout");
  return dropout(x, 0.3);
}

// x times a number that is a function of an earlier parameter.
Var ModelRun::reused(const Var& x) {
  if (used_ == 0) return x;
  say("scaled by the mean of an earlier parameter");
  const auto which = static_cast<std::size_t>(pick(0, static_cast<std::int64_t>(used_) - 1));
  return x * affine(mean(tanh(tape_->use(model_.parameters_[which]))), 1, 1);
}

Var ModelRun::linear_step(const Var& x) {
  say("linear");
  const std::int64_t in = x.shape()[x.rank() - 1], out = pick(1, 6);
  const Var w = weight({out, in});
  return maybe(2) ? linear(x, w, parameter({out}, 0.5)) : linear(x, w);
}

// A linear step on the values with the samples along another axis.
Var ModelRun::samples_moved(const Var& x) {
  if (x.rank() < 3) return linear_step(x);
  say("samples along axis 1:");
  return transpose(linear_step(transpose(x, 0, 1)), 0, 1);
}

Var ModelRun::reshaped(const Var& x) {
  const Shape shape = features(x);
  const std::int64_t count = shape.numel();
  if (shape.rank() == 3 && maybe(2)) {
    say("pixels as positions");
    return permute(reshape(x, {-1, shape[0], shape[1] * shape[2]}), {0, 2, 1});
  }
  if (shape.rank() == 1 && count % 2 == 0) {
    say("vector as two positions");
    return reshape(x, {-1, 2, count / 2});
  }
  if (shape.rank() == 1 && count % 9 == 0) {
    say("vector as image");
    return reshape(x, {-1, count / 9, 3, 3});
  }
  if (shape.rank() == 2 && maybe(2)) {
    say("positions and features exchanged");
    return transpose(x, 1, 2);
  }
  if (shape.rank() > 1) {
    say("flattened");
    return flatten(x);
  }
  return x;
}

// A trained matrix over positions: shared, on the left.
Var ModelRun::mixed_positions(const Var& x) {
  if (x.rank() != 3) return gain(x);
  say("matrix over positions");
  return matmul(weight({pick(1, 5), x.shape()[1]}), x);
}

Var ModelRun::attention(const Var& x) {
  if (x.rank() != 3) return linear_step(x);
  say("attention");
  const std::int64_t width = x.shape()[2];
  const Var q = linear(x, weight({width, width})), k = linear(x, weight({width, width}));
  const Var v = linear(x, weight({width, width}));
  if (maybe(2))
    return x + sotto::attention(q, k, v, {}, {.causal = maybe(2), .dropout = maybe(3) ? 0.2 : 0.0});
  return x + matmul(softmax(matmul(q, transpose(k, 1, 2))), v);
}

Var ModelRun::convolved(const Var& x) {
  if (x.rank() < 3) return residual(x);
  say("convolution");
  const std::int64_t channels = x.shape()[1];
  std::int64_t groups = maybe(2) ? pick(1, channels) : 1;
  while (channels % groups != 0) --groups;
  Shape kernel, padding, stride, dilation;
  for (int axis = 2; axis < x.rank(); ++axis) {
    const std::int64_t size = x.shape()[axis];
    kernel.push_back(pick(1, std::min<std::int64_t>(3, size)));
    padding.push_back(pick(0, 1));
    stride.push_back(pick(1, 2));
    dilation.push_back(maybe(3) && 2 * (kernel[axis - 2] - 1) < size ? 2 : 1);
  }
  Shape shape{groups * pick(1, 3), channels / groups};
  for (const std::int64_t k : kernel) shape.push_back(k);
  const Var w = weight(shape);
  const std::optional<Var> bias =
      maybe(2) ? std::optional(parameter({shape[0]}, 0.5)) : std::nullopt;
  return conv(x, w, bias,
              {.stride = stride, .padding = padding, .dilation = dilation, .groups = groups});
}

Var ModelRun::pooled(const Var& x) {
  if (x.rank() < 3 || x.shape()[x.rank() - 1] < 2 || x.shape()[2] < 2) return activation(x);
  say("pooling");
  const PoolOptions options{.kernel = {2}, .stride = {pick(1, 2)}};
  return maybe(2) ? max_pool(x, options) : avg_pool(x, options);
}

Var ModelRun::group_normalised(const Var& x) {
  if (x.rank() < 3) return normalised(x);
  say("group norm");
  const std::int64_t channels = x.shape()[1];
  const nn::ScaleShift affine{parameter({channels}, 1.5), parameter({channels}, 0.5)};
  return maybe(2) ? nn::group_norm(x, 1, affine, 0.1) : nn::instance_norm(x, affine, 0.1);
}

// A recurrent layer over the positions.
Var ModelRun::sequence(const Var& x) {
  if (x.rank() != 3) return gain(x);
  say("recurrent");
  const Cell cell = static_cast<Cell>(pick(0, 3));
  const std::int64_t in = x.shape()[2], hidden = pick(1, 3), gates = gate_count(cell) * hidden;
  RecurrentWeights w{weight({gates, in}), weight({gates, hidden}), {}, {}, {}};
  if (maybe(2)) w.bias_ih = parameter({gates}, 0.5);
  if (maybe(2)) w.bias_hh = parameter({gates}, 0.5);
  return recurrent(cell, x, w, {}, {}, {.reverse = maybe(2), .lengths = {}}).output;
}

Var ModelRun::enlarged(const Var& x) {
  if (x.rank() < 3 || features(x).numel() > 60) return activation(x);
  Shape size;
  for (int axis = 2; axis < x.rank(); ++axis) size.push_back(pick(1, 4));
  if (maybe(2)) {
    say("upsampled");
    return upsample(x, size, {maybe(2) ? Interpolation::nearest : Interpolation::linear, maybe(2)});
  }
  say("transposed convolution");
  Shape shape{x.shape()[1], pick(1, 3)};
  for (int axis = 2; axis < x.rank(); ++axis) shape.push_back(pick(1, 3));
  const Var w = weight(shape);
  return conv_transpose(x, w, std::nullopt, {.stride = {pick(1, 2)}});
}

Var ModelRun::sorted(const Var& x) {
  say("sorted");
  return maybe(2) ? sort(x, -1, maybe(2)).values : cumulative_sum(x, -1);
}

// Two branches concatenated, one of them through a parameter.
Var ModelRun::joined(const Var& x) {
  if (features(x).numel() > 40) return x;
  say("joined with a branch of itself");
  return concat({x, tanh(x * parameter(features(x), 1))}, -1);
}

Var ModelRun::step(const Var& x, std::uint64_t seed) {
  random_ = PublicRandom(seed, 0);
  tape_ = &x.tape();
  static constexpr Step steps[] = {&ModelRun::activation,       &ModelRun::gain,
                                   &ModelRun::residual,         &ModelRun::normalised,
                                   &ModelRun::dropped,          &ModelRun::reused,
                                   &ModelRun::linear_step,      &ModelRun::linear_step,
                                   &ModelRun::samples_moved,    &ModelRun::reshaped,
                                   &ModelRun::reshaped,         &ModelRun::mixed_positions,
                                   &ModelRun::attention,        &ModelRun::convolved,
                                   &ModelRun::convolved,        &ModelRun::pooled,
                                   &ModelRun::group_normalised, &ModelRun::joined,
                                   &ModelRun::sequence,         &ModelRun::sequence,
                                   &ModelRun::enlarged,         &ModelRun::sorted};
  return (this->*steps[pick(0, static_cast<std::int64_t>(std::size(steps)) - 1)])(x);
}

Var ModelRun::steps_cut(Var x, std::size_t begin, std::size_t end) {
  while (begin < end) {
    const std::uint64_t seed = model_.plan_.steps[begin++];
    const std::size_t last = std::min(end, begin + seed % 7);
    // Every run must use the parameters in one order.
    const auto part = [=, this, used = used_](const Var& v) {
      used_ = used;
      return steps_cut(step(v, seed), begin, last);
    };
    x = seed % 3 == 0 ? segment(part, x) : step(x, seed);
    if (seed % 3 == 0) begin = last;
  }
  return x;
}

ModelPlan random_plan(std::uint64_t seed) {
  PublicRandom random(seed, 2);
  ModelPlan plan{seed, {}, draw(random, 1, 5)};
  const std::int64_t depth = draw(random, 1, 30);
  for (std::int64_t i = 0; i < depth; ++i)
    plan.steps.push_back(static_cast<std::uint64_t>(random.below(1ll << 40)));
  return plan;
}

RandomModel::RandomModel(const ModelPlan& plan) : plan_(plan) {
  PublicRandom random(plan.seed, 3);
  Shape shape = random_shape(random, static_cast<int>(draw(random, 1, 3)), 6);
  shape.insert(0, plan.samples);
  const bool ids = shape.rank() == 3 && one_in(random, 2);
  inputs_ = ids ? random_ids(random, {plan.samples, shape[1]}, 4) : uniform_values(random, shape);
  Tape tape;
  loss(tape, inputs_);
}

Var RandomModel::loss(Tape& tape, const Tensor& x, bool cut) {
  words_.clear();
  const auto run = std::make_shared<ModelRun>(*this, tape);
  run_ = run;
  Var y = run->start(x);
  if (cut) {
    y = run->steps_cut(y, 0, plan_.steps.size());
  } else {
    for (const std::uint64_t seed : plan_.steps) y = run->step(y, seed);
  }
  return mean_per_sample(square(affine(y, 1, -0.3)));
}

std::string RandomModel::description() const {
  std::string text = fmt::format("input {} {}\n", name(inputs_.dtype()), inputs_.shape());
  for (const std::string& words : words_) text += words + "\n";
  return text;
}

}  // namespace sotto
