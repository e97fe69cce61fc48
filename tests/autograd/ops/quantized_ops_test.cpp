// Products and look-ups with frozen quantised matrices on the tape.
#include "autograd/ops/quantized_products.h"

#include "autograd/ops.h"
#include "autograd/precision.h"
#include "autograd/sink.h"
#include "kernels/quantized/quantized.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/random_blocks.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

struct Run {
  Tensor y, dx;
};

// The value of f(x), and the gradient of the sum of its squares.
template <class F>
Run run_of(const TapeOptions& options, const Tensor& value, const F& f) {
  Tape tape(options);
  const Var x = tape.input(value, 0, true);
  const Var y = f(x);
  Run run{.y = y.value()};
  const Var squares = to_f32(y) * to_f32(y);
  SumSink sink;
  tape.backward(sum_per_sample(squares), sink);
  run.dx = tape.grad(x);
  return run;
}

}  // namespace

TEST_CASE("a quantised product is the linear layer of its widened weight") {
  PublicRandom bytes(1);
  Random random(2);
  for (const BlockFormat format : block_formats) {
    const BlockMatrix w = random_blocks(bytes, format, 7, 256);
    for (const Dtype precision : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16}) {
      INFO(name(format) << " " << name(precision));
      const TapeOptions options{.precision = precision};
      const Tensor x = random_tensor(random, {3, 2, 256}, {0, 1, 2}, Dtype::f32),
                   wide = dequantize(w);
      const Run quantized =
          run_of(options, x, [&](const Var& v) { return quantized_linear(v, w); });
      const Run linear_run =
          run_of(options, x, [&](const Var& v) { return linear(v, v.tape().constant(wide)); });
      CHECK(quantized.y.dtype() == precision);
      CHECK(same_bits(quantized.y, linear_run.y));
      CHECK(same_bits(quantized.dx, linear_run.dx));
      const Run inner = run_of(options, x, [&](const Var& v) {
        return segment([&](const Var& u) { return quantized_linear(u, w); }, v);
      });
      CHECK(same_bits(inner.dx, quantized.dx));
    }
  }
}

TEST_CASE("a quantised product keeps nothing of its input, and has a gradient for its bias") {
  PublicRandom bytes(3);
  const BlockMatrix w = random_blocks(bytes, BlockFormat::q4_1, 3, 32);
  const Tensor value = full({4, 32}, 0.5);
  Parameter bias(zeros({3}));
  Tape tape;
  Var y;
  {
    const Var x = tape.input(value, 0, true);
    y = quantized_linear(x, w, tape.use(bias));
  }
  CHECK(value.sole());
  SumSink sink;
  tape.backward(sum_per_sample(y), sink);
  REQUIRE(sink.gradients().size() == 1);
  CHECK(values(sink.gradients()[0].second) == std::vector<double>(3, 4));
}

TEST_CASE("quantised products refuse what does not fit, and mixing of samples") {
  PublicRandom bytes(4);
  const BlockMatrix w = random_blocks(bytes, BlockFormat::q8_0, 5, 32);
  Tape tape({.private_data = true});
  const Var x = tape.input(zeros({2, 32}));
  CHECK(throws(
      [&] {
        quantized_linear(tape.input(zeros({2, 31})), w);
      },
      "quantized_linear: input f32 (2, 31) does not fit blocks of shape (5, 32)"));
  CHECK(throws([&] { quantized_linear(x, w, tape.constant(zeros({4}))); }, "bias (4)"));
  CHECK(throws([&] { quantized_linear(x, w, tape.input(zeros({2}))); }, "bias (2)"));
  Tape other({.private_data = true});
  CHECK(throws(
      [&] {
        quantized_linear(other.input(zeros({2, 32}), 1), w);
      },
      "quantized_linear: combines samples"));
  BlockMatrix cut = w;
  cut.bytes = w.bytes.slice(0, 0, 4);
  CHECK(throws([&] { quantized_linear(x, cut); }, "quantized_linear: (4, 34) bytes for Q8_0"));
}

TEST_CASE("rows of a quantised table are those of its widened one, in f32 or f64") {
  PublicRandom bytes(5);
  const BlockMatrix table = random_blocks(bytes, BlockFormat::q6_k, 6, 256);
  const Tensor ids = Tensor::from(std::vector<std::int64_t>{5, 0, 2, 2}, {2, 2});
  for (const Dtype precision : {Dtype::f64, Dtype::f32, Dtype::f16, Dtype::bf16}) {
    Tape tape({.precision = precision});
    const Var x = tape.input(ids), y = quantized_embedding(table, x);
    CHECK(y.dtype() == (precision == Dtype::f64 ? Dtype::f64 : Dtype::f32));
    CHECK(y.samples() == SampleAxis(0));
    CHECK(!y.needs_grad());
    CHECK(same_bits(y.value(), embedding(tape.constant(dequantize(table)), x).value()));
  }
  Tape tape;
  CHECK(throws([&] { quantized_embedding(table, tape.input(zeros({2, 2}))); }, "ids are f32"));
  CHECK(throws([&] { quantized_embedding(table, tape.constant(full({1}, 6, Dtype::i64))); },
               "id 6 in a table of 6 rows"));
}

TEST_CASE("values on a GPU are refused, since blocks are multiplied on the CPU alone", "[gpu]") {
  PublicRandom bytes(6);
  const BlockMatrix w = random_blocks(bytes, BlockFormat::q8_0, 5, 32);
  for (const DeviceInfo& info : devices()) {
    if (info.device == cpu) continue;
    Tape tape;
    const Var x = tape.input(zeros({2, 32}, Dtype::f32, info.device)),
              ids = tape.input(zeros({2}, Dtype::i64, info.device));
    CHECK(throws([&] { quantized_linear(x, w); }, "products with Q8_0 are computed on the CPU"));
    CHECK(throws([&] { quantized_embedding(w, ids); }, "blocks are looked up on the CPU alone"));
  }
}
