// The tape: the gradients that backward delivers, their destination, and refusals.
#include "autograd/check/op_run.h"
#include "autograd/ops.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/segment.h"
#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

using namespace sotto;
using namespace sotto::testing;

namespace {

Tensor random_values(std::uint64_t stream, const Shape& shape, Dtype dtype = Dtype::f64) {
  PublicRandom random(21, stream);
  return to_dtype(uniform_values(random, shape), dtype);
}

using Model = std::function<Var(Tape& tape, const Var& x)>;

// The per-sample gradients of every parameter, from running all samples together.
Gradients rows_together(const Model& model, const Tensor& x) {
  Tape tape;
  PerSampleGradSink sink;
  tape.backward(sum_per_sample(square(model(tape, tape.input(x)))), sink);
  return sink.all();
}

// Checks that each per-sample gradient is the gradient of running the sample alone.
void check_sample_alone(const Model& model, const Tensor& x, std::size_t parameters) {
  const Gradients rows = rows_together(model, x);
  REQUIRE(rows.size() == parameters);
  for (std::int64_t n = 0; n < x.size(0); ++n) {
    Tape tape;
    SumSink sink;
    tape.backward(sum_per_sample(square(model(tape, tape.input(x.slice(0, n, n + 1))))), sink);
    REQUIRE(sink.gradients().size() == parameters);
    for (std::size_t k = 0; k < parameters; ++k) {
      CHECK(sink.gradients()[k].first == rows[k].first);
      check_close(rows[k].second.select(0, n), values(sink.gradients()[k].second));
    }
  }
}

// Checks that norms over all uses, cross terms included, are those of the materialized gradients.
void check_norms(const Model& model, const Tensor& x, Parameter& parameter, std::size_t uses) {
  Tape tape({.private_data = true});
  CollectSink sink;
  tape.backward(sum_per_sample(square(model(tape, tape.input(x)))), sink);
  REQUIRE(sink.uses(parameter).size() == uses);
  const Tensor rows = rows_of_uses(sink.uses(parameter));
  const Tensor flat = reshape(rows, {rows.size(0), parameter.value.numel()});
  for (const NormMethod norm_method :
       {NormMethod::automatic, NormMethod::ghost, NormMethod::materialize}) {
    check_close(squared_norm(sink.uses(parameter), norm_method), values(sum(mul(flat, flat), {1})));
  }
}

// Weights with zero mean and unit variance per output (Qiao et al. 2019).
Var standardised(const Var& w) { return reshape(normalize(flatten(w), 1, 1e-3), w.shape()); }

}  // namespace

TEST_CASE("a shared value computed from parameters passes on each sample's gradient") {
  Parameter w(random_values(1, {3, 4})), g(random_values(2, {3, 1})), a(random_values(3, {3, 2})),
      b(random_values(4, {2, 4}));
  const Tensor x = random_values(5, {4, 2, 4});
  check_sample_alone([&](Tape& t, const Var& v) { return linear(v, standardised(t.use(w))); }, x,
                     1);
  check_sample_alone(
      [&](Tape& t, const Var& v) {
        return linear(v, mul(t.use(g), div(t.use(w), norm(t.use(w), {1}, true))));
      },
      x, 2);
  check_sample_alone([&](Tape& t, const Var& v) { return linear(v, matmul(t.use(a), t.use(b))); },
                     x, 2);
  check_sample_alone([&](Tape& t, const Var& v) { return matmul(linear(v, t.use(w)), t.use(w)); },
                     x, 1);
  check_sample_alone(
      [&](Tape& t, const Var& v) { return linear(linear(v, t.use(w)), transpose(t.use(w), 0, 1)); },
      x, 1);
}

TEST_CASE("weights of convolutions may be computed as well") {
  Parameter w(random_values(6, {4, 2, 3, 3})), a(random_values(7, {4, 2})),
      b(random_values(8, {2, 18})), bias(random_values(9, {4}));
  const Tensor x = random_values(10, {3, 2, 5, 4});
  check_sample_alone(
      [&](Tape& t, const Var& v) {
        return conv(v, standardised(t.use(w)), exp(t.use(bias)), {.padding = {1}});
      },
      x, 2);
  check_sample_alone(
      [&](Tape& t, const Var& v) {
        return conv(v, reshape(matmul(t.use(a), t.use(b)), {4, 2, 3, 3}));
      },
      x, 2);
}

