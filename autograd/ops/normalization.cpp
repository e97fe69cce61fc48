#include "autograd/ops/normalization.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/precision.h"
#include "autograd/sample_axis_rules.h"
#include "autograd/trace.h"
#include "kernels/backend.h"
#include "kernels/host_device/norm_formulas.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

const Op normalize_op("normalize", {.captures = Op::Captures::shared, .batchable = true});

// The samples of an array and the blocks of a sample, with their distances in blocks.
struct BlockStrides {
  std::int64_t samples, blocks, sample_step, block_step;
};

// A value is a row of blocks of groups of channels with places, in this order in memory, or with
// the channels last.
struct Layout {
  std::int64_t count, groups, channels, places;  // of blocks; of a block; of a group; of a channel
  bool channels_last = false;
  Shape order = {};  // of the value's axes in memory
  BlockStrides by_sample = {};
  Shape affine = {};  // of weight and bias, so that they broadcast to the value

  std::int64_t width() const { return groups * channels; }
  BlockStrides together() const { return {1, count, 0, 1}; }

  // [samples, blocks, groups, channels, places] of x's elements.
  View view(const Tensor& x, const BlockStrides& of) const {
    const std::int64_t block = width() * places;
    View y = x.view();
    y.rank = 5;
    const std::int64_t sizes[] = {of.samples, of.blocks, groups, channels, places};
    const std::int64_t strides[] = {of.sample_step * block, of.block_step * block,
                                    channels_last ? channels : channels * places,
                                    channels_last ? 1 : places, channels_last ? width() : 1};
    std::copy(std::begin(sizes), std::end(sizes), y.size);
    std::copy(std::begin(strides), std::end(strides), y.stride);
    return y;
  }
  // [samples, blocks, groups, 2, 1]
  View stats(const Tensor& x, const BlockStrides& of) const {
    return Layout{count, groups, 2, 1}.view(x, of);
  }
  // The order in memory of an array that may have a sample axis in front.
  Shape order_of(const Tensor& x) const {
    const int more = x.rank() - order.rank();
    Shape axes;
    for (int i = 0; i < more; ++i) axes.push_back(i);
    for (const std::int64_t axis : order) axes.push_back(axis + more);
    return axes;
  }
  bool fits(const Tensor& x) const { return x.permute(order_of(x)).contiguous(); }
  Tensor empty(const Tensor& x, Dtype dtype) const {
    return Tensor::empty_ordered(x.shape(), order_of(x), dtype, x.device());
  }
  Tensor copy(const Tensor& x) const {
    const Tensor y = empty(x, x.dtype());
    copy_into(x, y);
    return y;
  }
};

View view_or_none(const Tensor& x) { return x.defined() ? x.view() : View{}; }

// The backward pass, with the tensors that it reads.
struct NormalizeGradient {
  Layout layout;
  NormRule rule;
  SampleAxis samples;
  Tensor x, stats, weight;
  std::vector<Shape> affine_shapes;  // of the inputs after x
  bool has_weight;

  void operator()(const Tensor& dy, Adjoint& adjoint) const {
    BlockStrides of_x = layout.together(), of_dy = of_x;
    if (samples.batched() && !adjoint.sums_only() && !affine_shapes.empty())
      of_x = of_dy = layout.by_sample;
    if (adjoint.batch_dims() > 0) {
      of_x.samples = of_dy.samples = dy.size(0);
      of_dy.sample_step = layout.count;
    }
    const bool fits = layout.fits(dy);
    const Tensor copy = fits ? Tensor() : layout.copy(dy);
    const Tensor& slopes = fits ? dy : copy;
    const Tensor dx = !adjoint.wants(0)         ? Tensor()
                      : dy.dtype() != x.dtype() ? layout.empty(dy, x.dtype())
                      : fits                    ? adjoint.in_place(dy)
                                                : copy;
    std::vector<Tensor> rows = affine_rows(of_x.samples, adjoint);
    const View none, first = view_or_none(rows[0]), second = view_or_none(rows[1]);
    const NormalizationGrads grads{dx.defined() ? layout.view(dx, of_dy) : none,
                                   has_weight ? first : none, has_weight ? second : first};
    if (dy.numel() > 0) {
      backend(x.device())
          .normalize_grad({rule, view_or_none(weight)}, layout.view(x, of_x),
                          layout.stats(stats, of_x), layout.view(slopes, of_dy), grads);
    }
    if (dx.defined()) adjoint.input(0, dx);
    for (int i = 0; i < 2; ++i) {
      if (rows[static_cast<std::size_t>(i)].defined())
        deliver(i + 1, rows[static_cast<std::size_t>(i)], adjoint);
    }
  }

