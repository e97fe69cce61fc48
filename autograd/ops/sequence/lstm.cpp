#include "autograd/ops/sequence/lstm.h"

#include <algorithm>

#include "autograd/adjoint.h"
#include "autograd/op.h"
#include "autograd/ops/conv_pool.h"
#include "autograd/ops/shape_ops.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sample_axis_rules.h"
#include "kernels/backend.h"
#include "kernels/host_device/lstm_layer.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// The tensors that backward reads.
struct SavedTensors {
  Tensor x, ih, hh;
  Tensor gates, cells, tanh_cell;
  Tensor all;  // [n, t + 2, h]: t + 1 states, and the last cell
  bool reverse;

  std::int64_t steps() const { return x.size(1); }
  Tensor states() const { return all.slice(1, 0, steps() + 1); }
  // The t states before each step, or after each step, out of t + 1 states in the order of time.
  Tensor before(const Tensor& states) const {
    return states.slice(1, reverse ? 1 : 0, reverse ? steps() + 1 : steps());
  }
  Tensor after(const Tensor& states) const {
    return states.slice(1, reverse ? 0 : 1, reverse ? steps() : steps() + 1);
  }
  std::int64_t first() const { return reverse ? steps() : 0; }
  std::int64_t last() const { return reverse ? 0 : steps(); }
  LstmLayer layer(const Tensor& bias) const {
    return {gates.view(), states().view(), cells.view(), tanh_cell.view(),
            hh.view(),    bias.view(),     reverse};
  }
};

Tensor rows_of(const Tensor& x) { return reshape(x, {x.size(0) * x.size(1), x.size(2)}); }

// The sum of both biases; undefined if there is none.
Tensor bias_of(const OpInputs& p) {
  const auto value = [&](int place) { return p.inputs[static_cast<std::size_t>(place)].value(); };
  if (p.bias_ih >= 0 && p.bias_hh >= 0) return add(value(p.bias_ih), value(p.bias_hh));
  const int only = std::max(p.bias_ih, p.bias_hh);
  return only >= 0 ? contiguous(value(only)) : Tensor();
}

SavedTensors run(const OpInputs& p, bool reverse) {
  const Tensor x = p.inputs[0].value(), ih = p.inputs[1].value(), hh = p.inputs[2].value();
  const std::int64_t n = x.size(0), t = x.size(1), h = hh.size(1);
  const auto room = [&](std::int64_t rows) {
    return Tensor::empty({n, rows, h}, x.dtype(), x.device());
  };
  SavedTensors s{contiguous(x), ih, contiguous(hh), {}, room(t + 1), room(t), room(t + 2), reverse};
  s.gates = reshape(gemm(rows_of(s.x), ih.transpose(0, 1)), {n, t, 4 * h});
  const auto start = [&](int place, const Tensor& state) {
    const Tensor zero = zeros({}, x.dtype(), x.device());
    copy_into(place < 0 ? zero : p.inputs[static_cast<std::size_t>(place)].value(), state);
  };
  start(p.h0, s.all.select(1, s.first()));
  start(p.c0, s.cells.select(1, s.first()));
  backend(x.device()).lstm(s.layer(bias_of(p)));
  copy_into(s.cells.select(1, s.last()), s.all.select(1, t + 1));
  return s;
}

void back(const SavedTensors& s, const Tensor& d, const OpInputs& p, SampleAxis samples,
          Adjoint& adjoint) {
  const Tensor dz = empty_like(s.gates), dc = clone(d.select(1, s.steps() + 1)),
               dh = zeros_like(dc);
  // For the norms of both weights' gradients, which only a private step computes.
  const bool norms = p.inputs[0].tape().options().private_data;
  const Tensor squares =
      norms ? Tensor::empty({dz.size(0), dz.size(1)}, Dtype::f64, dz.device()) : Tensor();
  backend(dz.device())
      .lstm_grad(s.layer({}), s.after(d).view(), dz.view(), dh.view(), dc.view(), squares.view());
  const auto shared = [&](int place, auto&& gradient) {
    if (place >= 0 && adjoint.wants(place)) adjoint.shared(place, for_samples(gradient(), samples));
  };
  const auto weight = [&](int place, const Tensor& a) {
    shared(place, [&] { return PerSampleGrad::outer(dz, a, {dz.size(2), a.size(2)}, squares); });
  };
  if (adjoint.wants(0)) adjoint.input(0, reshape(gemm(rows_of(dz), s.ih), s.x.shape()));
  weight(1, s.x);
  weight(2, s.before(s.states()));
  const bool biased = p.bias_ih >= 0 || p.bias_hh >= 0;
  const Tensor rows = biased ? sum_f32(dz, {1}) : Tensor();
  for (const int place : {p.bias_ih, p.bias_hh})
    shared(place, [&] { return PerSampleGrad::materialized(rows); });
  if (p.h0 >= 0) adjoint.input(p.h0, add(dh, d.select(1, s.first())));
  if (p.c0 >= 0) adjoint.input(p.c0, dc);
}

}  // namespace

std::optional<RecurrentResult> fused_lstm(const Op& op, const OpInputs& p,
                                          const SequenceOptions& options) {
  const Var& x = p.inputs[0];
  const bool wide = x.dtype() == Dtype::f32 || x.dtype() == Dtype::f64;
  const bool plain = p.hr < 0 && !options.lengths.defined();
  const Device device = x.value().device();
  const bool together = std::all_of(p.inputs.begin(), p.inputs.end(),
                                    [&](const Var& v) { return v.value().device() == device; });
  if (!wide || !plain || !together) return std::nullopt;
  const SampleAxis samples = preserve_sample_axis(op, x, {1, 2});
  const SavedTensors s = run(p, options.reverse);
  const Var all = x.tape().record(
      op, p.inputs, s.all, samples,
      [=](const Tensor& d, Adjoint& adjoint) { back(s, contiguous(d), p, samples, adjoint); });
  const std::int64_t t = s.steps(), begin = options.reverse ? 0 : 1;
  return RecurrentResult{slice(all, 1, begin, begin + t), select(all, 1, s.last()),
                         select(all, 1, t + 1)};
}

}  // namespace sotto
