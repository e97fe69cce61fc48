// The budget of per-sample gradients that a clipper keeps.
// File tags: [gpu]
#include "dp/clipping/clip_options.h"

#include "autograd/per_sample/per_sample_grad.h"
#include "core/allocator/allocator.h"
#include "core/random/philox.h"
#include "dp/engine/engine.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/optim/optimizer.h"
#include "tests/support/captured_setup.h"
#include "tests/support/fake_gpu_counts.h"

using namespace sotto;

namespace {

constexpr std::size_t gib = std::size_t{1} << 30;

std::size_t free_of(Device device) {
  const MemoryStatistics held = allocator(device).statistics();
  return 8 * gib - held.current - held.cached;
}

}  // namespace

TEST_CASE("an automatic budget is 512 MiB on a CPU and a power of two on a GPU") {
  const Device gpu{DeviceKind::cuda, 0};
  CHECK(automatic_grad_budget(cpu, 100 * gib) == gib / 2);
  CHECK(automatic_grad_budget(gpu, 52 * gib) == 16 * gib);
  CHECK(automatic_grad_budget(gpu, 64 * gib) == 32 * gib);
  CHECK(automatic_grad_budget(gpu, 0) == 0);
}

TEST_CASE("16-bit factors on a GPU are materialized wherever that is cheaper") {
  const auto form = [](Device device) {
    const Tensor factor = full({2, 64, 128}, 0.5, Dtype::bf16, device);
    return std::string(PerSampleGrad::outer(factor, factor, {128, 128})
                           .materialize_if_cheaper(NormMethod::automatic, gib)
                           .form());
  };
  CHECK(form(cpu) == "outer");
  for_each_gpu([&](Device device) {
    if (pretended_counts()) CHECK(form(device) == "dense");  // the pretended GPU has a CPU's costs
  });
}

TEST_CASE("a GPU's automatic budget is found once, within its limit, and a given one wins") {
  for_each_gpu([](Device device) {
    allocator(device).set_limit(8 * gib);
    GradBudget budget, another;
    const Tensor held = zeros({std::int64_t{1} << 20}, Dtype::f32, device);
    const std::size_t expected = automatic_grad_budget(device, free_of(device));
    CHECK(budget.bytes({}, device) == expected);
    CHECK(expected == 2 * gib);
    allocator(device).set_limit(gib);
    CHECK(budget.bytes({}, device) == expected);
    CHECK(budget.bytes({.per_sample_grad_budget = 7}, device) == 7);
    CHECK(another.bytes({}, device) == gib / 4);
    allocator(device).set_limit(0);
    CHECK(GradBudget().bytes({}, device) > gib);
  });
}

TEST_CASE("under a memory limit a GPU's automatic budget is an eighth of it") {
  for_each_gpu([](Device device) {
    constexpr std::int64_t samples = 6;
    Setup s(device, samples);
    PublicRandom random(8);
    const std::vector<Tensor> batch = on_device(device, tensors(random_batch(samples, random)));
    nn::Adam optimizer(s.model);
    Ledger ledger;
    Engine engine(s.model, optimizer, samples, ledger,
                  {.noise_multiplier = 1, .logical_batch = samples, .memory = {.limit = gib}});
    engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
      const Tensor ids = Tensor::from(std::vector(rows.begin(), rows.end()), {std::ssize(rows)});
      return s.plain(tape, {gather(batch[0], ids, 0), gather(batch[1], ids, 0)});
    });
    CHECK(engine.clipper().options().per_sample_grad_budget == gib / 8);
  });
}