 private:
  // One tensor for each gradient of weight and bias that is requested; zeros for an empty input.
  std::vector<Tensor> affine_rows(std::int64_t n, const Adjoint& adjoint) const {
    std::vector<Tensor> rows(2);
    for (std::size_t i = 0; i < affine_shapes.size(); ++i) {
      if (!adjoint.wants(static_cast<int>(i) + 1)) continue;
      Shape shape = affine_shapes[i];
      shape.insert(0, n);
      const Dtype dtype = arithmetic_type(x.dtype());
      rows[i] = n == 0 || layout.count == 0 ? zeros(shape, dtype, x.device())
                                            : Tensor::empty(shape, dtype, x.device());
    }
    return rows;
  }
  // Delivers the rows and releases them: for one sample, the row itself becomes the sum if this is
  // its only reference.
  void deliver(int input, Tensor& rows, Adjoint& adjoint) const {
    if (samples.is_shared())
      return adjoint.input(input, adjoint.batch_dims() > 0 ? rows : rows.squeeze(0));
    const PerSampleGrad gradient = PerSampleGrad::materialized(rows);
    rows = Tensor();
    adjoint.shared(input, gradient);
  }
};

// The type of 16-bit results: the tape's precision, if it has 16 bits, for an x of samples in f32;
// for others x's own type.
Dtype type_in_16bit(const Var& x) {
  const std::optional<Dtype> precision = x.tape().precision();
  const bool narrows = precision && is_16bit(*precision) && x.dtype() == Dtype::f32;
  return narrows && !x.samples().is_shared() ? *precision : x.dtype();
}

// Weight and bias in the type of the arithmetic; x in that of the operation.
void convert(Var& x, ScaleShift& affine) {
  std::vector<const Var*> inputs{&x};
  for (const auto* part : {&affine.weight, &affine.bias})
    inputs.push_back(*part ? &**part : nullptr);
  const std::optional<Dtype> dtype = dtype_for(normalize_op, inputs);
  if (dtype) x = cast(x, *dtype);
  for (auto* part : {&affine.weight, &affine.bias}) {
    if (!*part) continue;
    if (dtype) *part = cast(**part, arithmetic_type(*dtype));
    check(dtype || (*part)->dtype() == x.dtype(), "normalize: dtypes differ: {} x {}",
          name(x.dtype()), name((*part)->dtype()));
  }
}

Var scaled_and_shifted(Var y, const ScaleShift& affine, const Shape& shape) {
  if (affine.weight) y = mul(std::move(y), reshape(*affine.weight, shape));
  if (affine.bias) y = add(std::move(y), reshape(*affine.bias, shape));
  return y;
}

// The gradient of a bias alone reads neither x nor its statistics.
Var recorded(const std::vector<Var>& inputs, const Tensor& y, SampleAxis samples,
             const NormalizeGradient& gradient) {
  const std::size_t bias = gradient.has_weight ? 2 : 1;
  const bool shifts_only = inputs.size() == bias + 1 && !inputs[0].needs_grad() &&
                           !(gradient.has_weight && inputs[1].needs_grad()) &&
                           inputs[bias].shape() == gradient.layout.affine;
  Tape& tape = inputs[0].tape();
  if (!shifts_only) return tape.record(normalize_op, inputs, y, samples, gradient);
  return tape.record(normalize_op, inputs, y, samples,
                     [bias = static_cast<int>(bias)](const Tensor& dy, Adjoint& adjoint) {
                       adjoint.broadcast(bias, dy);
                     });
}

Var normalized(const Var& input, const Layout& layout, SampleAxis samples, const NormRule& rule,
               ScaleShift affine) {
  bool shared = true;
  for (const auto* part : {&affine.weight, &affine.bias}) {
    check(!*part || (*part)->value().numel() == layout.affine.numel(),
          "normalisation: weight or bias of shape {} for an input of shape {}",
          *part ? (*part)->shape() : Shape{}, input.shape());
    shared = shared && (!*part || (*part)->samples().is_shared());
  }
  if (affine.writes_16bit && (!shared || layout.channels_last)) {
    affine.writes_16bit = false;
    const Var y = normalized(input, layout, samples, rule, affine);
    return cast(y, type_in_16bit(y));
  }
  if (!shared) {
    return scaled_and_shifted(normalized(input, layout, samples, rule, {}), affine, layout.affine);
  }
  Var x = input;
  convert(x, affine);
  const Tensor from = layout.fits(x.value()) ? x.value() : layout.copy(x.value());
  const Dtype wide = arithmetic_type(from.dtype());
  NormalizeGradient gradient{
      layout,
      rule,
      samples,
      from,
      Tensor::empty({layout.count, layout.groups, 2}, Dtype::f64, from.device()),
      {},
      {},
      affine.weight.has_value()};
  std::vector<Var> inputs{x};
  Tensor parts[2];
  for (int i = 0; i < 2; ++i) {
    const auto& part = i == 0 ? affine.weight : affine.bias;
    if (!part) continue;
    parts[i] = contiguous(to_dtype(part->value(), wide));
    inputs.push_back(*part);
    gradient.affine_shapes.push_back(part->shape());
  }
  gradient.weight = parts[0];
  const Tensor y = layout.empty(from, affine.writes_16bit ? type_in_16bit(x) : x.dtype());
  const BlockStrides all = layout.together();
  backend(y.device())
      .normalize({rule, view_or_none(parts[0]), view_or_none(parts[1])}, layout.view(from, all),
                 layout.stats(gradient.stats, all), layout.view(y, all));
  if (tracing()) {
    trace_attributes({{"groups", layout.groups},
                      {"rows", layout.order.rank() - layout.affine.rank()},
                      {"affine", layout.affine},
                      {"has_weight", affine.weight.has_value()},
                      {"has_bias", affine.bias.has_value()},
                      {"centered", rule.centered},
                      {"eps", rule.eps}});
  }
  return recorded(inputs, y, samples, gradient);
}

