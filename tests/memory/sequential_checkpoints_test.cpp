// Checkpoints of modules and chains: unchanged gradients, plans' promises; techniques combined.
#include "memory/checkpointing/sequential_checkpoints.h"

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "core/threads/parallel.h"
#include "dp/clipping/clipper.h"
#include "dp/engine/engine.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "nn/optim/optimizer.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

using namespace sotto;
using namespace sotto::memory;

namespace {

using Segments = std::vector<nn::Sequential::Segment>;

Tensor random_values(std::uint64_t stream, const Shape& shape, Dtype dtype = Dtype::f64) {
  PublicRandom random(71, stream);
  return to_dtype(uniform_values(random, shape), dtype);
}

nn::Sequential transformer() {
  nn::manual_seed(5);
  const nn::TransformerOptions options{.dim_feedforward = 6, .dropout = 0.2, .batch_first = true};
  nn::Sequential model{nn::Linear(3, 4),
                       nn::TransformerEncoderLayer(4, 2, options),
                       nn::TransformerEncoderLayer(4, 2, options),
                       nn::Flatten(),
                       nn::Dropout(0.3),
                       nn::Linear(12, 2)};
  model.to(Dtype::f64);
  return model;
}

std::vector<double> flat(const Gradients& gradients) {
  std::vector<double> all;
  for (const auto& [parameter, gradient] : gradients) {
    for (const double v : values(gradient)) all.push_back(v);
  }
  return all;
}

std::vector<double> ordinary(nn::Module& model) {
  Tape tape({.seed = 4});
  SumSink sink;
  tape.backward(sum(square(model(tape.input(random_values(1, {4, 3, 3}))))), sink);
  return flat(sink.gradients());
}

std::vector<double> clipped(nn::Module& model, ClipPasses passes) {
  Clipper clipper(flat_group(model.parameters(), 0.5), {}, passes);
  Tape tape({.private_data = true, .seed = 4});
  clipper.add(tape, sum_per_sample(square(model(tape.input(random_values(1, {4, 3, 3}))))));
  return flat(clipper.clipped_sums());
}

void check_unchanged(const std::function<void(nn::Sequential&)>& set) {
  nn::Sequential plain = transformer(), cut = transformer();
  set(cut);
  CHECK(ordinary(cut) == ordinary(plain));
  const std::vector<double> expected = clipped(plain, ClipPasses::one);
  for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
    const std::vector<double> got = clipped(cut, passes);
    REQUIRE(got.size() == expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).margin(1e-12));
  }
}

Chain random_chain(PublicRandom& random) {
  Chain chain(static_cast<std::size_t>(draw(random, 1, 5)));
  const auto bytes = [&](std::int64_t min) {
    return static_cast<std::size_t>(draw(random, min, min + 9));
  };
  for (ChainBlock& block : chain) {
    block.input = &block == chain.data() ? 1 : (&block)[-1].output;
    block.output = bytes(1);
    block.kept = block.output + bytes(0);
    block.record = block.kept + bytes(0);
    block.run = block.output + bytes(0);
    block.backward = block.kept + block.output + bytes(0);
    block.gradients = bytes(0);
    block.work = static_cast<double>(draw(random, 1, 9));
  }
  return chain;
}

// All ways to divide blocks begin .. end - 1 into parts.
std::vector<std::vector<ChainPart>> all_parts(int begin, int end) {
  if (begin == end) return {{}};
  std::vector<std::vector<ChainPart>> all;
  const auto add = [&](const ChainPart& first) {
    for (std::vector<ChainPart> rest : all_parts(first.end, end)) {
      rest.insert(rest.begin(), first);
      all.push_back(std::move(rest));
    }
  };
  add({begin, begin + 1});
  for (int k = begin + 1; k < end; ++k) {
    for (const std::vector<ChainPart>& inner : all_parts(begin, k)) add({begin, k, true, inner});
  }
  return all;
}

// Layers of increasing and decreasing width, with an input of width 96 and an output of 4.
nn::Sequential perceptron() {
  nn::manual_seed(6);
  nn::Sequential model;
  std::int64_t before = 96;
  for (const std::int64_t width : {96, 64, 160, 160, 48, 128, 96, 96}) {
    model.add(nn::Linear(before, width));
    model.add(nn::Gelu());
    before = width;
  }
  model.add(nn::Linear(before, 4));
  return model;
}

