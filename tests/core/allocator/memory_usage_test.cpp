// The owners of a training step's bytes: by kind against formulas, and by op, module and phase; and
// the timeline of allocations.
#include <algorithm>
#include <map>

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "core/threads/parallel.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/checkpointing/sequential_checkpoints.h"
#include "memory/profiling/phase_profiler.h"
#include "memory/profiling/timeline.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/threads.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

constexpr std::int64_t samples = 16, inputs = 24, hidden = 40, outputs = 8;

using Bytes = std::map<std::string, std::size_t>;

std::size_t taken(std::int64_t floats) {
  return Allocator::size_class(static_cast<std::size_t>(floats) * sizeof(float));
}

// The bytes in use beyond `before`, by name.
Bytes live_by(MemoryAxis axis, const Bytes& before = {}) {
  Bytes all;
  for (const auto& [name, usage] : allocator(cpu).usage(axis)) {
    const auto old = before.find(name);
    all[name] = usage.current - (old == before.end() ? 0 : old->second);
  }
  return all;
}

// The own peak of each name since reset_peak().
Bytes own_peaks(MemoryAxis axis) {
  Bytes all;
  for (const auto& [name, usage] : allocator(cpu).usage(axis)) all[name] = usage.peak;
  return all;
}

Bytes at_peak(const memory::Timeline& timeline, MemoryAxis axis) {
  Bytes all;
  for (const auto& [name, bytes] : timeline.peak_by(axis)) all[name] = bytes;
  return all;
}

struct Network {
  nn::Sequential model{nn::Linear(inputs, hidden), nn::Tanh(), nn::Linear(hidden, outputs)};
  Tensor x = full({samples, inputs}, 0.5);

  Var loss(Tape& tape) { return sum(model(tape.input(x)), {1}); }
};

std::size_t parameter_bytes() {
  return taken(hidden * inputs) + taken(hidden) + taken(outputs * hidden) + taken(outputs);
}

}  // namespace

TEST_CASE("bytes of every kind are what formulae say") {
  const Bytes before = live_by(MemoryAxis::kind);
  const auto more = [&] { return live_by(MemoryAxis::kind, before); };
  Network n;
  nn::Adam optimizer(n.model);
  Tape tape;
  Var loss = n.loss(tape);
  CHECK(more()["parameters"] == parameter_bytes());
  CHECK(more()["data"] == taken(samples * inputs));
  // At least the values that backward needs, the hidden layer after tanh and the losses; at most
  // all values.
  CHECK(more()["activations"] >= taken(samples * hidden) + taken(samples));
  CHECK(more()["activations"] <=
        2 * taken(samples * hidden) + taken(samples * outputs) + taken(samples));
  SumSink sink;
  tape.backward(loss, sink);
  CHECK(more()["gradients"] == parameter_bytes());
  CHECK(sink.gradients()[0].second.memory_label().module == std::string("2"));
  loss = Var();
  CHECK(more()["activations"] == 0);
  CHECK(more()["workspace"] == 0);
  optimizer.step(sink.gradients());
  CHECK(more()["optimizer state"] == 2 * parameter_bytes());
  CHECK(more()["other"] == 0);
}

TEST_CASE("a module's bytes are under its path, an op's under its name, backward apart") {
  Network n;
  allocator(cpu).reset_peak();
  Tape tape({.private_data = true});
  const Var loss = n.loss(tape);
  CHECK(n.model.parameters()[2]->value.memory_label().module == std::string("2"));
  CHECK(std::string(loss.value().memory_label().module).empty());
  Clipper clipper(flat_group(n.model.parameters(), 1));
  clipper.add(tape, loss);
  Bytes modules = own_peaks(MemoryAxis::module);
  CHECK(modules["2"] >= taken(outputs * hidden) + taken(outputs));
  CHECK(modules["1"] >= taken(samples * hidden));
  Bytes ops = own_peaks(MemoryAxis::op);
  CHECK(ops["tanh"] == taken(samples * hidden));
  // The gradient of tanh is written over the incoming one, which the next layer had allocated.
  CHECK(ops["tanh (backward)"] == 0);
  CHECK(ops["linear (backward)"] >= taken(samples * hidden));
  // The saved factors of clipping in one pass: the gradients of both layers' outputs.
  Bytes kinds = own_peaks(MemoryAxis::kind);
  CHECK(kinds["saved factors"] == taken(samples * hidden) + taken(samples * outputs));
}

