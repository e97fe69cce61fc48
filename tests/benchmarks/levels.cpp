// What an outer step of data reweighting costs: two levels, a network and the weights of its rows
// (1-100-1), both on batches of the same size of random images [3, 32, 32]. Prints JSON lines.
//   bench_levels time MODEL BATCH [REPETITIONS] [RESPONSE]
//     for each response the processor time of an outer step over that of an ordinary step of the
//     network: medians of steps taken in turn
//   bench_levels bytes MODEL BATCH [TECHNIQUE]
//     for each technique the peak bytes of an ordinary step, of outer steps, and of a private one,
//     with parameters, momentum and the batch
// MODEL: resnet20, resnet50, or cnn, four convolutions and two linear layers.
#include <cstdio>
#include <ctime>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "dp/clipping/clipper.h"
#include "dp/clipping/sample_values.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/sampling/sampler.h"
#include "memory/checkpointing/model_checkpoints.h"
#include "memory/profiling/peak_memory.h"
#include "multilevel/levels.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "samples/models/registry.h"
#include "samples/models/workloads.h"
#include "tests/benchmarks/timing.h"

using namespace sotto;
using namespace sotto::multilevel;
using nlohmann::ordered_json;

namespace {

std::unique_ptr<nn::Module> small_network() {
  auto network = std::make_unique<nn::Sequential>();
  std::int64_t channels = 3;
  for (const std::int64_t width : {32, 32, 64, 64}) {
    network->add(
        nn::Conv2d(channels, width, 3, {.stride = {width == channels ? 2 : 1}, .padding = {1}}));
    network->add(nn::Relu());
    channels = width;
  }
  network->add(nn::Flatten());
  network->add(nn::Linear(channels * 8 * 8, 128));
  network->add(nn::Relu());
  network->add(nn::Linear(128, 10));
  return network;
}

std::unique_ptr<nn::Module> network_named(const std::string& name) {
  if (name == "resnet20") return models::resnet20();
  if (name == "resnet50") return models::resnet50();
  check(name == "cnn", "bench_levels: no model {}", name);
  return small_network();
}

Var losses_of(nn::Module& network, Tape& tape, const models::Examples& examples, std::int64_t first,
              std::int64_t end) {
  return cross_entropy(network(tape.input(examples.inputs.slice(0, first, end))),
                       examples.labels.slice(0, first, end));
}

// A network and the weights of its rows, with the batch that every step takes.
class Reweighting {
 public:
  struct Setting {
    std::optional<Response> response = {};  // none: an ordinary step of the network alone
    bool roll_back = false;
    bool adam = false;  // below, in place of SGD with momentum
    memory::Policy policy = {};
  };

  Reweighting(const std::string& model, std::int64_t batch, const Setting& setting)
      : network_((nn::manual_seed(1), network_named(model))),
        examples_(models::parse_entry("cifar10").random_examples(batch)) {
    if (setting.adam)
      below_ = std::make_unique<nn::Adam>(*network_, nn::AdamRule<false>{});
    else
      below_ =
          std::make_unique<nn::Sgd>(*network_, nn::SgdRule{.learning_rate = 0.01, .momentum = 0.9});
    std::vector<Problem> problems{problem("network", *network_, *below_, setting.policy)};
    LevelOptions options;
    if (setting.response) {
      problems[0].response = *setting.response;
      problems[0].weights = [this](Pass&, const Var& losses) {
        return squeeze(weigher_(unsqueeze(losses, 1)), 1);
      };
      memory::Policy above = setting.policy;
      above.checkpoint.reset();  // of the network
      problems.push_back(problem("weigher", weigher_, above_, above));
      options = {.upper_to_lower = {{"weigher", "network"}},
                 .lower_to_upper = {{"network", "weigher"}},
                 .roll_back = setting.roll_back};
    }
    levels_.emplace(std::move(problems), options);
  }

  void step() { levels_->step(); }

 private:
  Problem problem(const std::string& name, nn::Module& module, nn::Optimizer& optimizer,
                  const memory::Policy& policy) {
    const auto losses = [this](Pass& pass) {
      return losses_of(*network_, pass.tape, examples_, pass.first(),
                       pass.first() + std::ssize(pass.rows));
    };
    const std::int64_t rows = examples_.labels.size(0);
    const auto all_rows = [rows](std::int64_t) {
      std::vector<std::int64_t> all(static_cast<std::size_t>(rows));
      for (std::int64_t k = 0; k < rows; ++k) all[static_cast<std::size_t>(k)] = k;
      return all;
    };
    return {.name = name,
            .variables = module,
            .optimizer = optimizer,
            .loss = losses,
            .batches = all_rows,
            .policy = policy};
  }