TEST_CASE("norms of a parameter used several times have their cross terms") {
  Parameter table(random_values(11, {6, 4})), w(random_values(12, {4, 4})),
      kernel(random_values(13, {2, 2, 3}));
  const Tensor x = random_values(14, {5, 3, 4});
  PublicRandom random(15);
  const Tensor ids = random_ids(random, {5, 3}, 6);
  check_norms(
      [&](Tape& t, const Var&) {
        return linear(embedding(t.use(table), t.input(ids)), t.use(table));
      },
      x, table, 2);
  check_norms([&](Tape& t, const Var& v) { return linear(tanh(linear(v, t.use(w))), t.use(w)); }, x,
              w, 2);
  check_norms(
      [&](Tape& t, const Var& v) {
        return add(linear(select(v, 1, 0), t.use(w)), mul(select(v, 1, 1), sum(t.use(w))));
      },
      x, w, 2);
  check_norms([&](Tape& t, const Var& v) { return matmul(tanh(linear(v, t.use(w))), t.use(w)); }, x,
              w, 2);
  check_norms(
      [&](Tape& t, const Var& v) {
        return conv(tanh(conv(v, t.use(kernel), std::nullopt, {.padding = {1}})), t.use(kernel));
      },
      random_values(16, {3, 2, 6}), kernel, 2);
}

TEST_CASE("a row of padding, which may count from the end, gets no gradient") {
  Parameter table(random_values(17, {3, 2}));
  const auto rows = [&](std::int64_t padding) {
    Tape tape;
    PerSampleGradSink sink;
    const Var ids = tape.input(Tensor::from(std::vector<std::int64_t>{0, 1, 1, 2}, {2, 2}));
    tape.backward(sum_per_sample(embedding(tape.use(table), ids, padding)), sink);
    return values(sink.rows(table));
  };
  for (const std::int64_t padding : {1, -2})
    CHECK(rows(padding) == std::vector<double>{1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1});
  for (const std::int64_t padding : {3, -4, 9})
    CHECK(throws([&] { rows(padding); },
                 fmt::format("embedding: padding {} of a table of 3 rows", padding)));
}

TEST_CASE(
    "backward of an embedding goes to the rows that forward read, even if the ids change later") {
  Parameter table(random_values(17, {3, 2}));
  Tape tape;
  PerSampleGradSink sink;
  const Tensor ids = Tensor::from(std::vector<std::int64_t>{0, 2}, {2, 1});
  const Var loss = sum_per_sample(embedding(tape.use(table), tape.input(ids)));
  copy_into(full({2, 1}, 1 << 20, Dtype::i64), ids);
  tape.backward(loss, sink);
  CHECK(values(sink.rows(table)) == std::vector<double>{1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1});
}

TEST_CASE("cross entropy ignores classes and elements of weight zero, whatever their logits") {
  Tape tape;
  const Tensor logits = Tensor::from({0, 0, -HUGE_VAL, std::nan(""), 1, 2}, {1, 3, 2}, Dtype::f64);
  // Element 0 has the logits 0, -inf, 1; element 1, with a NaN, is ignored.
  const Var x = tape.input(logits, 0, true);
  const Var loss = cross_entropy(x, Tensor::from(std::vector<std::int64_t>{0, -1}, {1, 2}),
                                 {.ignore_index = -1});
  CHECK(loss.value().item() == Approx(std::log(1 + std::exp(1))));
  SumSink sink;
  tape.backward(loss, sink);
  const double p = 1 / (1 + std::exp(1));
  const std::vector<double> expected{p - 1, 0, 0, 0, 1 - p, 0};
  const std::vector<double> found = values(tape.grad(x));
  for (const std::size_t k : {0, 2, 4}) CHECK(found[k] == Approx(expected[k]));
}

TEST_CASE("frozen parameters get no gradient, and values computed only from them are not kept") {
  Parameter w(random_values(18, {3, 4})), frozen(random_values(19, {4, 4}));
  frozen.trainable = false;
  Tape tape({.private_data = true});
  const Var hidden = linear(tape.input(random_values(20, {2, 4})), tape.use(frozen));
  CHECK_FALSE(hidden.needs_grad());
  CollectSink sink;
  tape.backward(sum_per_sample(linear(hidden, tape.use(w))), sink);
  CHECK(sink.count() == 1);
  CHECK(sink.uses(frozen).empty());
}

