// The networks of the samples.
#include <map>
#include <numeric>
#include <set>

#include "autograd/ops/loss/losses.h"
#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "dp/clipping/clipper.h"
#include "dp/engine/engine.h"
#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/accumulation.h"
#include "memory/outputs_of.h"
#include "memory/profiling/peak_memory.h"
#include "nn/models/resnet.h"
#include "samples/models/models.h"
#include "samples/models/registry.h"
#include "samples/models/workloads.h"
#include "tests/benchmarks/sized_models.h"
#include "tests/support/catch.h"
#include "tests/support/threads.h"
#include "tests/support/throws.h"

using namespace sotto;

TEST_CASE("evaluation keeps no activations for a backward pass") {
  nn::Sequential deep;
  for (int k = 0; k < 30; ++k) deep.add(nn::Linear(64, 64));
  const Dataset data{.inputs = full({400, 64}, 1), .targets = zeros({400}, Dtype::i64)};
  const memory::PeakMemoryTracker memory(cpu);
  const std::size_t before = memory.peak();
  CHECK(memory::outputs_of(deep, data).shape() == Shape{400, 64});
  const std::size_t activation = data.inputs.bytes();
  CHECK(memory.peak() - before < 6 * activation);
  CHECK(deep.parameters()[0]->trainable);
}

TEST_CASE("evaluation computes as many samples at once as 256 MiB hold") {
  nn::Sequential wide{nn::Linear(1, 1 << 18)};  // a sample's result: 1 MiB
  const Dataset data{.inputs = full({300, 1}, 1), .targets = zeros({300}, Dtype::i64)};
  const memory::PeakMemoryTracker memory(cpu);
  const std::size_t before = memory.peak();
  const auto sums = [&](Tape& tape, const Dataset& part) {
    return sum(wide(tape.input(part.inputs)), {1});
  };
  CHECK(memory::outputs_of(wide, data, sums).shape() == Shape{300});
  CHECK(memory.peak() - before < std::size_t{257} << 20);
}

TEST_CASE("every registered model gives finite logits for each of its samples", "[gate]") {
  std::set<std::string> names;
  for (const models::Entry& entry : models::registry()) {
    INFO(entry.name);
    CHECK(names.insert(entry.name).second);
    CHECK(&models::parse_entry(entry.name) == &entry);
    // Models for 32x32 pixels take seconds; a small one is tested below.
    if (entry.input[0] == 3) continue;
    const auto model = entry.make();
    const auto [inputs, labels] = entry.random_examples(2);
    Tape tape({.private_data = true});
    const Var logits = (*model)(tape.input(inputs));
    CHECK(logits.shape()[logits.rank() - 1] == entry.classes);
    const Var losses = entry.losses(logits, labels);
    CHECK(losses.shape() == Shape{2});
    CHECK(std::isfinite(sum(losses.value()).item()));
  }
  CHECK(throws([] { models::parse_entry("resnet"); }, "resnet18, resnet50"));
  CHECK(throws([] { models::entry_of_any("gpt3"); }, "perceptron:WIDTHxDEPTH"));
}

TEST_CASE("sized models have the sizes in their names") {
  const std::string perceptron = "perceptron:12x3", transformer = "transformer:20";
  const models::Entry layers = models::entry_of_any(perceptron);
  CHECK(layers.make()->parameter_count() == 3 * (12 * 12 + 12) + 12 * 10 + 10);
  CHECK(layers.input == Shape{12});
  for (const std::string& name : {perceptron, transformer}) {
    const models::Entry entry = models::entry_of_any(name);
    CHECK(entry.name == name);
    const auto [inputs, labels] = entry.random_examples(2);
    Tape tape;
    const auto model = entry.make();
    CHECK(entry.losses((*model)(tape.input(inputs)), labels).shape() == Shape{2});
  }
  CHECK(models::entry_of_any(transformer).input == Shape{20});
  CHECK(models::entry_of_any("mnist").input == Shape{1, 28, 28});
  for (const char* wrong : {"perceptron:12", "perceptron:0x3", "perceptron:12x", "perceptron:12x3y",
                            "transformer:-5", "transformer:9999999", "transformers:20"}) {
    INFO(wrong);
    CHECK_THROWS_AS(models::entry_of_any(wrong), std::invalid_argument);
  }
}

