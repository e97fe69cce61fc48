#include "sotto/autograd/elementwise.h"

#include "sotto/autograd/precision.h"
#include "sotto/autograd/samples.h"
#include "sotto/autograd/shape_ops.h"
#include "sotto/kernels/compute.h"

namespace sotto {

namespace {

template <class... F>
std::vector<Op> ops_of(FunctorList<F...>) {
  return {Op(F::name, Op::Lifts::yes)...};
}

const std::vector<Op> unary_ops = ops_of(UnaryFunctors{});
const std::vector<Op> binary_ops = ops_of(BinaryFunctors{});
const Op where_op("where", Op::Lifts::yes);
const Op dropout_op("dropout");

}  // namespace

Var unary(int op, const Var& input, Constants constants) {
  const Op& name = unary_ops[static_cast<std::size_t>(op)];
  Var x = input;
  cast_inputs(name, {&x});
  const Tensor y = unary(op, x.value(), constants);
  return x.tape().record(name, {x}, y, x.samples(),
                         [op, constants, x = x.value(), y](const Tensor& dy, Adjoint& adjoint) {
                           adjoint.input(0, unary_grad(op, x, y, dy, constants));
                         });
}

Var binary(int op, const Var& left, const Var& right) {
  const Op& name = binary_ops[static_cast<std::size_t>(op)];
  Var a = left, b = right;
  cast_inputs(name, {&a, &b});
  const Tensor y = binary(op, a.value(), b.value());
  return a.tape().record(name, {a, b}, y, broadcast_samples(name, {a, b}, y.shape()),
                         [op, a = a.value(), b = b.value()](const Tensor& dy, Adjoint& adjoint) {
                           for (const int i : {0, 1}) {
                             if (adjoint.wants(i))
                               adjoint.broadcast(i, binary_grad(op, i, a, b, dy));
                           }
                         });
}

Var where(const Var& condition, const Var& yes, const Var& no) {
  Var a = yes, b = no;
  cast_inputs(where_op, {&a, &b});
  const Tensor y = where(condition.value(), a.value(), b.value());
  return a.tape().record(where_op, {condition, a, b}, y,
                         broadcast_samples(where_op, {condition, a, b}, y.shape()),
                         [mask = condition.value()](const Tensor& dy, Adjoint& adjoint) {
                           const Tensor zero = zeros({}, dy.dtype(), dy.device());
                           adjoint.broadcast(1, where(mask, dy, zero));
                           adjoint.broadcast(2, where(mask, zero, dy));
                         });
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
  // Drawn with the samples first, so that a row's mask does not depend on the physical batch.
  Shape shape = x.shape();
  const int axis = x.samples().batched() ? x.samples().axis() : 0;
  const std::int64_t n = x.samples().batched() ? shape[axis] : 1;
  if (x.samples().batched()) shape.erase(axis);
  shape.insert(0, n);
  Tensor mask = Tensor::empty(shape, x.dtype(), x.value().device());
  const PhiloxKey key = tape.next_key();
  const auto each = static_cast<std::uint64_t>(mask.numel() / std::max<std::int64_t>(n, 1));
  for (std::int64_t begin = 0, end = 0; begin < n; begin = end) {
    const std::uint64_t row = x.samples().batched() ? tape.options().row(begin) : 0;
    // Rows whose numbers follow one another are one sequence of draws.
    for (end = begin + 1;
         end < n && tape.options().row(end) == row + static_cast<std::uint64_t>(end - begin);)
      ++end;
    backend(mask.device()).bernoulli(key, row * each, 1 - rate, mask.slice(0, begin, end).view());
  }
  Shape order;
  for (int i = 1; i < shape.rank(); ++i) order.push_back(i);
  order.insert(x.samples().batched() ? axis : 0, 0);
  const Tensor kept = x.samples().batched() ? scale(mask, 1 / (1 - rate)).permute(order)
                                            : scale(mask, 1 / (1 - rate)).squeeze(0);
  return tape.record(
      dropout_op, {x}, mul(x.value(), kept), x.samples(),
      [kept](const Tensor& dy, Adjoint& adjoint) { adjoint.input(0, mul(dy, kept)); });
}

}  // namespace sotto
