// The check before a step is timed, on every GPU.
// File tags: [gpu]
#include "tests/benchmarks/step_check.h"

#include "core/devices.h"
#include "nn/init.h"
#include "nn/models/resnet.h"
#include "tests/benchmarks/sized_models.h"
#include "tests/support/catch.h"

using namespace sotto;

TEST_CASE("a deep network's step in bf16 is that of its samples alone, within bf16's rounding") {
  const nn::ResNetOptions small{.blocks = {3, 4, 6, 3},
                                .bottleneck = true,
                                .width = 4,
                                .norm = {.group = true, .groups = 2},
                                .classes = 10,
                                .large_images = false};
  const models::Entry entry{.name = "narrow ResNet-50",
                            .description = "",
                            .make = [=] { return std::make_unique<nn::ResNet>(small); },
                            .input = {3, 16, 16},
                            .classes = small.classes};
  for (const DeviceInfo& info : devices()) {
    nn::manual_seed(3);
    const auto model = entry.make();
    model->to(info.device);
    const models::Examples all = entry.random_examples(4, 1);
    const models::Examples samples{all.inputs.to(info.device), all.labels.to(info.device)};
    for (const auto& groups : {std::vector<ClipGroup>{}, flat_group(model->parameters(), 1)}) {
      constexpr double max = 1e-3;  // bf16 rounds by up to 2^-9
      CHECK(step_error(*model, entry, samples, Dtype::bf16, groups, {}, ClipPasses::one) < max);
    }
  }
}

TEST_CASE("a step in f32 is its samples' own to 1e-4, and another clip rule's is not") {
  for (const DeviceInfo& info : devices()) {
    const models::Entry entry = models::entry_of_any("mnist");
    nn::manual_seed(1);
    const auto model = entry.make();
    model->to(info.device);
    const models::Examples all = entry.random_examples(4, 1);
    const models::Examples samples{all.inputs.to(info.device), all.labels.to(info.device)};
    const auto error = [&](double bound, const ClipRule& rule) {
      return step_error(*model, entry, samples, Dtype::f32, flat_group(model->parameters(), bound),
                        {.rule = rule}, ClipPasses::one);
    };
    for (const double bound : {0.1, 100.0}) CHECK(error(bound, {}) < 1e-4);
    CHECK(error(100, {.kind = ClipRule::Kind::normalize}) > 1e-2);
  }
}

TEST_CASE("samples for timing are random ones, in turn once enough numbers are drawn") {
  const models::Entry small = models::entry_of_any("gpt2-tiny");
  CHECK(models::examples_for_timing(small, 9, 2).inputs.to_vector<std::int64_t>() ==
        small.random_examples(9, 2).inputs.to_vector<std::int64_t>());
  models::Entry large;
  large.input = {1 << 21};
  const models::Examples three = models::examples_for_timing(large, 3);
  CHECK(three.labels.shape() == Shape{3});
  CHECK(three.labels.at({0}) == three.labels.at({2}));
  CHECK(three.inputs.at({0, 7}) == three.inputs.at({2, 7}));
  CHECK(three.inputs.at({0, 7}) != three.inputs.at({1, 7}));
}
