// What leaves captured work is copied in one launch, however many parameters there are.
// File tags: [gpu]
#include "autograd/sink.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "dp/clipping/clipper_state.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/captured_loss.h"
#include "nn/layers.h"
#include "tests/support/captured_setup.h"
#include "tests/support/fake_gpu_counts.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

constexpr std::int64_t rows = 4;

// Linear layers and their captured loss.
class Layers {
 public:
  Layers(Device device, int layers) : device_(device) {
    nn::manual_seed(6);
    for (int k = 0; k < layers; ++k) model_.add(nn::Linear(5, 5));
    model_.to(device);
  }
  // A physical batch, ordinary or private, that comes again with other values: as often as replays
  // are compared, and once more. Returns the launches of the last.
  std::int64_t launches(const std::function<void(const Var& losses)>& use, bool is_private) {
    std::int64_t before = 0;
    for (int step = 0; step < 6; ++step) {
      copy_into(full({}, 0.1 * (step + 1)), inputs_);
      before = pretended_counts()->launches;
      Tape tape({.private_data = is_private});
      use(captured_(tape, {inputs_, targets_}));
      CHECK(captured_.reason() == "");
    }
    return pretended_counts()->launches - before;
  }
  std::vector<Parameter*> parameters() { return model_.parameters(); }

 private:
  Device device_;
  nn::Sequential model_;
  memory::CapturedLoss captured_{model_, rows,
                                 [this](Tape& tape, const std::vector<Tensor>& batch) {
                                   return loss_of(model_, tape, batch);
                                 }};
  Tensor inputs_ = zeros({rows, 5}, Dtype::f32, device_);
  Tensor targets_ = zeros({rows}, Dtype::i64, device_);
};

std::int64_t ordinary_launches(Device device, int layers) {
  return Layers(device, layers)
      .launches(
          [](const Var& losses) {
            SumSink sums;
            losses.tape().backward(losses, sums);
          },
          false);
}

// Of one physical batch, or of a second one that is added.
std::int64_t private_launches(Device device, int layers, bool second) {
  Layers model(device, layers);
  Clipper clipper(flat_group(model.parameters(), 1));
  return model.launches(
      [&](const Var& losses) {
        if (!second) clipper.discard();
        clipper.add(losses.tape(), losses);
        CHECK(clipper.state().capture_failure_reason() == "");
      },
      true);
}

}  // namespace

TEST_CASE("launches outside of captured work do not depend on the number of parameters") {
  for_each_gpu([](Device device) {
    if (!pretended_counts()) return;
    CHECK(ordinary_launches(device, 2) == ordinary_launches(device, 9));
    for (const bool second : {false, true}) {
      CAPTURE(second);
      CHECK(private_launches(device, 2, second) == private_launches(device, 9, second));
    }
  });
}

TEST_CASE("gradients of an ordinary captured loss outlive the next replay") {
  for_each_gpu([](Device device) {
    PublicRandom random(5);
    Setup s(device, 6);
    const auto gradients = [&] {
      Tape tape;
      SumSink sums;
      tape.backward(s.captured(tape, tensors(random_batch(6, random))), sums);
      CHECK(s.captured.reason() == "");
      return sums.gradients();
    };
    const Gradients first = gradients();
    const std::vector<double> before = flat(first);
    const Gradients second = gradients();
    CHECK(flat(first) == before);
    CHECK(flat(second) != before);
  });
}