// Peak bytes, beyond those in use before, of forward and backward of an ordinary step or of a
// private one in two passes.
std::size_t peak_of(nn::Sequential& model, const Tensor& x, bool private_data) {
  Tape tape({.private_data = private_data});
  const Var in = tape.input(x, 0, true);
  Clipper clipper(flat_group(model.parameters(), 1), {}, ClipPasses::two);
  SumSink sums;
  Allocator& memory = allocator(x.device());
  const std::size_t before = memory.statistics().current;
  memory.reset_peak();
  const Var loss = sum_per_sample(square(model(in)));
  if (private_data) {
    clipper.add(tape, loss);
  } else {
    tape.backward(loss, sums);
  }
  return memory.statistics().peak - before;
}

}  // namespace

TEST_CASE("modules that are recomputed train as before, whatever they hold") {
  check_unchanged([](nn::Sequential& model) { model.set_recomputing(true); });
  check_unchanged([](nn::Sequential& model) {
    for (int i = 0; i < model.size(); ++i) model[i].set_recomputing(true);
    model.set_recomputing(true);
  });
  check_unchanged([](nn::Sequential& model) { model.set_segments({{0, 5}, {1, 3}, {1, 2}}); });
  for (const BackwardPasses backwards : {BackwardPasses::one, BackwardPasses::two})
    check_unchanged([=](nn::Sequential& model) { checkpoint_every(model, 2, backwards); });
}

TEST_CASE("a module in 16 bits is recomputed in them, after its region has ended") {
  const auto gradients = [](bool narrow, bool again) {
    nn::Sequential model = perceptron();
    if (narrow) model.set_precision(Dtype::bf16);
    model.set_recomputing(again);
    if (again) model.set_segments({{0, 9}, {3, 5}});
    Tape tape;
    SumSink sink;
    const Var y = model(tape.input(random_values(3, {4, 96}, Dtype::f32)));
    tape.backward(sum(square(cast(y, Dtype::f32))), sink);
    return flat(sink.gradients());
  };
  const std::vector<double> plain = gradients(true, false);
  CHECK(gradients(true, true) == plain);
  CHECK(gradients(false, true) != plain);
}

TEST_CASE("a call is seen once, although it is recomputed") {
  nn::Sequential model = transformer();
  checkpoint_every(model, 3);
  int calls = 0;
  const nn::ModuleHook watch([&](const nn::Module&, const Var&, const Var&) { ++calls; });
  ordinary(model);
  nn::Sequential plain = transformer();
  int plain_calls = 0;
  const nn::ModuleHook other([&](const nn::Module&, const Var&, const Var&) { ++plain_calls; });
  ordinary(plain);
  CHECK(calls == plain_calls);
}

TEST_CASE("segments of a sequential are disjoint or nested") {
  nn::Sequential model = perceptron();
  CHECK(throws([&] { model.set_segments({{0, 3}, {2, 5}}); }, "0 .. 3 and 2 .. 5 overlap"));
  CHECK(throws([&] { model.set_segments({{0, 3}, {0, 3}}); }, "overlap"));
  CHECK(throws([&] { model.set_segments({{2, 2}}); }, "segment 2 .. 2 is empty or outside the 17"));
  CHECK(throws([&] { model.set_segments({{12, 18}}); }, "segment 12 .. 18 is empty or outside"));
  CHECK(throws([&] { checkpoint_every(model, 0); }, "checkpoint_every: 0 modules"));
  checkpoint_every(model, 6);
  CHECK(model.segments() == Segments{{0, 6}, {6, 12}, {12, 17}});
}

TEST_CASE("a plan recomputes the least of all that fit, and none is found where none fits") {
  PublicRandom random(72);
  for (int i = 0; i < 150; ++i) {
    const Chain chain = random_chain(random);
    std::vector<ChainPlan> plans;
    for (const auto& parts : all_parts(0, static_cast<int>(chain.size())))
      plans.push_back(evaluated(chain, parts));
    std::size_t min = plans[0].peak, max = min;
    for (const ChainPlan& plan : plans) {
      min = std::min(min, plan.peak);
      max = std::max(max, plan.peak);
    }
    for (std::size_t budget = min; budget <= max; ++budget) {
      double work = HUGE_VAL;
      for (const ChainPlan& plan : plans) {
        if (plan.peak <= budget) work = std::min(work, plan.work);
      }
      const ChainPlan plan = plan_chain(chain, budget);
      CHECK(plan.peak <= budget);
      CHECK(plan.work == work);
    }
    CHECK(throws([&] { plan_chain(chain, min - 1); },
                 fmt::format("bytes; the smallest found needs {} bytes", min).c_str()));
  }
}

