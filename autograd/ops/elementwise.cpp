#include "autograd/ops/elementwise.h"

#include <algorithm>
#include <array>
#include <numbers>
#include <utility>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/precision.h"
#include "autograd/sample_axis_rules.h"
#include "autograd/trace.h"
#include "core/random/philox.h"
#include "kernels/chunk_bytes.h"
#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

template <class F>
Op op_of() {
  OpProperties properties{.captures = Op::Captures::shared, .batchable = true};
  if constexpr (requires { F::needs_f32; }) properties.precision = Op::Precision::f32;
  return Op(F::name, properties);
}

template <class... F>
std::vector<Op> ops_of(FunctorList<F...>) {
  return {op_of<F>()...};
}

const std::vector<Op> unary_ops = ops_of(UnaryFunctors{});
const std::vector<Op> binary_ops = ops_of(BinaryFunctors{});
const Op where_op("where", {.captures = Op::Captures::shared, .batchable = true});
const Op dropout_op("dropout", {.captures = Op::Captures::shared});

// The operand's tensor, to be reused for the result, if this is its only reference; else undefined.
Tensor reusable(const Var& x) {
  return x.value().sole() && x.value().is_dense() ? x.value() : Tensor();
}

// A result has the memory order of the first operand that has its shape and its sample axis, so
// that a batch of one sample has the order of more samples. Of a mixed result the shape alone
// decides.
struct Result {
  Shape shape;
  SampleAxis samples;
  Dtype dtype;

  bool leads(const Var& x) const {
    return x.shape() == shape && (x.samples() == samples || samples.is_mixed());
  }
  // Undefined for operands on two devices.
  Tensor empty(const Var& a, const Var& b) const {
    if (a.value().device() != b.value().device()) return {};
    const Device device = a.value().device();
    for (const Var* x : {&a, &b}) {
      if (leads(*x)) return empty_like(x->value(), dtype, device);
    }
    return Tensor::empty(shape, dtype, device);
  }
};

}  // namespace

Var unary(int op, Var x, Constants constants) {
  const Op& name = unary_ops[static_cast<std::size_t>(op)];
  cast_inputs(name, {&x});
  const Reads reads = unary_reads(op);
  const bool keeps_x = x.needs_grad() && reads_first(reads);
  const Tensor y = unary(op, x.value(), constants, keeps_x ? Tensor() : reusable(x));
  const Tensor kept_y = reads_second(reads) ? y : Tensor();
  const Tensor kept_x = keeps_x ? x.value() : kept_y;
  if (tracing()) trace_attributes({{"a", constants.a}, {"b", constants.b}});
  return x.tape().record(
      name, {x}, y, x.samples(),
      [op, constants, x = kept_x, y = kept_y](const Tensor& dy, Adjoint& adjoint) {
        // Arguments that the derivative does not read are replaced by dy.
        adjoint.input(0, unary_grad(op, x.defined() ? x : dy, y.defined() ? y : dy, dy, constants,
                                    adjoint.in_place(dy)));
      });
}

namespace {

// The bytes of a temporary gradient that is formed only to be summed.
constexpr std::int64_t cpu_chunk_bytes = std::int64_t{8} << 20;

struct BinaryGradient {
  int op;
  std::array<Tensor, 2> operands;  // undefined if not read
  std::array<Shape, 2> shapes;
  SampleAxis samples;

  // True if the gradient of operand i is that of the result, except for broadcasting.
  bool passes_on(int i) const {
    return op == binary_index<functors::Add> || (op == binary_index<functors::Sub> && i == 0);
  }
  // An operand that the derivative does not read is replaced by dy.
  const Tensor& operand(int i, const Tensor& dy) const {
    const Tensor& x = operands[static_cast<std::size_t>(i)];
    return x.defined() ? x : dy;
  }

  void deliver(int i, bool last, const Tensor& dy, Adjoint& adjoint) const {
    if (passes_on(i)) return adjoint.broadcast(i, dy);
    const bool repeated = shapes[static_cast<std::size_t>(i)] != dy.shape();
    const bool by_sample = repeated && samples.batched() && adjoint.batch_dims() == 0;
    if (by_sample && !(adjoint.sums_only() && fits(dy))) return adjoint.broadcast(i, summed(i, dy));
    const Tensor into = last ? adjoint.in_place(dy) : Tensor();
    adjoint.broadcast(i, binary_grad(op, i, operand(0, dy), operand(1, dy), dy, into));
  }

  // The number of samples whose gradients are formed at a time.
  std::int64_t step(const Tensor& dy) const {
    const std::int64_t n = std::max<std::int64_t>(dy.size(samples.axis()), 1),
                       each = static_cast<std::int64_t>(dy.bytes()) / n;
    return std::max<std::int64_t>(1, chunk_bytes(dy.device(), cpu_chunk_bytes) / (each + 1));
  }
  // True if those of all samples are.
  bool fits(const Tensor& dy) const { return step(dy) >= dy.size(samples.axis()); }