TEST_CASE("clipping in two passes keeps no factors") {
  Network n;
  memory::Timeline timeline;
  Tape tape({.private_data = true});
  const Var loss = n.loss(tape);
  Clipper clipper(flat_group(n.model.parameters(), 1), {}, ClipPasses::two);
  clipper.add(tape, loss);
  CHECK(at_peak(timeline, MemoryAxis::kind)["saved factors"] == 0);
}

TEST_CASE("clipping in one pass frees factors as it forms their sums") {
  constexpr std::int64_t width = 512, rows = 256;
  nn::Sequential model;
  for (int k = 0; k < 4; ++k) model.add(nn::Linear(width, width));
  const Tensor x = full({rows, width}, 0.5);
  memory::Timeline timeline;
  Tape tape({.private_data = true});
  Clipper clipper(flat_group(model.parameters(), 1));
  const Var loss = sum_per_sample(model(tape.input(x)));
  clipper.add(tape, loss);
  // Early in backward: the inputs of three layers, the gradients of four outputs (which are also
  // the biases' per-sample gradients), and the first weight's sum in f64 with one row that it is
  // computed from. At the end: all sums.
  const std::size_t factor = taken(rows * width), sum = taken(width * width);
  CHECK(timeline.peak() - timeline.first() <
        std::max(7 * factor + 3 * sum + factor + factor / 2, 4 * 2 * sum + sum + 2 * factor));
}

TEST_CASE("two passes over nested segments need as much memory as an ordinary step") {
  // The first three modules need the most memory, and are last in backward.
  nn::Sequential model{nn::Linear(96, 512), nn::Tanh(), nn::Linear(512, 96)};
  for (int k = 0; k < 12; ++k) {
    model.add(nn::Tanh());
    model.add(nn::Linear(96, 96));
  }
  const Tensor x = full({2048, 96}, 0.5);
  const auto peak = [&](bool privately) {
    memory::Timeline timeline;
    Tape tape({.private_data = privately});
    const Var loss = sum_per_sample(model(tape.input(x)));
    SumSink sums;
    Clipper clipper(flat_group(model.parameters(), 1), {}, ClipPasses::two);
    if (privately) {
      clipper.add(tape, loss);
    } else {
      tape.backward(loss, sums);
    }
    return static_cast<double>(timeline.peak() - timeline.first());
  };
  memory::checkpoint_every(model, 3);
  const double ordinary = peak(false);
  CHECK(peak(true) > 1.2 * ordinary);
  memory::checkpoint_every(model, 3, memory::BackwardPasses::two);
  CHECK(peak(true) < 1.15 * ordinary);  // sums are in f64
  CHECK(model.segments().front() == nn::Sequential::Segment{0, 27});
}

TEST_CASE("recomputation in backward is labelled like the first run") {
  Network n;
  n.model.set_segments({{0, 2}});
  Tape tape;
  const Var loss = n.loss(tape);
  memory::Timeline timeline;
  SumSink sink;
  tape.backward(loss, sink);
  bool again = false;
  for (const memory::Timeline::Band& band : timeline.curve().bands) {
    const MemoryLabel& label = band.label;
    again = again || (label.kind == MemoryKind::activation && label.op_name() == "tanh" &&
                      label.module == std::string("1") && band.max() == taken(samples * hidden));
  }
  CHECK(again);
  CHECK(sink.gradients()[2].second.memory_label().module == std::string("0"));
}

