// On GPUs all physical batches are padded to one size: libraries choose algorithms by shape, and
// their choice for a batch with one sample more would show in the gradients of all others.
// File tags: [gpu]
#include <cstring>

#include "core/random/philox.h"
#include "dp/clipping/clipper_state.h"
#include "dp/engine/engine.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "kernels/tf32.h"
#include "nn/optim/optimizer.h"
#include "tests/support/captured_setup.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

constexpr std::int64_t physical = 4;

// With TF32 the pretended GPU's library rounds odd numbers of samples unlike its patches round even
// ones.
const bool rounding = (use_tf32(true), true);

struct Asked {
  std::vector<std::int64_t> sizes;     // of each physical batch, in rows
  std::vector<std::int64_t> rows;      // all physical batches, in order
  std::vector<std::int64_t> expected;  // as announced before
};

struct Step {
  Asked asked;
  std::vector<double> norms;
  std::string capture_failure_reason;
};

struct How {
  std::int64_t units;
  bool captured = false;
  ClipPasses passes = ClipPasses::one;
  bool users = false;  // unit k has 1 + k % 3 rows
  std::optional<std::int64_t> accumulation = {};
  std::optional<std::int64_t> physical_batch = physical;
};

// A first step over all units, the first ones of `data`.
Step step_on(Device device, const Batch& data, const How& how) {
  Setup s(device, physical);
  nn::Sgd optimizer(s.model, {.learning_rate = 0.1});
  Ledger ledger;
  Step step;
  EngineOptions options{.noise_multiplier = 1, .logical_batch = static_cast<double>(how.units)};
  options.memory = {.physical_batch = how.physical_batch, .accumulation = how.accumulation};
  options.passes = how.passes;
  options.prefetch_rows = [&](std::span<const std::int64_t> rows) {
    step.asked.expected.assign(rows.begin(), rows.end());
  };
  if (how.users) {
    options.rows_of_unit = [](std::int64_t unit) {
      return std::vector<std::int64_t>(static_cast<std::size_t>(1 + unit % 3), unit);
    };
  }
  Engine engine(s.model, optimizer, how.units, ledger, options);
  const StepReport report = engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
    step.asked.sizes.push_back(std::ssize(rows));
    step.asked.rows.insert(step.asked.rows.end(), rows.begin(), rows.end());
    const Tensor ids = Tensor::from(std::vector(rows.begin(), rows.end()), {std::ssize(rows)});
    const std::vector<Tensor> batch{gather(data.images, ids, 0), gather(data.targets, ids, 0)};
    const auto there = on_device(device, batch);
    return how.captured ? s.captured(tape, there) : s.plain(tape, there);
  });
  CHECK(report.statistics->units == how.units);
  step.norms = report.statistics->norms[0];
  step.capture_failure_reason = engine.clipper().state().capture_failure_reason();
  return step;
}

bool same_bits(const std::vector<double>& a, const std::vector<double>& b, std::int64_t count) {
  return std::memcmp(a.data(), b.data(), static_cast<std::size_t>(count) * sizeof a[0]) == 0;
}

Batch some_data() {
  PublicRandom random(11);
  return random_batch(16, random);
}

}  // namespace

TEST_CASE("physical batches on a GPU have one size, and one more unit shows in no other's norm") {
  const Batch data = some_data();
  REQUIRE(rounding);
  for_each_gpu([&](Device device) {
    for (const bool captured : {false, true}) {
      for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
        const How how{.units = 10, .captured = captured, .passes = passes};
        const Step ten = step_on(device, data, how);
        for (const std::int64_t units : {9, 11, 12}) {
          How other = how;
          other.units = units;
          const Step step = step_on(device, data, other);
          CHECK(step.asked.sizes == std::vector<std::int64_t>(3, physical));
          CHECK(step.asked.rows == step.asked.expected);
          CHECK(same_bits(step.norms, ten.norms, std::min<std::int64_t>(units, 10)));
          if (captured && passes == ClipPasses::one) CHECK(step.capture_failure_reason.empty());
        }
      }
    }
  });
}

TEST_CASE("padded batches clip what the CPU clips") {
  const Batch data = some_data();
  for_each_gpu([&](Device device) {
    for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
      for (const bool users : {false, true}) {
        const How how{.units = 7, .passes = passes, .users = users};
        const Step there = step_on(device, data, how), here = step_on(cpu, data, how);
        CHECK(here.asked.rows.size() < there.asked.rows.size());
        CHECK(there.asked.rows == there.asked.expected);
        for (const std::int64_t size : there.asked.sizes) CHECK(size == physical);
        REQUIRE(there.norms.size() == here.norms.size());
        for (std::size_t n = 0; n < here.norms.size(); ++n)
          CHECK(there.norms[n] == Approx(here.norms[n]).epsilon(0.01));
      }
    }
  });
}

TEST_CASE("without a requested physical batch size none is nearly empty") {
  const Batch data = some_data();
  for_each_gpu([&](Device device) {
    // All of 16 units are drawn, in three physical batches.
    const Step three =
        step_on(device, data, {.units = 16, .accumulation = 3, .physical_batch = {}});
    CHECK(three.asked.sizes == std::vector<std::int64_t>(3, 6));
    const Step one = step_on(device, data, {.units = 16, .physical_batch = {}});
    CHECK(one.asked.sizes == std::vector<std::int64_t>{16});
  });
}