  // The gradient of an operand that was broadcast, summed over all repeated axes except the
  // samples. It is computed for a few samples at a time, so that the full gradient is never stored.
  Tensor summed(int i, const Tensor& dy) const {
    const Shape& own = shapes[static_cast<std::size_t>(i)];
    const int axis = samples.axis();
    Shape kept = dy.shape();
    for (int k = 0; k < dy.rank(); ++k) {
      const int at = k - (dy.rank() - own.rank());
      if (k != axis && (at < 0 || own[at] == 1)) kept[k] = 1;
    }
    const Dtype dtype = arithmetic_type(dy.dtype());
    if (fits(dy)) {
      const Tensor all = binary_grad(op, i, operand(0, dy), operand(1, dy), dy);
      return to_dtype(sum_to_f32(all, kept), dtype);
    }
    const Tensor y = Tensor::empty(kept, dtype, dy.device());
    const std::int64_t n = dy.size(axis), some = step(dy);
    for (std::int64_t at = 0; at < n; at += some) {
      const auto part = [&](const Tensor& x) { return x.slice(axis, at, std::min(n, at + some)); };
      const auto of = [&](int k) { return part(operand(k, dy).expand(dy.shape())); };
      const Tensor to = part(y);
      copy_into(sum_to_f32(binary_grad(op, i, of(0), of(1), part(dy)), to.shape()), to);
    }
    return y;
  }
};

// Converts operands, but for those of a sum in f32 that have one shape: it reads 16 bits as they
// are.
void convert(const Op& name, int op, Var& a, Var& b) {
  const bool reads_16bit = op == binary_index<functors::Add> && a.shape() == b.shape() &&
                           is_mixed(a.dtype(), b.dtype()) &&
                           dtype_for(name, {&a, &b}) == Dtype::f32;
  if (!reads_16bit) cast_inputs(name, {&a, &b});
}

}  // namespace

Var binary(int op, Var a, Var b) {
  const Op& name = binary_ops[static_cast<std::size_t>(op)];
  convert(name, op, a, b);
  const auto read = [op, &a, &b](bool (*reads)(Reads)) {
    return (a.needs_grad() && reads(binary_reads(op, 0))) ||
           (b.needs_grad() && reads(binary_reads(op, 1)));
  };
  const Tensor kept_a = read(reads_first) ? a.value() : Tensor();
  const Tensor kept_b = read(reads_second) ? b.value() : Tensor();
  const Shape shape = broadcast_shapes(name.name, a.shape(), b.shape());
  const SampleAxis samples = broadcast_samples(name, {a, b}, shape);
  const bool mixed = is_mixed(a.dtype(), b.dtype());
  const Result result{shape, samples, mixed ? Dtype::f32 : a.dtype()};
  const auto may_become = [&](const Var& x) {
    return result.leads(x) && x.dtype() == result.dtype;
  };
  Tensor into = may_become(a) ? reusable(a) : Tensor();
  const bool same_order = !result.leads(a) || a.value().strides() == b.value().strides();
  if (!into.defined() && may_become(b) && same_order) into = reusable(b);
  if (!into.defined()) into = result.empty(a, b);
  const Tensor y = binary(op, a.value(), b.value(), into);
  const BinaryGradient gradient{op, {kept_a, kept_b}, {a.shape(), b.shape()}, samples};
  return a.tape().record(name, {a, b}, y, samples, [gradient](const Tensor& dy, Adjoint& adjoint) {
    // The last gradient may be written over dy.
    for (const int i : {1, 0}) {
      if (!adjoint.wants(i)) continue;
      const bool last = i == 0 || !adjoint.wants(0);
      gradient.deliver(i, last, dy, adjoint);
    }
  });
}

Var where(const Var& condition, const Var& yes, const Var& no) {
  Var a = yes, b = no;
  cast_inputs(where_op, {&a, &b});
  const Shape shape =
      broadcast_shapes("where", condition.shape(), broadcast_shapes("where", a.shape(), b.shape()));
  const SampleAxis samples = broadcast_samples(where_op, {condition, a, b}, shape);
  const Tensor y =
      where(condition.value(), a.value(), b.value(), Result{shape, samples, a.dtype()}.empty(a, b));
  return a.tape().record(where_op, {condition, a, b}, y, samples,
                         [mask = condition.value()](const Tensor& dy, Adjoint& adjoint) {
                           const Tensor zero = zeros({}, dy.dtype(), dy.device());
                           adjoint.broadcast(1, where(mask, dy, zero));
                           adjoint.broadcast(2, where(mask, zero, dy));
                         });
}