TEST_CASE("a private tape accepts one loss per sample, and only sinks that bound influence") {
  Parameter w(random_values(22, {3, 4}));
  Tape tape({.private_data = true});
  const Var y = linear(tape.input(random_values(23, {2, 4})), tape.use(w));
  const Var loss = sum_per_sample(y);
  SumSink sum_sink;
  PerSampleGradSink rows_sink;
  CollectSink sink;
  CHECK(throws([&] { tape.backward(loss, sum_sink); }, "sinks that bound each sample's influence"));
  CHECK(
      throws([&] { tape.backward(loss, rows_sink); }, "sinks that bound each sample's influence"));
  CHECK(throws([&] { tape.backward(y, sink); }, "one loss for each sample: shape (2, 3)"));
  CHECK(throws([&] { tape.backward(sum(tape.use(w)), sink); }, "shared by all samples"));
  CHECK(throws([&] { sum(loss); }, "sum: combines samples"));
  CHECK(throws([&] { tape.constant(zeros({2, 4}), SampleAxis::mixed()); }, "mixed samples"));
  tape.backward(loss, sink);
  CHECK(sink.count() == 1);
}

TEST_CASE("values of another tape, of a spent tape and of no tape are refused") {
  Parameter w(random_values(24, {3, 4}));
  Tape tape, other;
  const Var x = tape.input(random_values(25, {2, 4}));
  const Var y = linear(x, tape.use(w));
  SumSink sink;
  CHECK(throws([&] { linear(x, other.use(w)); }, "linear: an input is on another tape"));
  CHECK(throws([&] { other.backward(sum(y), sink); }, "backward: the loss is on another tape"));
  CHECK_THROWS_AS(relu(Var()), std::invalid_argument);
  CHECK(throws([&] { other.grad(x); }, "grad: the value is on another tape"));
  const Var loss = sum(y);
  tape.backward(loss, sink);
  CHECK(throws([&] { tape.backward(loss, sink); }, "emptied by an earlier backward"));
  CHECK(throws([&] { sum(y); }, "emptied by an earlier backward"));
  // A tape may be reused, but not with values recorded before.
  CHECK(throws(
      [&] {
        tape.grad(tape.input(zeros({2, 1}), 0, true));
      },
      "grad: no backward has run"));
  const Var again = sum(linear(tape.input(random_values(26, {2, 4})), tape.use(w)));
  CHECK(throws([&] { add(again, loss); }, "emptied by an earlier backward"));
  CHECK(throws([&] { tape.backward(loss, sink); }, "emptied by an earlier backward"));
  tape.backward(again, sink);
}

TEST_CASE("values without gradients are refused, too, when their tape was emptied or destroyed") {
  const Tensor values = random_values(27, {2, 4});
  const TapeOptions options{.private_data = true};
  std::optional<Tape> tape(options);
  const auto check_refused = [&](const Var& old) {
    const Var x = tape->input(values);
    CHECK(throws([&] { add(x, old); }, "emptied by an earlier backward"));
    CHECK_FALSE(x.is(old));
    CHECK(throws([&] { tape->set_sample_weights(old); }, "emptied by an earlier backward"));
    CHECK(throws(
        [&] {
          segment([](const std::vector<Var>& v) { return v; }, {x, old});
        },
        "inputs of different tapes"));
  };
  const Var kept = tape->input(values);
  tape->clear();
  check_refused(kept);
  const Var detached = detach(tape->input(values));
  tape.emplace(options);  // in the same place
  check_refused(detached);
}

TEST_CASE("inputs agree in their number of samples") {
  Tape tape;
  tape.input(zeros({3, 4}));
  CHECK(throws(
      [&] {
        tape.input(zeros({3, 4}), 1);
      },
      "input: 4 samples along axis 1 of (3, 4), 3 before"));
  CHECK_NOTHROW(tape.input(zeros({4, 3}), -1));
}