TEST_CASE("parts of a chain cover it in order") {
  const Chain chain(3);
  CHECK(throws([&] { evaluated(chain, {{0, 1}, {2, 3}}); }, "2 .. 3 does not continue the cover"));
  CHECK(throws([&] { evaluated(chain, {{0, 1}, {1, 2}}); }, "blocks 2 .. 3 are in no part"));
  CHECK(throws([&] { evaluated(chain, {{0, 3}}); }, "a part keeps 3 blocks"));
  CHECK(throws([&] { evaluated(chain, {{0, 3, true}}); }, "in no part"));
  CHECK(throws([] { plan_chain({}, 1); }, "no blocks"));
}

TEST_CASE("a budget of bytes is met by the plan for it, and the peak is as predicted") {
  set_thread_count(1);  // the scratch memory of two may or may not be held at once
  nn::Sequential model = perceptron();
  const Tensor x = random_values(2, {256, 96}, Dtype::f32);
  for (const bool private_data : {false, true}) {
    model.set_segments({});
    const std::size_t all = peak_of(model, x, private_data);
    double work = 0;
    // The f64 sums stay, whatever is recomputed.
    const auto parts = private_data ? std::vector{0.9, 0.8, 0.7} : std::vector{0.8, 0.65, 0.55};
    for (const double part : parts) {
      const auto budget = static_cast<std::size_t>(part * static_cast<double>(all));
      const ChainPlan plan = checkpoint_auto(model, x, budget, private_data);
      const auto measured = static_cast<double>(peak_of(model, x, private_data));
      CHECK_FALSE(model.segments().empty());
      CHECK((plan.work >= work && plan.peak <= budget));
      CHECK(measured < 1.05 * static_cast<double>(plan.peak));
      // With two backwards over kept blocks, gradients may be counted twice.
      CHECK(measured > (private_data ? 0.8 : 0.95) * static_cast<double>(plan.peak));
      work = plan.work;
    }
    CHECK(throws([&] { checkpoint_auto(model, x, all / 10, private_data); }, "no plan fits into"));
    CHECK((checkpoint_auto(model, x, 2 * all, private_data).work == 0 && model.segments().empty()));
  }
}

namespace {

// The memory techniques of a step.
struct Techniques {
  bool parts = false, checkpoints = false, halved = false;
  Dtype precision = Dtype::f64;
};

// None, each technique alone, and all pairs.
std::vector<Techniques> alone_and_in_pairs() {
  std::vector<Techniques> all;
  for (const Dtype precision : {Dtype::f64, Dtype::bf16, Dtype::f16}) {
    for (int k = 0; k < 8; ++k) {
      const Techniques t{(k & 1) != 0, (k & 2) != 0, (k & 4) != 0, precision};
      const int number = t.parts + t.checkpoints + t.halved + (precision != Dtype::f64);
      if (number <= 2) all.push_back(t);
    }
  }
  return all;
}

struct Policies {
  ClipRule rule;
  bool layers = false;
  ClipPasses passes = ClipPasses::one;
};

// Eight samples of a network with dropout, all of which take part in each step.
class Eight {
 public:
  explicit Eight(Dtype parameters) : dtype_(parameters) { model_.to(parameters); }