  std::unique_ptr<nn::Module> network_;
  nn::Sequential weigher_{nn::Linear(1, 100), nn::Relu(), nn::Linear(100, 1), nn::Sigmoid()};
  std::unique_ptr<nn::Optimizer> below_;
  nn::Adam above_{weigher_, {.learning_rate = 1e-5}};
  models::Examples examples_;
  std::optional<Levels> levels_;
};

// The private outer step: v of public rows, then one clipped release of two groups, the network's
// gradient with weights after clipping and that of the weights through it.
class PrivateReweighting {
 public:
  PrivateReweighting(const std::string& model, std::int64_t batch, const memory::Policy& policy)
      : network_((nn::manual_seed(1), network_named(model))),
        examples_(models::parse_entry("cifar10").random_examples(batch)),
        policy_(policy) {
    memory::set_checkpoints(*network_, policy.checkpoint.value_or(0), memory::BackwardPasses::two);
  }

  void step() {
    const std::int64_t rows = examples_.labels.size(0), parts = policy_.accumulation.value_or(1);
    Gradients v;
    {
      SumSink sums;
      over(rows, parts, false, [&](Tape& tape, std::int64_t first, std::int64_t end) {
        tape.backward(losses_of(*network_, tape, examples_, first, end), sums,
                      1.0 / static_cast<double>(rows));
      });
      v = sums.gradients();
    }
    Clipper clipper(groups_, {}, ClipPasses::two);
    over(rows, parts, true, [&](Tape& tape, std::int64_t first, std::int64_t end) {
      const Var losses = losses_of(*network_, tape, examples_, first, end);
      const Var products = gradient_products(losses, v), factors = clip_factors(losses, groups_[0]);
      const Var weights = squeeze(weigher_(unsqueeze(detach(losses), 1)), 1);
      tape.set_sample_weights(detach(weights),
                              {groups_[0].parameters.begin(), groups_[0].parameters.end()});
      clipper.add(tape, losses - factors * products * weights);
    });
    v.clear();
    Ledger ledger;
    GaussianMechanism mechanism(1);
    mechanism.update(clipper.finish(FullBatchSampler(rows).draw()), ledger, optimizer_);
  }

 private:
  void over(std::int64_t rows, std::int64_t parts, bool private_data,
            const std::function<void(Tape&, std::int64_t, std::int64_t)>& run) {
    for (std::int64_t part = 0; part < parts; ++part) {
      Tape tape(
          {.private_data = private_data, .precision = policy_.precision.value_or(Dtype::f32)});
      run(tape, rows * part / parts, rows * (part + 1) / parts);
    }
  }

