// The precision of each kind of operation on a tape of 16 bits.
#include <algorithm>
#include <deque>
#include <set>
#include <string>
#include <string_view>

#include "autograd/check/op_run.h"
#include "autograd/ops/elementwise.h"
#include "autograd/ops/linear.h"
#include "autograd/ops/normalization.h"
#include "autograd/ops/reductions.h"
#include "autograd/precision.h"
#include "core/devices.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/layers/attention_layers.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_cases.h"
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

namespace {

// The value of a pre-norm block on x, and the gradients of its parameters for each sample. Either
// operations read and write mixed types, or casts convert all that is not theirs.
std::vector<Tensor> run_block(Dtype half, bool mixed, std::deque<Parameter>& parameters,
                              const Tensor& data) {
  Tape tape({.precision = half});
  const auto in_type = [&](const Var& v, Dtype type) { return mixed ? v : cast(v, type); };
  const auto used = [&](std::size_t k) { return tape.use(parameters[k]); };
  const Var x = tape.input(data), first = add(in_type(linear(x, used(0)), Dtype::f32), x),
            normed = normalize(first, 1, 1e-3, true, {used(1), used(2), mixed}),
            branch = linear(in_type(normed, half), used(3)),
            sum = add(first, in_type(branch, Dtype::f32));
  CHECK(normed.dtype() == (mixed ? half : Dtype::f32));
  PerSampleGradSink sink;
  tape.backward(sum_per_sample(square(sum)), sink);
  std::vector<Tensor> results{sum.value()};
  for (const Parameter& parameter : parameters) results.push_back(sink.rows(parameter));
  return results;
}

}  // namespace

TEST_CASE("residual blocks of mixed types have the bits of converted values", "[gpu]") {
  PublicRandom random(81);
  for (const Dtype half : {Dtype::bf16, Dtype::f16}) {
    std::deque<Parameter> parameters;
    for (const Shape& shape : {Shape{9, 9}, Shape{9}, Shape{9}, Shape{9, 9}})
      parameters.emplace_back(nn::random_normal(shape, 0, 1, random));
    const Tensor data = nn::random_normal({3, 4, 9}, 0, 1, random);
    for (const DeviceInfo& info : devices()) {
      INFO(name(half) << " on " << info.name);
      std::deque<Parameter> own;
      for (const Parameter& parameter : parameters)
        own.emplace_back(parameter.value.to(info.device));
      const Tensor x = data.to(info.device);
      const std::vector<Tensor> mixed = run_block(half, true, own, x),
                                converted = run_block(half, false, own, x);
      for (std::size_t k = 0; k < mixed.size(); ++k) {
        CHECK(mixed[k].dtype() == Dtype::f32);
        CHECK(same_bits(mixed[k], converted[k]));
      }
    }
  }
}

TEST_CASE("a norm for products alone lowers values of samples, in every layout, on 16-bit tapes") {
  PublicRandom random(82);
  Parameter gain(nn::random_normal({4}, 0, 1, random));
  const Tensor data = nn::random_normal({2, 4, 3, 5}, 0, 1, random);
  const auto normed = [&](Tape& tape, const Var& x, bool lower) {
    return normalize_groups(x, 2, 1e-3, {tape.use(gain), {}, lower});
  };
  Tape tape({.precision = Dtype::bf16}), wide;
  for (const bool last : {false, true}) {
    const Var x = tape.input(last ? channels_last(data.unsqueeze(2)).squeeze(2) : data),
              y = normed(tape, x, true);
    CHECK(y.dtype() == Dtype::bf16);
    CHECK(same_bits(y.value(), to_dtype(normed(tape, x, false).value(), Dtype::bf16)));
  }
  const Tensor rows = nn::random_normal({2, 3}, 0, 1, random);
  const auto type = [](const Var& x) {
    return normalize(x, 1, 1e-3, true, {.writes_16bit = true}).dtype();
  };
  CHECK(type(tape.input(rows)) == Dtype::bf16);
  CHECK(type(tape.constant(rows)) == Dtype::f32);
  CHECK(normed(wide, wide.input(data), true).dtype() == Dtype::f32);
  const PrecisionRegion region(tape, Dtype::f32);
  CHECK(normed(tape, tape.input(data), true).dtype() == Dtype::f32);
}

TEST_CASE("a sum of f32 and 16 bits is f32 on every tape, and its gradients too") {
  PublicRandom random(83);
  const Tensor wide = nn::random_normal({3, 4}, 0, 1, random),
               half = to_dtype(nn::random_normal({3, 4}, 0, 1, random), Dtype::bf16);
  const Tensor expected = add(wide, to_dtype(half, Dtype::f32));
  for (const bool precise : {true, false}) {
    for (const bool first : {true, false}) {
      Tape tape(precise ? TapeOptions{} : TapeOptions{.precision = Dtype::bf16});
      const Var x = tape.input(wide);
      Var y = relu(tape.input(clone(half))) - relu(-tape.input(clone(half)));  // referenced once
      const Var sum = first ? add(std::move(y), x) : add(x, std::move(y));
      CHECK(sum.dtype() == Dtype::f32);
      CHECK(same_bits(sum.value(), expected));
    }
  }
  const Tensor row = half.slice(0, 0, 1);
  Tape tape;
  CHECK(same_bits(add(tape.input(wide), tape.constant(row)).value(),
                  add(wide, to_dtype(row, Dtype::f32))));
}

TEST_CASE("the gradient of a shared 16-bit operand is f32, for one sample as for several") {
  PublicRandom random(84);
  Parameter bias(nn::random_normal({1, 4}, 0, 1, random));
  const Tensor data = nn::random_normal({3, 4}, 0, 1, random);
  const auto rows = [&](const Tensor& x) {
    Tape tape({.precision = Dtype::bf16});
    const Var sum = add(tape.input(x), cast(tape.use(bias), Dtype::bf16));
    PerSampleGradSink sink;
    tape.backward(sum_per_sample(square(sum)), sink);
    return sink.rows(bias);
  };
  CHECK(same_bits(rows(data).slice(0, 0, 1), rows(data.slice(0, 0, 1))));
}
