#include "autograd/check/op_run.h"

#include <memory>
#include <optional>

#include "autograd/ops/elementwise.h"
#include "autograd/ops/reductions.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::testing {

namespace {

Tensor samples_first(const Tensor& x, SampleAxis samples) {
  Shape order{samples.axis()};
  for (int i = 0; i < x.rank(); ++i) {
    if (i != samples.axis()) order.push_back(i);
  }
  return contiguous(x.permute(order));
}

// Converts parameters to another precision while it lives.
class InPrecision {
 public:
  InPrecision(const std::vector<Parameter*>& parameters, Dtype dtype) {
    for (Parameter* p : parameters) {
      before_.emplace_back(p, p->value);
      p->value = to_dtype(p->value, dtype);
    }
  }
  InPrecision(const InPrecision&) = delete;
  InPrecision& operator=(const InPrecision&) = delete;
  ~InPrecision() {
    for (auto& [p, value] : before_) p->value = value;
  }

 private:
  std::vector<std::pair<Parameter*, Tensor>> before_;
};

// The arguments of one run; it owns those that are parameters.
struct Arguments {
  std::vector<std::unique_ptr<Parameter>> parameters;
  std::vector<Var> values;
};

Arguments put_on(Tape& tape, const std::vector<OpInput>& inputs, Dtype dtype) {
  Arguments arguments;
  for (const OpInput& input : inputs) {
    const Tensor value = is_float(input.value.dtype()) ? to_dtype(input.value, dtype) : input.value;
    arguments.parameters.push_back(std::make_unique<Parameter>(value));
    Var x;
    if (input.samples.batched()) {
      x = tape.input(value, input.samples.axis(), input.wants_grad);
    } else {
      x = input.wants_grad ? tape.use(*arguments.parameters.back()) : tape.constant(value);
    }
    arguments.values.push_back(x);
  }
  return arguments;
}

// The result for arguments without gradients.
Var result_on(Tape& tape, const Instance& instance) {
  std::vector<Var> x;
  for (const OpInput& input : instance.inputs) {
    x.push_back(input.samples.batched() ? tape.input(input.value, input.samples.axis())
                                        : tape.constant(input.value));
  }
  return instance.run(x);
}

}  // namespace

std::vector<PerSampleGrad> CollectSink::uses(const Parameter& parameter) const {
  for (const auto& [known, uses] : collected_) {
    if (known == &parameter) return uses;
  }
  return {};
}

Tensor rows_of_uses(const std::vector<PerSampleGrad>& uses) {
  Tensor total;
  for (const PerSampleGrad& use : uses)
    total = total.defined() ? add(total, use.materialize()) : use.materialize();
  return total;
}

Instance with_loss(const Instance& instance, PublicRandom& random) {
  const InPrecision wide(instance.parameters, Dtype::f64);
  Tape tape({.private_data = true});
  const Var y = result_on(tape, instance);
  constexpr std::int64_t samples_of_shared = 3;
  Shape shape = y.shape();
  if (y.samples().is_shared())
    shape.insert(0, tape.sample_count() < 0 ? samples_of_shared : tape.sample_count());
  Instance whole = instance;
  const SampleAxis samples = y.samples().is_shared() ? 0 : y.samples();
  whole.inputs.push_back({uniform_values(random, shape, -1, 1), samples, false});
  return whole;
}

SampleAxis samples_of_result(Instance instance) {
  const InPrecision wide(instance.parameters, Dtype::f64);
  instance.inputs.pop_back();
  Tape tape({.private_data = true});
  return result_on(tape, instance).samples();
}

OpRun run_case(const Instance& instance, Dtype dtype, std::int64_t first_row, Dtype precision) {
  const InPrecision converted(instance.parameters, dtype);
  Tape tape({.private_data = precision != Dtype::f64,
             .precision = precision,
             .seed = 5,
             .first_row = first_row});
  Arguments arguments = put_on(tape, instance.inputs, dtype);
  std::vector<Var>& x = arguments.values;
  const Var weights = x.back();
  x.pop_back();
  const Var y = instance.run(x);
  const Var loss = sum_per_sample(mul(y, weights));
  OpRun run;
  run.output = y.samples().batched() ? samples_first(y.value(), y.samples()) : y.value();
  run.losses = loss.value();
  CollectSink sink;
  tape.backward(loss, sink);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const OpInput& input = instance.inputs[i];
    run.uses.push_back(sink.uses(*arguments.parameters[i]));
    run.grads.push_back(input.samples.batched() && input.wants_grad ? tape.grad(x[i]) : Tensor());
  }
  for (const Parameter* p : instance.parameters) run.uses.push_back(sink.uses(*p));
  return run;
}

Instance samples_between(const Instance& instance, std::int64_t begin, std::int64_t end) {
  Instance some = instance;
  for (OpInput& input : some.inputs) {
    if (input.samples.batched()) input.value = input.value.slice(input.samples.axis(), begin, end);
  }
  return some;
}

std::int64_t samples_of(const Instance& instance) {
  return instance.inputs.back().value.size(instance.inputs.back().samples.axis());
}

}  // namespace sotto::testing