  std::unique_ptr<nn::Module> network_;
  nn::Sequential weigher_{nn::Linear(1, 100), nn::Relu(), nn::Linear(100, 1), nn::Sigmoid()};
  models::Examples examples_;
  memory::Policy policy_;
  std::vector<ClipGroup> groups_{{network_->parameters(), 1}, {weigher_.parameters(), 1}};
  nn::Sgd optimizer_{{{network_->parameters(), {.learning_rate = 0.01, .momentum = 0.9}},
                      {weigher_.parameters(), {.learning_rate = 1e-5}}}};
};

struct TimedCase {
  std::string name;
  Reweighting::Setting setting;
};

std::vector<TimedCase> timed_cases() {
  std::vector<TimedCase> cases{
      {"row_slopes", {.response = row_slopes()}},
      {"row_slopes of_step", {.response = row_slopes({.of_step = true})}},
      {"row_slopes of_step, roll_back",
       {.response = row_slopes({.of_step = true}), .roll_back = true}},
      {"row_slopes, roll_back", {.response = row_slopes(), .roll_back = true}},
      {"finite_differences", {.response = finite_differences()}},
      {"finite_differences, not held", {.response = finite_differences({.hold_detached = false})}},
      {"finite_differences, roll_back", {.response = finite_differences(), .roll_back = true}},
      {"adam_derivative", {.response = adam_derivative({}), .adam = true}}};
  for (const int iterations : {1, 3}) {
    cases.push_back({fmt::format("neumann {}", iterations),
                     {.response = neumann({.iterations = iterations, .rate = 0.1})}});
    cases.push_back({fmt::format("cg {}", iterations),
                     {.response = conjugate_gradients({.iterations = iterations, .damping = 1})}});
  }
  cases.push_back({"cg 3, empirical Fisher",
                   {.response = conjugate_gradients(
                        {.iterations = 3,
                         .damping = 1,
                         .matrix = ConjugateGradients::Matrix::empirical_fisher})}});
  return cases;
}

double processor_seconds(Reweighting& run) {
  const std::clock_t start = std::clock();
  run.step();
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

void time_steps(const std::string& model, std::int64_t batch, int repetitions,
                const std::string& only) {
  for (const TimedCase& c : timed_cases()) {
    if (!only.empty() && only != c.name) continue;
    Reweighting ordinary(model, batch, {.adam = c.setting.adam}), outer(model, batch, c.setting);
    std::vector<double> below, whole, ratios;
    processor_seconds(ordinary);
    processor_seconds(outer);
    for (int k = 0; k < repetitions; ++k) {
      below.push_back(processor_seconds(ordinary));
      whole.push_back(processor_seconds(outer));
      ratios.push_back(whole.back() / below.back());
    }
    const ordered_json line{{"response", c.name},
                            {"model", model},
                            {"batch", batch},
                            {"ordinary_seconds", median(below)},
                            {"outer_seconds", median(whole)},
                            {"ordinary_steps", median(whole) / median(below)},
                            {"median_of_ratios", median(ratios)}};
    fmt::print("{}\n", line.dump());
    std::fflush(stdout);
  }
}

// The peak of the second step's bytes in use.
template <class Run, class Setting>
std::size_t peak_of(const std::string& model, std::int64_t batch, const Setting& setting) {
  Run run(model, batch, setting);
  run.step();
  memory::PeakMemoryTracker tracker(cpu);
  tracker.restart();
  run.step();
  return tracker.peak();
}

struct Technique {
  const char* name;
  memory::Policy policy;
};

void count_bytes(const std::string& model, std::int64_t batch, const std::string& only) {
  const std::vector<Technique> techniques{
      {"f32", {}},
      {"accumulation 4", {.accumulation = 4}},
      {"bf16", {.precision = Dtype::bf16}},
      {"checkpoints", {.checkpoint = 1}},
      {"bf16, accumulation 4", {.accumulation = 4, .precision = Dtype::bf16}},
      {"bf16, accumulation 4, checkpoints",
       {.accumulation = 4, .checkpoint = 1, .precision = Dtype::bf16}}};
  for (const auto& [name, policy] : techniques) {
    if (!only.empty() && only != name) continue;
    const auto print = [&, technique = std::string(name)](const char* step, std::size_t peak) {
      const ordered_json line{{"technique", technique},
                              {"model", model},
                              {"batch", batch},
                              {"step", step},
                              {"peak", peak}};
      fmt::print("{}\n", line.dump());
      std::fflush(stdout);
    };
    const auto with_levels = [&, &policy = policy](const std::optional<Response>& response) {
      return peak_of<Reweighting>(model, batch,
                                  Reweighting::Setting{.response = response, .policy = policy});
    };
    print("ordinary", with_levels({}));
    print("finite_differences", with_levels(finite_differences()));
    print("row_slopes", with_levels(row_slopes()));
    print("row_slopes of_step", with_levels(row_slopes({.of_step = true})));
    print("private", peak_of<PrivateReweighting>(model, batch, policy));
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  if (arguments.size() < 3 || (arguments[0] != "time" && arguments[0] != "bytes")) {
    fmt::print(stderr,
               "usage: bench_levels time MODEL BATCH [REPETITIONS] [RESPONSE]\n"
               "       bench_levels bytes MODEL BATCH [TECHNIQUE]\n");
    return 2;
  }
  const std::int64_t batch = std::stoll(arguments[2]);
  const auto optional = [&](std::size_t k) {
    return arguments.size() > k ? arguments[k] : std::string();
  };
  const std::string repetitions = optional(3);
  if (arguments[0] == "time")
    time_steps(arguments[1], batch, repetitions.empty() ? 7 : std::stoi(repetitions), optional(4));
  else
    count_bytes(arguments[1], batch, optional(3));
}