TEST_CASE("a kept graph gives equal gradients in a second backward") {
  Parameter w(random_values(27, {3, 4}));
  Tape tape;
  const Var x = tape.input(random_values(28, {2, 4}), 0, true);
  const Var loss = sum_per_sample(tanh(linear(x, standardised(tape.use(w)))));
  PerSampleGradSink first, second;
  tape.backward(loss, first, 1, Tape::Keep::graph);
  const Tensor dx = tape.grad(x);
  tape.backward(loss, second);
  CHECK(same_bits(first.rows(w), second.rows(w)));
  CHECK(same_bits(dx, tape.grad(x)));
}

TEST_CASE("the seed scales gradients and repeated backwards add up in the sink") {
  Parameter w(random_values(29, {3, 4}));
  SumSink once, twice;
  for (SumSink* sink : {&once, &twice, &twice}) {
    Tape tape;
    tape.backward(sum(square(linear(tape.input(random_values(30, {2, 4})), tape.use(w)))), *sink,
                  sink == &once ? 2 : 1);
  }
  check_close(once.gradients()[0].second, values(twice.gradients()[0].second));
}

TEST_CASE("dropout's mask does not depend on how a batch is split, and differs by op and step") {
  const Tensor ones = full({8, 50}, 1);
  const auto masks = [&](const TapeOptions& options, std::int64_t rows) {
    Tape tape(options);
    const Var x = tape.input(ones.slice(0, 0, rows));
    return std::pair(dropout(x, 0.5).value(), dropout(x, 0.5).value());
  };
  const auto whole = masks({.seed = 3}, 8);
  CHECK(same_bits(whole.first.slice(0, 5, 8), masks({.seed = 3, .first_row = 5}, 3).first));
  CHECK_FALSE(same_bits(whole.first, whole.second));
  CHECK_FALSE(same_bits(whole.first, masks({.seed = 3, .step = 1}, 8).first));
  CHECK(same_bits(ones, masks({.training = false}, 8).first));
  // Dropped elements are zero, whatever their value was.
  const auto of = [](double value) {
    Tape tape({.seed = 3});
    return dropout(tape.input(full({8, 50}, value)), 0.5).value();
  };
  CHECK(same_bits(of(HUGE_VAL), where(of(1), full({8, 50}, HUGE_VAL), zeros({8, 50}))));
}

TEST_CASE("dropout's mask of a sample does not depend on padding to longer samples") {
  const auto mask = [](const Shape& shape, int axis) {
    Tape tape({.seed = 3});
    return dropout(tape.input(full(shape, 1), axis), 0.5).value();
  };
  const Tensor own = mask({4, 5, 3}, 0);
  CHECK(same_bits(own, mask({4, 9, 3}, 0).slice(1, 0, 5)));
  CHECK(same_bits(own, mask({4, 9, 8}, 0).slice(1, 0, 5).slice(2, 0, 3)));
  CHECK(same_bits(own, mask({9, 4, 3}, 1).slice(0, 0, 5).transpose(0, 1)));
  CHECK_FALSE(same_bits(own.slice(1, 0, 4), own.slice(1, 1, 5)));
  CHECK_FALSE(same_bits(own.slice(0, 0, 3), own.slice(0, 1, 4)));
}

TEST_CASE("backward releases what the tape held, and needs little beyond it") {
  Parameter w(random_values(31, {64, 64}, Dtype::f32));
  const Tensor x = random_values(32, {256, 64}, Dtype::f32);
  const std::size_t start = allocator(cpu).statistics().current;
  constexpr int layers = 12;
  constexpr std::size_t activation = 256 * 64 * sizeof(float);
  {
    Tape tape;
    std::size_t forward = 0;
    SumSink sink;
    {
      Var y = tape.input(x);
      for (int i = 0; i < layers; ++i) y = tanh(linear(y, tape.use(w)));
      const Var loss = sum_per_sample(y);
      y = Var();
      forward = allocator(cpu).statistics().current - start;
      // tanh writes over its input, and its backward reads only its result.
      CHECK(forward >= layers * activation);
      CHECK(forward <= (layers + 1) * activation);
      allocator(cpu).reset_peak();
      tape.backward(loss, sink);
    }
    const std::size_t weight = 64 * 64 * sizeof(float);
    // The memory of backward does not grow with depth: factors are summed at once.
    const std::size_t peak = allocator(cpu).statistics().peak - start;
    CHECK(peak <= forward + 2 * activation + 2 * weight);
    CHECK(allocator(cpu).statistics().current - start <= 2 * weight);
  }
  CHECK(allocator(cpu).statistics().current == start);
}