TEST_CASE("a timeline knows every byte at every moment, and which phase allocated") {
  Network n;
  const std::size_t before = allocator(cpu).statistics().current;
  allocator(cpu).reset_peak();
  memory::Timeline timeline;
  {
    Tape tape;
    SumSink sink;
    tape.backward(n.loss(tape), sink);
    nn::Adam(n.model).step(sink.gradients());
  }
  timeline.stop();
  const std::size_t peak = allocator(cpu).statistics().peak;
  const Tensor later = full({1000}, 0);
  CHECK(timeline.first() == before);
  CHECK(timeline.peak() == peak);
  for (const std::size_t points : {5, 100000}) {
    const memory::Timeline::Curve curve = timeline.curve(points);
    const std::vector<std::size_t> totals = curve.totals();
    CHECK(totals.size() <= 2 + points);
    CHECK(std::is_sorted(curve.seconds.begin(), curve.seconds.end()));
    CHECK(totals.front() == before);
    CHECK(*std::max_element(totals.begin(), totals.end()) == peak);
    if (points > 5) CHECK(totals.back() == before);
  }
  std::size_t sum = 0;
  for (const auto& [name, bytes] : timeline.peak_by(MemoryAxis::kind)) sum += bytes;
  CHECK(sum == peak);
  std::map<std::string, memory::Timeline::Phase> phases;
  for (const memory::Timeline::Phase& phase : timeline.phases()) phases[phase.name] = phase;
  CHECK(phases.count("forward") == 1);
  CHECK(phases["update"].allocated >= 2 * parameter_bytes());
  CHECK(std::max(phases["backward"].peak, phases["update"].peak) == peak);
  CHECK(!timeline.forgot());
}

TEST_CASE("a timeline of little capacity drops the oldest events and stays exact") {
  memory::Timeline timeline({.capacity = 10});
  const Tensor kept = full({100}, 0);
  const std::size_t current = allocator(cpu).statistics().current;
  for (int i = 0; i < 100; ++i) full({i + 1}, 0);
  CHECK(timeline.forgot());
  CHECK(timeline.first() == current);
  CHECK(timeline.peak() == current + taken(100));
  timeline.restart();
  CHECK(!timeline.forgot());
  CHECK(timeline.peak() == current);
  CHECK(timeline.curve().totals().size() == 1);
}

TEST_CASE("phases have their own peaks and leave the allocator's alone") {
  allocator(cpu).reset_peak();
  const std::size_t before = allocator(cpu).statistics().current;
  full({3000}, 0);
  memory::PhaseProfiler clock;
  clock.enter("large");
  full({2000}, 0);
  clock.enter("small");
  full({100}, 0);
  clock.enter("large");
  full({50}, 0);
  clock.stop();
  full({4000}, 0);
  REQUIRE(clock.totals().size() == 2);
  CHECK(clock.totals()[0].peak_bytes == std::vector{before + taken(2000)});
  CHECK(clock.totals()[1].peak_bytes == std::vector{before + taken(100)});
  CHECK(clock.totals()[0].entries == 2);
  CHECK(clock.peak_bytes() == before + taken(2000));
  CHECK(allocator(cpu).statistics().peak == before + taken(4000));
  CHECK(throws([&] { clock.peak_bytes(1); }, "device 1 of 1"));
}

TEST_CASE("allocations of worker threads for an op are labelled with the op") {
  allocator(cpu).forget_waiting();
  const Threads threads(2);
  std::vector<Tensor> parts(2);
  {
    const LabelScope scope = LabelScope::module("layer");
    parallel_for(2, 1, [&](std::int64_t begin, std::int64_t end) {
      for (; begin < end; ++begin) parts[static_cast<std::size_t>(begin)] = full({10}, 0);
    });
  }
  allocator(cpu).name_waiting("both", "forward");
  for (const Tensor& part : parts) {
    CHECK(part.memory_label().op_name() == "both");
    CHECK(part.memory_label().module == std::string("layer"));
  }
}

}  // namespace sotto
