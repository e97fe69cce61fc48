// A launch that fails in a training step on a GPU, for example for lack of resources: the process
// continues, nothing leaks, the model is unchanged unless the step was charged, and the next step
// works. Runs on the pretended GPU: others cannot be made to fail.
#include <optional>

#include "core/allocator/allocator.h"
#include "core/error.h"
#include "core/random/philox.h"
#include "dp/engine/engine.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/optimizer.h"
#include "tests/support/captured_setup.h"
#include "tests/support/fake_gpu_counts.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

constexpr std::int64_t population = 6;
constexpr Device gpu{DeviceKind::cuda, 0};

struct Training {
  explicit Training(bool captures) : captures(captures) {
    PublicRandom random(8);
    const Batch batch = random_batch(population, random);
    images = batch.images.to(gpu);
    targets = batch.targets.to(gpu);
  }

  bool captures;
  Setup setup{gpu, 4};
  nn::Adam optimizer{setup.model};
  Tensor images, targets;

  Var loss(Tape& tape, std::span<const std::int64_t> rows) {
    const Tensor ids = Tensor::from(std::vector(rows.begin(), rows.end()), {std::ssize(rows)});
    const std::vector<Tensor> batch{gather(images, ids, 0), gather(targets, ids, 0)};
    return captures ? setup.captured(tape, batch) : setup.plain(tape, batch);
  }
  // The parameters and the optimizer's state.
  std::vector<std::vector<double>> state() {
    std::vector<std::vector<double>> all;
    const auto named = setup.model.named_parameters();
    for (const auto& [name, parameter] : named) all.push_back(values(parameter->value.to(cpu)));
    for (const auto& [name, x] : optimizer.state(named)) all.push_back(values(x.to(cpu)));
    return all;
  }
};

struct Failures {
  std::int64_t thrown = 0, charged = 0, helped = 0;
};

// Fails one launch of a step after another, `stride` apart, until all have failed.
template <class Step>
Failures fail_everywhere(Training& training, const Ledger& ledger, std::int64_t stride,
                         const Step& step) {
  Failures failures;
  step();
  step();
  for (std::int64_t k = 0;; k += stride) {
    const auto before = training.state();
    const std::int64_t releases = ledger.run_releases();
    const std::size_t bytes = allocator(gpu).statistics().current;
    const std::int64_t number = pretended_counts()->launches + k;
    bool thrown = false;
    fail_launch(number);
    try {
      step();
    } catch (const SystemFailure& error) {
      thrown = std::string_view(error.what()).find("resources") != std::string_view::npos;
      if (!thrown) FAIL("launch " << k << ": " << error.what());
    }
    fail_launch(-1);
    if (pretended_counts()->launches <= number) return failures;
    const std::int64_t charged = ledger.run_releases() - releases;
    INFO("launch " << k);
    // A charged step may have moved some parameters before it failed.
    const bool moved = training.state() != before;
    CHECK(charged <= 1);
    CHECK((charged == 1 || (thrown && !moved)));
    CHECK((thrown || moved));
    if (!training.captures) CHECK(allocator(gpu).statistics().current == bytes);
    failures.thrown += thrown;
    failures.helped += !thrown;
    failures.charged += thrown && charged == 1;
  }
}

}  // namespace

TEST_CASE("a launch without memory for its code comes again when the cache is given back",
          "[gpu]") {
  if (devices().size() < 2 || !pretended_counts()) return;
  const Tensor x = full({10}, 2, Dtype::f32, gpu);
  full({100'000}, 1, Dtype::f32, gpu);
  const std::size_t cached = allocator(gpu).statistics().cached;
  CHECK(cached >= 400'000);
  fill_gpu(0, 1);
  const Tensor y = add(x, x);
  CHECK(allocator(gpu).statistics().cached < cached);
  CHECK(values(y.to(cpu)) == std::vector<double>(10, 4));
  fill_gpu(0, 2);
  CHECK_THROWS_AS(add(x, x), OutOfMemory);
  CHECK(values(add(x, x).to(cpu)) == std::vector<double>(10, 4));
}

TEST_CASE("a private step with too little memory for code goes on in smaller physical batches",
          "[gpu]") {
  if (devices().size() < 2 || !pretended_counts()) return;
  Training training(false);
  Ledger ledger;
  Engine engine(
      training.setup.model, training.optimizer, population, ledger,
      {.noise_multiplier = 1, .logical_batch = population, .memory = {.physical_batch = 4}});
  const auto step = [&] {
    engine.step([&](Tape& tape, auto rows) { return training.loss(tape, rows); });
  };
  step();
  fill_gpu(pretended_counts()->launches + 10, 2);
  step();
  fill_gpu(0, 0);
  CHECK(ledger.run_releases() == 2);
  CHECK(engine.physical_batch() == 2);
}

TEST_CASE("a private step whose launch fails anywhere is as before, and charged once it was drawn",
          "[gpu]") {
  if (devices().size() < 2 || !pretended_counts()) return;
  for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
    for (const bool captures : {false, true}) {
      CAPTURE(passes == ClipPasses::two, captures);
      Training training(captures);
      Ledger ledger;
      Engine engine(training.setup.model, training.optimizer, population, ledger,
                    {.noise_multiplier = 1,
                     .logical_batch = population,
                     .memory = {.physical_batch = 4},
                     .passes = passes});
      const std::int64_t stride = passes == ClipPasses::one && !captures ? 1 : 5;
      const Failures failures = fail_everywhere(training, ledger, stride, [&] {
        engine.step([&](Tape& tape, auto rows) { return training.loss(tape, rows); });
      });
      CHECK(failures.thrown * stride > 120);
      if (stride == 1) CHECK(failures.charged > 0);
      CHECK((training.setup.captured.replays() > 3) == captures);
      const auto before = training.state();
      engine.step([&](Tape& tape, auto rows) { return training.loss(tape, rows); });
      CHECK(training.state() != before);
    }
  }
}