TEST_CASE("large models are those of the papers") {
  // Weights and biases of attention's two layers, the feed-forward network's two, and the norms'.
  const auto block = [](std::int64_t d) { return 12 * d * d + 13 * d; };
  CHECK(models::resnet20()->parameter_count() == 272'474);
  CHECK(models::resnet18()->parameter_count() == 11'173'962);
  // A convolution's weights, gains and biases; behind the first one, a norm before it.
  const auto conv = [](std::int64_t in, std::int64_t out, std::int64_t kernel) {
    return out * (in * kernel * kernel + 2);
  };
  std::int64_t wide = conv(3, 16, 3), in = 16;
  for (const std::int64_t width : {64, 128, 256}) {
    wide += conv(in, width, 3) + conv(in, width, 1) + 3 * conv(width, width, 3);
    wide += 2 * (2 * in + 3 * width);
    in = width;
  }
  CHECK(models::wide_resnet()->parameter_count() == wide + 2 * 256 + 256 * 10 + 10);
  const models::CausalOptions words{.words = 11, .length = 6, .width = 8, .heads = 2, .blocks = 3};
  const auto causal = models::causal_transformer(words);
  CHECK(causal->parameter_count() == 11 * 8 + 6 * 8 + 3 * block(8) + 2 * 8 + 8 * 11 + 11);
  const models::VisionOptions patches{
      .side = 12, .patch = 3, .width = 8, .heads = 2, .blocks = 2, .classes = 5};
  const auto vision = models::vision_transformer(patches);
  CHECK(vision->parameter_count() == 3 * 3 * 3 * 8 + 8 + 16 * 8 + 2 * block(8) + 2 * 8 + 8 * 5 + 5);
  Tape tape;
  CHECK((*causal)(tape.input(zeros({2, 6}, Dtype::i64))).shape() == Shape{2, 6, 11});
  CHECK((*vision)(tape.input(zeros({2, 3, 12, 12}, Dtype::f32))).shape() == Shape{2, 5});
  const models::Entry gpt2 = models::entry_of_any("gpt2-small");
  CHECK(gpt2.input == Shape{512});
  CHECK(gpt2.words == 50257);
  CHECK(models::entry_of_any("vit-b16").input == Shape{3, 224, 224});
}

TEST_CASE("residual networks for large images have a wider stem") {
  const nn::ResNetOptions large{
      .blocks = {1}, .width = 8, .norm = {.group = true, .groups = 4}, .classes = 3};
  nn::ResNetOptions small = large;
  small.large_images = false;
  nn::ResNet network(large);
  CHECK(network.parameter_count() - nn::ResNet(small).parameter_count() == 8 * 3 * (7 * 7 - 3 * 3));
  Tape tape;
  const Var x = tape.input(zeros({2, 3, 32, 32}, Dtype::f32));
  CHECK(network(x).shape() == Shape{2, 3});
  CHECK(models::entry_of_any("resnet50-224").classes == 1000);
}

TEST_CASE("gradients of deep sized models do not vanish") {
  const std::string name = "perceptron:16x64";
  const models::Entry entry = models::entry_of_any(name);
  const auto model = entry.make();
  const auto [inputs, labels] = entry.random_examples(2);
  Tape tape;
  SumSink sink;
  tape.backward(entry.losses((*model)(tape.input(inputs)), labels), sink);
  for (const auto& [parameter, sum] : sink.gradients())
    CHECK(reduce(Reduction::max, unary(unary_index<functors::Abs>, sum), {}, false).item() > 1e-10);
}

TEST_CASE("ResNet-50 has the parameters that its definition gives") {
  // Convolutions without bias, two numbers for each channel of a normalisation, a linear layer.
  const auto normed = [](std::int64_t in, std::int64_t out, std::int64_t kernel) {
    return in * out * kernel * kernel + 2 * out;
  };
  std::int64_t expected = normed(3, 64, 3), in = 64, width = 64;
  for (const std::int64_t blocks : {3, 4, 6, 3}) {
    expected += normed(in, 4 * width, 1);
    for (std::int64_t block = 0; block < blocks; ++block) {
      expected += normed(in, width, 1) + normed(width, width, 3) + normed(width, 4 * width, 1);
      in = 4 * width;
    }
    width *= 2;
  }
  expected += in * 10 + 10;
  CHECK(models::resnet50()->parameter_count() == expected);
  CHECK(expected == 23520842);
}

TEST_CASE("standardised weights with gains are clipped as each sample alone", "[gate]") {
  constexpr double bound = 0.5;
  const auto network = models::wide_resnet();
  network->to(Dtype::f64);
  const models::Entry entry{
      .name = "", .description = "", .make = nullptr, .input = {3, 8, 8}, .classes = 10};
  const auto [inputs, labels] = entry.random_examples(3);
  const auto losses = [&, &inputs = inputs, &labels = labels](Tape& tape, std::int64_t begin,
                                                              std::int64_t end) {
    const Var x = tape.input(to_dtype(inputs.slice(0, begin, end), Dtype::f64));
    return cross_entropy((*network)(x), labels.slice(0, begin, end));
  };
  std::map<const Parameter*, Tensor> expected;
  for (std::int64_t sample = 0; sample < 3; ++sample) {
    Tape tape;
    SumSink sink;
    tape.backward(losses(tape, sample, sample + 1), sink);
    double squares = 0;
    for (const auto& [parameter, gradient] : sink.gradients())
      for (const double value : gradient.to_vector<double>()) squares += value * value;
    const double factor = std::min(1.0, bound / std::sqrt(squares));
    for (const auto& [parameter, gradient] : sink.gradients()) {
      Tensor& sum = expected[parameter];
      if (!sum.defined()) sum = zeros_like(gradient);
      axpby(factor, gradient, 1, sum);
    }
  }
  Tape tape({.private_data = true});
  Clipper clipper(flat_group(network->parameters(), bound));
  clipper.add(tape, losses(tape, 0, 3));
  REQUIRE(clipper.clipped_sums().size() == expected.size());
  for (const auto& [parameter, sum] : clipper.clipped_sums()) {
    const std::vector<double> got = sum.to_vector<double>();
    const std::vector<double> want = expected.at(parameter).to_vector<double>();
    for (std::size_t k = 0; k < got.size(); ++k) REQUIRE(std::abs(got[k] - want[k]) <= 1e-9);
  }
}

TEST_CASE("a small residual network trains privately") {
  nn::ResNet network({.blocks = {1, 2},
                      .width = 8,
                      .norm = {.group = true, .groups = 4},
                      .classes = 3,
                      .large_images = false});
  Tape tape({.private_data = true});
  const models::Entry entry{
      .name = "", .description = "", .make = nullptr, .input = {3, 8, 8}, .classes = 3};
  const auto [inputs, labels] = entry.random_examples(4);
  Clipper clipper(flat_group(network.parameters(), 1));
  clipper.add(tape, cross_entropy(network(tape.input(inputs)), labels));
  for (const auto& [parameter, sum] : clipper.clipped_sums()) {
    INFO(parameter->value.shape().numel());
    CHECK(reduce(Reduction::max, unary(unary_index<functors::Abs>, sum), {}, false).item() > 0);
  }
}

namespace {

struct Peak {
  double predicted, measured;  // bytes in forward and backward, beyond those in use before
  std::string plan;
};

// A step on some samples within a limit.
class PlannedStep {
 public:
  PlannedStep(const models::Entry& entry, std::int64_t samples)
      : entry_(entry), model_(entry.make()), data_(entry.random_examples(samples)) {}

  std::int64_t parameters() { return model_->parameter_count(); }
  Peak privately(const memory::Policy& policy) {
    Ledger ledger;
    Engine engine(
        *model_, optimizer_, samples(), ledger,
        {.noise_multiplier = 1, .logical_batch = static_cast<double>(samples()), .memory = policy});
    engine.step(loss());
    return peak(*engine.memory_plan(), engine.phases());
  }
  Peak ordinarily(const memory::Policy& policy) {
    memory::Accumulation accumulation(policy, *model_);
    std::vector<std::int64_t> rows(static_cast<std::size_t>(samples()));
    std::iota(rows.begin(), rows.end(), 0);
    accumulation.mean_gradient(loss(), rows, optimizer_);
    return peak(*accumulation.plan(), accumulation.phases());
  }

 private:
  std::int64_t samples() const { return data_.labels.size(0); }
  std::function<Var(Tape&, std::span<const std::int64_t>)> loss() {
    return [this](Tape& tape, std::span<const std::int64_t> rows) {
      const Tensor ids = Tensor::from(std::vector(rows.begin(), rows.end()), {std::ssize(rows)});
      return entry_.losses((*model_)(tape.input(gather(data_.inputs, ids, 0))),
                           gather(data_.labels, ids, 0));
    };
  }
  Peak peak(const memory::Plan& plan, const memory::PhaseProfiler& phases) const {
    std::size_t measured = 0;
    for (const memory::PhaseTotal& phase : phases.totals()) {
      if (phase.name.find("ward") != std::string::npos)
        measured = std::max(measured, phase.peak_bytes[0]);
    }
    return {static_cast<double>(plan.fit().measured - before_),
            static_cast<double>(measured - before_), plan.text()};
  }

  const models::Entry& entry_;
  std::unique_ptr<nn::Module> model_;
  models::Examples data_;
  nn::Sgd optimizer_{*model_, {.learning_rate = 0.01}};
  std::size_t before_ = allocator(cpu).statistics().current;
};

}  // namespace

TEST_CASE("plans predict the peak of a step of every registered model within a tenth",
          "[nightly]") {
  // With two threads, whether both workspaces exist at once would be a matter of chance.
  const Threads one(1);
  const memory::Policy policy{.physical_batch = 2, .limit = std::size_t{4} << 30};
  for (const models::Entry& entry : models::registry()) {
    for (const bool privately : {false, true}) {
      PlannedStep step(entry, 3);
      // Larger ones take seconds, and are run once.
      constexpr std::int64_t large = 8'000'000;
      if (privately && step.parameters() > large) continue;
      const Peak peak = privately ? step.privately(policy) : step.ordinarily(policy);
      CAPTURE(entry.name, privately, peak.plan);
      CHECK(peak.predicted == Approx(peak.measured).epsilon(0.1));
    }
  }
}