namespace {

// A mask with one byte per element: 1 where x is kept. It is drawn with the sample axis first, so
// that a row's mask does not depend on the physical batch.
Tensor kept_elements(const Var& x, double rate) {
  Tape& tape = x.tape();
  const bool batched = x.samples().batched();
  const int axis = batched ? x.samples().axis() : 0;
  Shape shape = x.shape();
  const std::int64_t n = batched ? shape[axis] : 1;
  if (batched) shape.erase(axis);
  shape.insert(0, n);
  const PhiloxKey key = tape.next_key();
  std::vector<RowDraws> rows;
  for (std::int64_t i = 0; i < n; ++i)
    rows.push_back({batched ? tape.options().sample_id(i) : 0, 0});
  const Tensor mask = bernoulli(key, rows, 1 - rate, shape, x.value().device());
  if (!batched) return mask.squeeze(0);
  Shape order;
  for (int i = 1; i < shape.rank(); ++i) order.push_back(i);
  order.insert(axis, 0);
  return mask.permute(order);
}

// x / (1 - rate) where an element is kept, else zero.
Tensor dropped(const Tensor& x, const Tensor& kept, double rate) {
  const Tensor y = where(kept, x, zeros({}, x.dtype(), x.device()));
  axpby(1 / (1 - rate), y, 0, y);
  return y;
}

}  // namespace

Var detach(const Var& x) {
  Tape& tape = x.tape();
  return x.samples().batched() ? tape.input_views(x.value(), tape.views(x), x.samples().axis())
                               : tape.constant(x.value(), x.samples());
}

Var dropout(const Var& x, double rate) {
  check(rate >= 0 && rate < 1, "dropout: rate {} outside [0, 1)", rate);
  Tape& tape = x.tape();
  if (!tape.options().training || rate == 0) return x;
  if (x.samples().batched() && tape.views(x) > 1) {
    std::vector<Var> views = split_views(x, tape.views(x));
    for (Var& view : views) view = dropout(view, rate);
    return join_views(views);
  }
  const Tensor kept = kept_elements(x, rate);
  return tape.record(
      dropout_op, {x}, dropped(x.value(), kept, rate), x.samples(),
      [=](const Tensor& dy, Adjoint& adjoint) { adjoint.input(0, dropped(dy, kept, rate)); });
}

namespace {

template <class F>
Var apply(Var x, Constants constants = {}) {
  return unary(unary_index<F>, std::move(x), constants);
}

template <class F>
Var apply(Var a, Var b) {
  return binary(binary_index<F>, std::move(a), std::move(b));
}

}  // namespace

