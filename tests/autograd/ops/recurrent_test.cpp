// Recurrent layers: properties that op_laws_test.cpp and the conformance cases do not cover.
// File tags: [engine]
#include <map>

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "core/random/philox.h"
#include "core/threads/parallel.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

Tensor normal_values(PublicRandom& random, const Shape& shape) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  for (float& value : values) value = static_cast<float>(random.normal());
  return Tensor::from(values, shape);
}

std::vector<double> values(const Tensor& x) { return to_dtype(x, Dtype::f64).to_vector<double>(); }

struct Run {
  std::vector<double> output, norms, sums;
};

// A private step through a recurrent network, with a loss of its final states.
Run run(nn::RecurrentLayers& network, const Tensor& x, const Tensor& lengths) {
  Clipper clipper(flat_group(network.parameters(), 0.5));
  Tape tape({.private_data = true});
  const nn::RecurrentOutputs y = network.run(tape.input(x), {std::nullopt, std::nullopt, lengths});
  Run result{values(y.output.value()), {}, {}};
  clipper.add(tape, sum_per_sample(square(transpose(y.h, 0, 1))));
  result.norms = clipper.statistics().norms[0];
  for (const auto& [parameter, sum] : clipper.clipped_sums()) {
    for (const double v : values(sum)) result.sums.push_back(v);
  }
  return result;
}

}  // namespace

TEST_CASE("values in steps that are not valid have no effect, not even NaN", "[simd]") {
  nn::manual_seed(3);
  PublicRandom random(5);
  nn::LSTM network(3, 4, {.num_layers = 2, .batch_first = true, .bidirectional = true});
  const Tensor x = normal_values(random, {3, 5, 3}),
               lengths = Tensor::from(std::vector<std::int64_t>{2, 5, 1}, {3});
  const Run clean = run(network, x, lengths);
  for (const auto& [sample, from] : {std::pair(0, 2), std::pair(2, 1)}) {
    copy_into(full({}, std::nan("")), x.select(0, sample).slice(0, from, 5));
  }
  const Run dirty = run(network, x, lengths);
  CHECK(dirty.output == clean.output);
  CHECK(dirty.norms == clean.norms);
  CHECK(dirty.sums == clean.sums);
}

TEST_CASE("results of a batch of several lengths are those of the samples run alone, in order",
          "[simd]") {
  nn::manual_seed(4);
  PublicRandom random(6);
  nn::GRU network(2, 3, {.batch_first = true});
  const std::vector<std::int64_t> lengths{2, 4, 1, 3};
  const Tensor x = normal_values(random, {4, 4, 2});
  const Run together = run(network, x, Tensor::from(lengths, {4}));
  for (std::int64_t n = 0; n < 4; ++n) {
    const std::int64_t length = lengths[static_cast<std::size_t>(n)];
    const Run alone = run(network, x.slice(0, n, n + 1).slice(1, 0, length), {});
    CHECK(together.norms[static_cast<std::size_t>(n)] == Approx(alone.norms[0]).epsilon(1e-5));
  }
}

// With lengths that include all steps, the layer computes its steps one by one.
TEST_CASE("an LSTM layer in one primitive equals its steps one by one", "[simd]") {
  PublicRandom random(10);
  for (const std::int64_t samples : {1, 5, 64}) {
    const std::int64_t steps = 6;
    nn::manual_seed(11);
    nn::LSTM network(3, 9, {.num_layers = 2, .batch_first = true, .bidirectional = true});
    const Tensor x = normal_values(random, {samples, steps, 3});
    const auto n = static_cast<std::size_t>(samples);
    const Run whole = run(network, x, {});
    const Run each = run(network, x, Tensor::from(std::vector<std::int64_t>(n, steps), {samples}));
    const auto same = [](const std::vector<double>& a, const std::vector<double>& b) {
      REQUIRE(a.size() == b.size());
      for (std::size_t i = 0; i < a.size(); ++i)
        CHECK(a[i] == Approx(b[i]).epsilon(1e-4).margin(1e-6));
    };
    same(whole.output, each.output);
    same(whole.norms, each.norms);
    same(whole.sums, each.sums);
  }
}

TEST_CASE("an LSTM layer does not depend on the number of threads", "[simd]") {
  PublicRandom random(12);
  const int before = thread_count();
  for (const std::int64_t samples : {35, 64}) {
    const Tensor x = normal_values(random, {samples, 4, 20});
    const auto on_threads = [&](int count) {
      set_thread_count(count);
      nn::manual_seed(13);
      nn::LSTM network(20, 30, {.batch_first = true});
      return run(network, x, {}).output;
    };
    const std::vector<double> one = on_threads(1);
    CHECK(on_threads(2) == one);
    CHECK(on_threads(3) == one);
  }
  set_thread_count(before);
}

