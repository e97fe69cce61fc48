// Prints a table, in Markdown: time and peak memory of forward and backward through one layer,
// ordinary and private (flat clipping in one pass), in the shapes of Opacus' benchmark of layers.
// Arguments name the layers ("derived": weights that are functions of parameters); without
// arguments all run. OMP_NUM_THREADS=1 gives the steadiest ratios.
#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "nn/functional.h"
#include "nn/layers.h"
#include "tests/benchmarks/timing.h"

using namespace sotto;

namespace {

constexpr std::int64_t batches[] = {16, 64, 256, 512};

struct Layer {
  std::string name;
  std::function<std::unique_ptr<nn::Module>()> make;
  Shape input;             // of one sample
  std::int64_t ids = 0;    // number of rows to look up, if the input is ids
  std::int64_t max = 512;  // samples at once
};

template <class M, class... A>
std::function<std::unique_ptr<nn::Module>()> maker(A... arguments) {
  return [=] { return std::make_unique<M>(arguments...); };
}

template <class M>
std::function<std::unique_ptr<nn::Module>()> recurrent() {
  return [] { return std::make_unique<M>(100, 100, nn::RecurrentOptions{.batch_first = true}); };
}

std::vector<Layer> layers() {
  return {
      {"Linear 512 to 512", maker<nn::Linear>(512, 512), {512}},
      // 1 GMAC for each sample: larger batches take minutes.
      {"Conv2d 64 to 64, 8x8, on 50x100",
       maker<nn::Conv2d>(64, 64, Shape{8}),
       {64, 50, 100},
       0,
       64},
      {"LayerNorm 64", maker<nn::LayerNorm>(Shape{64}), {64}},
      {"InstanceNorm1d 256, length 64",
       [] {
         return std::make_unique<nn::InstanceNorm1d>(256, nn::InstanceNormOptions{.affine = true});
       },
       {256, 64}},
      {"GroupNorm 16 of 256, length 64", maker<nn::GroupNorm>(16, 256), {256, 64}},
      {"Embedding 20000 x 100, 64 words", maker<nn::Embedding>(20000, 100), {64}, 20000},
      {"MultiheadAttention 100, 4 heads, T = 64",
       [] {
         return std::make_unique<nn::MultiheadAttention>(
             100, 4, nn::MultiheadAttentionOptions{.batch_first = true});
       },
       {64, 100},
       0,
       256},
      {"RNN 100 to 100, T = 128", recurrent<nn::RNN>(), {128, 100}, 0, 256},
      {"GRU 100 to 100, T = 128", recurrent<nn::GRU>(), {128, 100}, 0, 256},
      {"LSTM 100 to 100, T = 128", recurrent<nn::LSTM>(), {128, 100}, 0, 256},
  };
}

// A convolution with standardised weights (Qiao et al. 2019): a shared function of its parameter.
class StandardizedConv final : public nn::Module {
 public:
  StandardizedConv(std::int64_t in, std::int64_t out)
      : inner_(in, out, Shape{3}, {.padding = {1}}) {}
  Var forward(const Var& x) override {
    Tape& tape = x.tape();
    const Var bias = tape.use(*inner_.bias);
    return conv(x, nn::standardized_weight(tape.use(*inner_.weight)), bias, {.padding = {1}});
  }
  void visit(const nn::Visitor& visitor) override { inner_.visit(visitor); }

 private:
  nn::Conv2d inner_;
};

// Pairs of a plain convolution and one with standardised weights, to compare privately.
std::vector<std::pair<Layer, Layer>> derived_weights() {
  std::vector<std::pair<Layer, Layer>> pairs;
  for (const auto& [in, out, side] :
       {std::tuple(16, 32, 28), std::tuple(32, 64, 14), std::tuple(64, 128, 7)}) {
    const std::string name = fmt::format("Conv2d {} to {}, 3x3, on {}x{}", in, out, side, side);
    pairs.push_back({{name,
                      maker<nn::Conv2d>(in, out, Shape{3}, ConvOptions{.padding = {1}}),
                      {in, side, side}},
                     {name, maker<StandardizedConv>(in, out), {in, side, side}}});
  }
  return pairs;
}

Tensor random_input(const Layer& layer, std::int64_t batch) {
  Shape shape = layer.input;
  shape.insert(0, batch);
  PublicRandom random(11);
  const auto count = static_cast<std::size_t>(shape.numel());
  if (layer.ids > 0) {
    std::vector<std::int64_t> ids(count);
    for (std::int64_t& id : ids) id = random.below(layer.ids);
    return Tensor::from(ids, shape);
  }
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random.normal());
  return Tensor::from(values, shape);
}

