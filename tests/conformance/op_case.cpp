#include "autograd/sink.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/conformance/kinds.h"

namespace sotto::conformance {

namespace {

// A single operation has operands of the type itself.
Tensor operand_in(const Tensor& value, Dtype dtype) {
  return value.dtype() == Dtype::i64 ? value : to_dtype(value, dtype);
}

}  // namespace

Tensor in_dtype(const Tensor& value, Dtype dtype) {
  return operand_in(value, arithmetic_type(dtype));
}

TapeOptions tape_options(Dtype dtype, bool private_data) {
  const bool narrow = dtype == Dtype::f16 || dtype == Dtype::bf16;
  return {.private_data = private_data, .precision = narrow ? dtype : Dtype::f32};
}

void make_parameters(const Case& c, Dtype dtype, Parameters& parameters) {
  for (const std::string& name : c.names_after("param.")) {
    parameters.try_emplace(name, clone(in_dtype(c.tensor("param." + name).value, dtype)));
  }
}

void run_op(const Case& c, Dtype dtype, Comparison& comparison) {
  Tape tape;
  Values in;
  for (const std::string& name : c.names_after("in.")) {
    const Described& operand = c.tensor("in." + name);
    // An operand as a whole is one sample.
    in.emplace(name, tape.constant(operand_in(operand.value, dtype), SampleAxis::mixed(),
                                   operand.role == "input"));
  }
  const Values out = evaluate(c.type, {field<Json>(c.body, "args"), in, tape});
  Var loss;
  for (const auto& output : field<std::vector<std::string>>(c.body, "outputs")) {
    if (!out.count(output)) throw Malformed("no output " + output);
    comparison.expect("out." + output, out.at(output).value());
    const Tensor weights = operand_in(c.tensor("grad_out." + output).value, out.at(output).dtype());
    const Var part = sum(mul(out.at(output), tape.constant(weights, SampleAxis::mixed())));
    loss = loss.value().defined() ? add(loss, part) : part;
  }
  if (!loss.value().defined()) throw Malformed("no outputs");
  SumSink sink;
  tape.backward(loss, sink);
  for (const auto& [name, var] : in) comparison.expect("grad_in." + name, tape.grad(var));
}

}  // namespace sotto::conformance