// The product of the sizes of x's axes `first` .. `last` - 1.
std::int64_t size_of_axes(const Var& x, int first, int last) {
  std::int64_t product = 1;
  for (int i = first; i < last; ++i) product *= x.shape()[i];
  return product;
}

// x with its sample axis in front, and the order that undoes it.
std::pair<Var, Shape> samples_first(const Var& x) {
  const int axis = x.samples().axis();
  Shape order{axis}, back;
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis) order.push_back(i);
    back.push_back(i == axis ? 0 : i < axis ? i + 1 : i);
  }
  return {permute(x, order), back};
}

}  // namespace

Var normalize(const Var& x, int features, double eps, bool centered, const ScaleShift& affine) {
  check(features >= 1 && features <= x.rank(), "normalize: {} axes of {}", features, x.shape());
  const int rows = x.rank() - features;
  Shape touched;
  Layout layout{size_of_axes(x, 0, rows), 1, size_of_axes(x, rows, x.rank()), 1};
  for (int i = 0; i < x.rank(); ++i) layout.order.push_back(i);
  for (int i = rows; i < x.rank(); ++i) {
    touched.push_back(i);
    layout.affine.push_back(x.shape()[i]);
  }
  check(layout.channels > 0, "normalize: over no elements of {}", x.shape());
  const SampleAxis samples = preserve_sample_axis(normalize_op, x, touched);
  if (samples.batched()) {
    const int axis = samples.axis();
    const std::int64_t n = x.shape()[axis], before = size_of_axes(x, 0, axis),
                       behind = size_of_axes(x, axis + 1, rows);
    if (before > 1 && behind > 1) {
      const auto [first, back] = samples_first(x);
      return permute(normalize(first, features, eps, centered, affine), back);
    }
    layout.by_sample =
        before > 1 ? BlockStrides{n, before, 1, n} : BlockStrides{n, behind, behind, 1};
  }
  return normalized(x, layout, samples, {eps, centered}, affine);
}

namespace {

// True if x [n, c, ...] is stored channels-last. Sums have the same bits in either order.
bool channels_inside(const Tensor& x) {
  std::vector<std::int64_t> strides;
  for (int axis = 2; axis < x.rank(); ++axis) {
    if (x.size(axis) > 1) strides.push_back(x.strides()[axis]);
  }
  if (strides.empty() || x.size(1) <= 1) return false;
  strides.push_back(x.strides()[1]);
  return std::ranges::adjacent_find(strides, std::ranges::less_equal()) == strides.end();
}

}  // namespace

Var normalize_groups(const Var& x, std::int64_t groups, double eps, const ScaleShift& affine) {
  check(x.rank() >= 2, "normalize_groups: input {} has no channels", x.shape());
  const std::int64_t n = x.shape()[0], c = x.shape()[1];
  check(groups >= 1 && c % groups == 0, "normalize_groups: {} groups of {} channels", groups, c);
  Layout layout{n, groups, c / groups, size_of_axes(x, 2, x.rank())};
  check(layout.channels * layout.places > 0, "normalize_groups: over no elements of {}", x.shape());
  Shape touched, last{0};
  layout.affine = Shape::filled(x.rank() - 1, 1);
  layout.affine[0] = c;
  for (int axis = 0; axis < x.rank(); ++axis) {
    layout.order.push_back(axis);
    if (axis > 0) touched.push_back(axis);
    if (axis > 1) last.push_back(axis);
  }
  last.push_back(1);
  layout.channels_last = channels_inside(x.value());
  if (layout.channels_last) layout.order = last;
  layout.by_sample = {n, 1, 1, 1};
  return normalized(x, layout, preserve_sample_axis(normalize_op, x, touched), {eps, true}, affine);
}

}  // namespace sotto
