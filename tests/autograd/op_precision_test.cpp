// The precision of each kind of operation on a tape of 16 bits.
#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "autograd/check/op_run.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/linear.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/layers/attention_layers.h"
#include "tests/support/catch.h"
#include "tests/support/op_cases.h"

using namespace sotto;
using namespace sotto::testing;

TEST_CASE("products compute in 16 bits; sums, losses and steep functions in f32") {
  const std::set<std::string_view> lower = {"linear",          "matmul", "conv", "conv_transpose",
                                            "attention",       "rnn",    "gru",  "lstm",
                                            "quantized_linear"};
  const std::set<std::string_view> f32 = {
      "sum",   "norm",       "softmax",   "log_softmax", "cross_entropy", "ctc_loss", "exp",
      "expm1", "log",        "log1p",     "sqrt",        "rsqrt",         "square",   "pow",
      "power", "reciprocal", "div",       "erf",         "sin",           "cos",      "tan",
      "asin",  "acos",       "atan",      "sinh",        "cosh",          "asinh",    "acosh",
      "atanh", "softplus",   "logsigmoid"};
  std::set<std::string_view> met;
  for (const OpCase& one : op_cases()) {
    if (!lower.contains(one.op) && !f32.contains(one.op)) continue;
    PublicRandom random(80);
    const auto shared = [](const OpInput& x) { return x.samples.is_shared(); };
    Instance instance = one.make(random);
    // What all samples share stays in f32.
    for (int k = 0; k < 20 && std::ranges::all_of(instance.inputs, shared); ++k)
      instance = one.make(random);
    if (std::ranges::all_of(instance.inputs, shared)) continue;
    instance = with_loss(instance, random);
    for (OpInput& x : instance.inputs)
      if (is_float(x.value.dtype())) x.value = to_dtype(x.value, Dtype::bf16);
    INFO(one.op << ", " << one.what);
    const OpRun run = run_case(instance, Dtype::bf16, 0, Dtype::bf16);
    CHECK(run.output.dtype() == (lower.contains(one.op) ? Dtype::bf16 : Dtype::f32));
    met.insert(one.op);
  }
  CHECK(met.size() == lower.size() + f32.size());
}

TEST_CASE("what residual blocks add to is f32 on a tape of 16 bits") {
  Tape tape({.precision = Dtype::bf16});
  const Var ids = tape.input(Tensor::from(std::vector<std::int64_t>{0, 2, 1, 1}, {2, 2}));
  const Var table = tape.constant(full({3, 4}, 0.3));
  CHECK(embedding(table, ids).dtype() == Dtype::f32);
  const Var x = tape.input(full({2, 3, 4}, 1, Dtype::bf16));
  nn::PositionalEmbedding positions(3, 4);
  CHECK(positions(x).dtype() == Dtype::f32);
  CHECK(nn::add_sinusoidal_positions(x).dtype() == Dtype::f32);
  CHECK((positions(x) + x).dtype() == Dtype::f32);
}