Var relu(Var x) { return apply<functors::Relu>(std::move(x)); }
Var relu6(Var x) { return apply<functors::Clamp>(std::move(x), {0, 6}); }
Var leaky_relu(Var x, double slope) { return apply<functors::LeakyRelu>(std::move(x), {slope}); }
Var elu(Var x, double alpha) { return apply<functors::Elu>(std::move(x), {alpha}); }
Var selu(Var x) { return apply<functors::Selu>(std::move(x)); }
Var celu(Var x, double alpha) { return apply<functors::Celu>(std::move(x), {alpha}); }
Var gelu(Var x) { return apply<functors::Gelu>(std::move(x)); }
Var gelu_tanh(Var x) { return apply<functors::GeluTanh>(std::move(x)); }
Var sigmoid(Var x) { return apply<functors::Sigmoid>(std::move(x)); }
Var silu(Var x) { return apply<functors::Silu>(std::move(x)); }
Var tanh(Var x) { return apply<functors::Tanh>(std::move(x)); }
Var softplus(Var x, double beta, double threshold) {
  return apply<functors::Softplus>(std::move(x), {beta, threshold});
}
Var mish(Var x) { return apply<functors::Mish>(std::move(x)); }
Var logsigmoid(Var x) { return apply<functors::LogSigmoid>(std::move(x)); }
Var softsign(Var x) { return apply<functors::Softsign>(std::move(x)); }
Var clamp(Var x, double low, double high) {
  return apply<functors::Clamp>(std::move(x), {low, high});
}
Var hardtanh(const Var& x, double low, double high) { return clamp(x, low, high); }
Var hardswish(Var x) { return apply<functors::Hardswish>(std::move(x)); }
Var hardsigmoid(Var x) { return apply<functors::Hardsigmoid>(std::move(x)); }
Var hardshrink(Var x, double limit) { return apply<functors::Hardshrink>(std::move(x), {limit}); }
Var softshrink(Var x, double limit) { return apply<functors::Softshrink>(std::move(x), {limit}); }
Var threshold(Var x, double limit, double otherwise) {
  return apply<functors::Threshold>(std::move(x), {limit, otherwise});
}
Var exp(Var x) { return apply<functors::Exp>(std::move(x)); }
Var expm1(Var x) { return apply<functors::Expm1>(std::move(x)); }
Var log(Var x) { return apply<functors::Log>(std::move(x)); }
Var log1p(Var x) { return apply<functors::Log1p>(std::move(x)); }
Var sqrt(Var x) { return apply<functors::Sqrt>(std::move(x)); }
Var rsqrt(Var x) { return apply<functors::Rsqrt>(std::move(x)); }
Var square(Var x) { return apply<functors::Square>(std::move(x)); }
Var sin(Var x) { return apply<functors::Sin>(std::move(x)); }
Var cos(Var x) { return apply<functors::Cos>(std::move(x)); }
Var tan(Var x) { return apply<functors::Tan>(std::move(x)); }
Var asin(Var x) { return apply<functors::Asin>(std::move(x)); }
Var acos(Var x) { return apply<functors::Acos>(std::move(x)); }
Var atan(Var x) { return apply<functors::Atan>(std::move(x)); }
Var sinh(Var x) { return apply<functors::Sinh>(std::move(x)); }
Var cosh(Var x) { return apply<functors::Cosh>(std::move(x)); }
Var asinh(Var x) { return apply<functors::Asinh>(std::move(x)); }
Var acosh(Var x) { return apply<functors::Acosh>(std::move(x)); }
Var atanh(Var x) { return apply<functors::Atanh>(std::move(x)); }
Var reciprocal(Var x) { return apply<functors::Reciprocal>(std::move(x)); }
Var erf(Var x) { return apply<functors::Erf>(std::move(x)); }
Var abs(Var x) { return apply<functors::Abs>(std::move(x)); }
Var pow(Var x, double exponent) { return apply<functors::Pow>(std::move(x), {exponent}); }
Var affine(Var x, double factor, double offset) {
  return apply<functors::Affine>(std::move(x), {factor, offset});
}
Var log2(const Var& x) { return affine(log(x), std::numbers::log2e, 0); }
Var log10(const Var& x) { return affine(log(x), std::numbers::log10e, 0); }
Var tempered_sigmoid(const Var& x, double scale, double temperature, double offset) {
  return affine(sigmoid(affine(x, temperature, 0)), scale, -offset);
}
Var add(Var a, Var b) { return apply<functors::Add>(std::move(a), std::move(b)); }
Var sub(Var a, Var b) { return apply<functors::Sub>(std::move(a), std::move(b)); }
Var mul(Var a, Var b) { return apply<functors::Mul>(std::move(a), std::move(b)); }
Var div(Var a, Var b) { return apply<functors::Div>(std::move(a), std::move(b)); }
Var maximum(Var a, Var b) { return apply<functors::Maximum>(std::move(a), std::move(b)); }
Var minimum(Var a, Var b) { return apply<functors::Minimum>(std::move(a), std::move(b)); }
Var power(Var a, Var b) { return apply<functors::Power>(std::move(a), std::move(b)); }
Var greater(Var a, Var b) { return apply<functors::Greater>(std::move(a), std::move(b)); }
Var greater_equal(Var a, Var b) {
  return apply<functors::GreaterEqual>(std::move(a), std::move(b));
}
Var less(const Var& a, const Var& b) { return greater(b, a); }
Var less_equal(const Var& a, const Var& b) { return greater_equal(b, a); }
Var equal(Var a, Var b) { return apply<functors::Equal>(std::move(a), std::move(b)); }
Var not_equal(const Var& a, const Var& b) { return affine(equal(a, b), -1, 1); }
Var operator+(Var a, Var b) { return add(std::move(a), std::move(b)); }
Var operator-(Var a, Var b) { return sub(std::move(a), std::move(b)); }
Var operator*(Var a, Var b) { return mul(std::move(a), std::move(b)); }
Var operator/(Var a, Var b) { return div(std::move(a), std::move(b)); }
Var operator-(Var x) { return affine(std::move(x), -1, 0); }
Var operator+(Var x, double c) { return affine(std::move(x), 1, c); }
Var operator+(double c, Var x) { return affine(std::move(x), 1, c); }
Var operator-(Var x, double c) { return affine(std::move(x), 1, -c); }
Var operator-(double c, Var x) { return affine(std::move(x), -1, c); }
Var operator*(Var x, double c) { return affine(std::move(x), c, 0); }
Var operator*(double c, Var x) { return affine(std::move(x), c, 0); }
Var operator/(Var x, double c) { return affine(std::move(x), 1 / c, 0); }
Var operator/(double c, Var x) { return affine(reciprocal(std::move(x)), c, 0); }
Var tanhshrink(Var x) { return x - tanh(x); }

}  // namespace sotto