TEST_CASE("segments of steps equal all steps at once", "[simd]") {
  PublicRandom random(7);
  const Tensor x = normal_values(random, {3, 7, 2}),
               lengths = Tensor::from(std::vector<std::int64_t>{7, 0, 4}, {3});
  const auto run_in = [&](std::int64_t steps) {
    nn::manual_seed(8);
    nn::LSTM network(2, 4,
                     {.num_layers = 2,
                      .batch_first = true,
                      .dropout = 0.3,
                      .bidirectional = true,
                      .proj_size = 3,
                      .segment_steps = steps});
    return run(network, x, lengths);
  };
  const Run whole = run_in(0);
  for (const std::int64_t steps : {1, 3, 7, 9}) {
    const Run cut = run_in(steps);
    CHECK(cut.output == whole.output);
    for (std::size_t n = 0; n < whole.norms.size(); ++n)
      CHECK(cut.norms[n] == Approx(whole.norms[n]).epsilon(1e-5));
    for (std::size_t i = 0; i < whole.sums.size(); ++i)
      CHECK(cut.sums[i] == Approx(whole.sums[i]).margin(1e-6));
  }
}

// docs/appendix/memory-notes.md: the tape keeps states between segments instead of the values of
// all steps.
TEST_CASE("segments of steps use less memory, and materialize gradients smaller than their factors",
          "[simd]") {
  PublicRandom random(9);
  const Tensor x = normal_values(random, {8, 256, 4});
  const auto peak = [&](std::int64_t steps, bool private_data) {
    nn::LSTM network(4, 8, {.batch_first = true, .segment_steps = steps});
    Tape tape({.private_data = private_data});
    Allocator& memory = allocator(x.device());
    const std::size_t before = memory.statistics().current;
    memory.reset_peak();
    const Var y = sum_per_sample(square(network(tape.input(x))));
    SumSink sums;
    Clipper clipper(flat_group(network.parameters(), 1));
    if (private_data) {
      clipper.add(tape, y);
    } else {
      tape.backward(y, sums);
    }
    return static_cast<double>(memory.statistics().peak - before);
  };
  CHECK(peak(16, false) < 0.35 * peak(0, false));
  CHECK(peak(16, true) < 0.35 * peak(0, true));
}

TEST_CASE("an empty batch passes recurrent layers", "[simd]") {
  nn::RNN network(2, 3, {.batch_first = true});
  const Run empty = run(network, zeros({0, 4, 2}), {});
  CHECK(empty.norms.empty());
  CHECK(std::all_of(empty.sums.begin(), empty.sums.end(), [](double v) { return v == 0; }));
}

TEST_CASE("recurrent parameters have the field's names, shapes and range") {
  nn::LSTM network(3, 4, {.num_layers = 2, .bidirectional = true, .proj_size = 2});
  std::map<std::string, Shape> shapes;
  for (const auto& [name, parameter] : network.named_parameters()) {
    shapes[name] = parameter->value.shape();
    for (const double v : values(parameter->value)) CHECK(std::abs(v) <= 0.5);
  }
  CHECK(shapes.size() == 20);
  CHECK(shapes.at("weight_ih_l0") == Shape({16, 3}));
  CHECK(shapes.at("weight_hh_l0_reverse") == Shape({16, 2}));
  CHECK(shapes.at("weight_ih_l1") == Shape({16, 4}));
  CHECK(shapes.at("bias_hh_l1_reverse") == Shape({16}));
  CHECK(shapes.at("weight_hr_l1") == Shape({2, 4}));
}

TEST_CASE("recurrent layers refuse sizes that do not fit, and name them") {
  nn::GRU network(3, 4, {.batch_first = true});
  Tape tape;
  const Var x = tape.input(zeros({2, 5, 3}));
  const auto with_lengths = [&](std::vector<std::int64_t> lengths) {
    const auto n = static_cast<std::int64_t>(lengths.size());
    network.run(x, {std::nullopt, std::nullopt, Tensor::from(lengths, {n})});
  };
  CHECK(throws([&] { with_lengths({2, 6}); }, "a length of 6 in 5 steps"));
  CHECK(throws([&] { with_lengths({-1, 5}); }, "a length of -1 in 5 steps"));
  CHECK(throws([&] { with_lengths({5}); }, "for 2 samples"));
  CHECK(throws([&] { network(tape.input(zeros({2, 5, 4}))); }, "(12, 3)"));
  CHECK(throws([] { nn::GRU(3, 4, {.proj_size = 2}); }, "LSTM only"));
}

// If time steps could be the sample axis, the recurrence would mix samples.
TEST_CASE("samples along the steps are refused on a private tape") {
  nn::RNN network(3, 4, {.batch_first = true});
  Tape tape({.private_data = true});
  const Var x = tape.input(zeros({2, 5, 3}), 1);
  CHECK(throws([&] { network(x); }, "rnn"));
}