void ordinary_step(nn::Module& module, const Tensor& x) {
  Tape tape;
  SumSink sink;
  tape.backward(sum_per_sample(square(module(tape.input(x)))), sink,
                1.0 / static_cast<double>(x.size(0)));
}

void private_step(nn::Module& module, const Tensor& x, Clipper& clipper) {
  Tape tape({.private_data = true});
  clipper.add(tape, sum_per_sample(square(module(tape.input(x)))));
  clipper.discard();
}

struct Cost {
  double seconds;
  std::size_t peak;  // bytes beyond the input and the parameters
};

std::size_t peak_of(const std::function<void()>& run) {
  Allocator& memory = allocator(cpu);
  const std::size_t before = memory.statistics().current;
  memory.reset_peak();
  run();
  return memory.statistics().peak - before;
}

// Both sides in turn, so that other load affects both; medians.
std::pair<Cost, Cost> compare(const std::function<void()>& a, const std::function<void()>& b) {
  constexpr double min_seconds = 0.6;
  constexpr int min_rounds = 5;
  Cost first{0, peak_of(a)}, second{0, peak_of(b)};
  std::vector<double> as, bs;
  for (double spent = 0; spent < min_seconds || std::ssize(as) < min_rounds;
       spent += as.back() + bs.back()) {
    as.push_back(seconds_of(a));
    bs.push_back(seconds_of(b));
  }
  first.seconds = median(as);
  second.seconds = median(bs);
  return {first, second};
}

void report(const Layer& layer, std::int64_t batch) {
  const std::unique_ptr<nn::Module> module = layer.make();
  const Tensor x = random_input(layer, batch);
  Clipper clipper(flat_group(module->parameters(), 1));
  const auto [plain, priv] =
      compare([&] { ordinary_step(*module, x); }, [&] { private_step(*module, x, clipper); });
  const auto mib = [](std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  fmt::print("| {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.1f} | {:.1f} | {:.2f} |\n", layer.name,
             batch, plain.seconds * 1e3, priv.seconds * 1e3, priv.seconds / plain.seconds,
             mib(plain.peak), mib(priv.peak),
             static_cast<double>(priv.peak) / static_cast<double>(plain.peak));
  std::fflush(stdout);
}

// The private step with standardised weights over the plain one.
void report_derived(const Layer& plain, const Layer& derived, std::int64_t batch) {
  const std::unique_ptr<nn::Module> a = plain.make(), b = derived.make();
  const Tensor x = random_input(plain, batch);
  Clipper of_a(flat_group(a->parameters(), 1)), of_b(flat_group(b->parameters(), 1));
  const auto [first, second] =
      compare([&] { private_step(*a, x, of_a); }, [&] { private_step(*b, x, of_b); });
  fmt::print("| {} | {} | {:.2f} | {:.2f} | {:.2f} |\n", plain.name, batch, first.seconds * 1e3,
             second.seconds * 1e3, second.seconds / first.seconds);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> wanted(argv + 1, argv + argc);
  fmt::print(
      "Milliseconds for forward and backward, MiB at most beyond input and parameters.\n\n"
      "| layer | batch | ordinary | private | ratio | ordinary MiB | private MiB | ratio |\n"
      "|---|--:|--:|--:|--:|--:|--:|--:|\n");
  for (const Layer& layer : layers()) {
    const auto named = [&](const std::string& word) {
      return layer.name.find(word) != std::string::npos;
    };
    if (!wanted.empty() && std::none_of(wanted.begin(), wanted.end(), named)) continue;
    for (const std::int64_t batch : batches) {
      if (batch <= layer.max) report(layer, batch);
    }
  }
  if (!wanted.empty() && std::find(wanted.begin(), wanted.end(), "derived") == wanted.end())
    return 0;
  fmt::print(
      "\nMilliseconds of a private step, by plain and by standardised weights.\n\n"
      "| layer | batch | plain | standardised | ratio |\n|---|--:|--:|--:|--:|\n");
  for (const auto& [plain, derived] : derived_weights()) {
    for (const std::int64_t batch : {64, 256}) report_derived(plain, derived, batch);
  }
}