  std::vector<ClipGroup> groups(bool layers) {
    return layers ? layer_groups(model_.named_parameters(), bound)
                  : flat_group(model_.parameters(), bound);
  }
  // The change of the weights by one engine step, times the number of samples.
  std::vector<double> moved(const Techniques& techniques, const Policies& policies) {
    const std::vector<double> before = weights();
    nn::Sgd optimizer(model_, {.learning_rate = 1});
    Ledger ledger;
    EngineOptions options{.noise_multiplier = 0,
                          .delta = 0.01,
                          .logical_batch = samples,
                          .groups = groups(policies.layers),
                          .clipping = {.rule = policies.rule},
                          .passes = policies.passes,
                          .noise = GaussianNoise::floating_point};
    options.memory.checkpoint = techniques.checkpoints ? 2 : 0;
    if (techniques.parts) options.memory.accumulation = 3;
    if (techniques.halved) options.memory.physical_batch = 8;  // blocks of two
    if (techniques.precision != Dtype::f64) options.memory.precision = techniques.precision;
    Engine engine(model_, optimizer, samples, ledger, options);
    engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
      if (techniques.halved && rows.size() > 2) throw std::bad_alloc();
      return losses(tape, rows);
    });
    std::vector<double> moved = weights();
    for (std::size_t k = 0; k < moved.size(); ++k)
      moved[k] = static_cast<double>(samples) * (before[k] - moved[k]);
    return moved;
  }
  // The change by definition: each sample alone.
  std::vector<double> by_definition(const Policies& policies) {
    std::vector<double> total(weights().size());
    for (std::int64_t row = 0; row < samples; ++row) {
      Tape tape({.rows = {row, row}});
      SumSink sink;
      tape.backward(losses(tape, std::vector{row, row}), sink, 0.5);
      for (const ClipGroup& group : groups(policies.layers)) add(total, sink, group, policies.rule);
    }
    return total;
  }

 private:
  static constexpr std::int64_t samples = 8;
  static constexpr double bound = 0.4;

  Var losses(Tape& tape, std::span<const std::int64_t> rows) {
    const Tensor ids = Tensor::from(std::vector(rows.begin(), rows.end()), {std::ssize(rows)});
    const Tensor x = to_dtype(gather(random_values(9, {samples, 6}), ids, 0), dtype_);
    return sum_per_sample(square(to_f32(model_(tape.input(x)))));
  }
  std::vector<double> weights() {
    std::vector<double> all;
    for (const Parameter* parameter : model_.parameters()) {
      for (const double v : values(parameter->value)) all.push_back(v);
    }
    return all;
  }
  // Adds the clipped gradients of a group at their parameters' offsets.
  void add(std::vector<double>& total, const SumSink& sink, const ClipGroup& group,
           const ClipRule& rule) {
    double square = 0;
    for (const bool adding : {false, true}) {
      std::size_t place = 0;
      for (const Parameter* parameter : model_.parameters()) {
        for (const auto& [of, gradient] : sink.gradients()) {
          if (of != parameter || std::find(group.parameters.begin(), group.parameters.end(), of) ==
                                     group.parameters.end())
            continue;
          const std::vector<double> v = values(gradient);
          for (std::size_t k = 0; k < v.size(); ++k) {
            if (!adding) square += v[k] * v[k];
            if (adding) total[place + k] += v[k] * rule.factor(std::sqrt(square), group.bound, 0);
          }
        }
        place += static_cast<std::size_t>(parameter->value.numel());
      }
    }
  }

  Dtype dtype_;
  nn::Sequential model_ =
      (nn::manual_seed(8), nn::Sequential{nn::Linear(6, 5), nn::Tanh(), nn::Dropout(0.3),
                                          nn::Linear(5, 4), nn::Gelu(), nn::Linear(4, 3)});
};

}  // namespace

TEST_CASE("techniques alone and in pairs clip as each sample alone does, under every policy") {
  // Each of eight clipped gradients is off by a few roundings of its own norm.
  constexpr double roundings = 4 * 8 * 0.4;
  for (const std::string& kind : clip_rule_names()) {
    for (const bool layers : {false, true}) {
      for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
        const Policies policies{{.kind = clip_rule_kind(kind)}, layers, passes};
        const std::vector<double> exact = Eight(Dtype::f64).by_definition(policies);
        for (const Techniques& t : alone_and_in_pairs()) {
          CAPTURE(kind, layers, passes, t.parts, t.checkpoints, t.halved, name(t.precision));
          const bool narrow = t.precision != Dtype::f64;
          const auto moved = Eight(narrow ? Dtype::f32 : Dtype::f64).moved(t, policies);
          double square = 0;
          for (std::size_t k = 0; k < exact.size(); ++k)
            square += (moved[k] - exact[k]) * (moved[k] - exact[k]);
          const double rounding = t.precision == Dtype::bf16 ? 0x1p-8 : 0x1p-11;
          CHECK(std::sqrt(square) <= (narrow ? roundings * rounding : 1e-11));
        }
      }
    }
  }
}
