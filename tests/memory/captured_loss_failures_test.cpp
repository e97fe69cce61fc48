// Replays that would be wrong are detected: losses that read other values than their batch, calls
// that failed midway, second backwards of another function. On every GPU present.
// File tags: [gpu]
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/captured_loss.h"
#include "tests/support/captured_setup.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

constexpr std::int64_t rows = 6;
constexpr TapeOptions private_tape{.private_data = true};

class Ignored final : public GradSink {
 public:
  bool bounds_influence() const override { return true; }
  void receive(Parameter& /*parameter*/, std::vector<PerSampleGrad> /*uses*/) override {}
};

std::vector<double> losses(const memory::CapturedLoss::Loss& loss, Device device,
                           const Batch& batch) {
  Tape tape(private_tape);
  return values(loss(tape, on_device(device, tensors(batch))).value());
}

}  // namespace

TEST_CASE("a loss that reads its targets from outside is detected by the second batch") {
  for_each_gpu([](Device device) {
    for (const bool on_host : {false, true}) {
      Setup s(device, rows);
      Tensor targets;
      memory::CapturedLoss sly(s.model, rows, [&](Tape& tape, const std::vector<Tensor>& batch) {
        return cross_entropy(s.model(tape.input(batch[0])), on_host ? targets.to(device) : targets);
      });
      PublicRandom random(3);
      for (int call = 0; call < 3; ++call) {
        const Batch batch = random_batch(rows, random);
        targets = on_host ? batch.targets : batch.targets.to(device);
        Tape tape(private_tape);
        CHECK(values(sly(tape, {batch.images}).value()) == losses(s.plain, device, batch));
        CHECK((sly.reason() == "") == (call == 0));
      }
      CHECK(sly.reason().find("neither in the batch nor a parameter") != std::string::npos);
      CHECK(sly.replays() == 1);
    }
  });
}

// A batch with the same images confirms nothing; others with the same targets do, but not for good.
TEST_CASE("it is detected later if its targets were the same at first") {
  for_each_gpu([](Device device) {
    for (const bool same_images : {true, false}) {
      Setup s(device, rows);
      PublicRandom random(4);
      const Batch first = random_batch(rows, random);
      Tensor targets = first.targets.to(device);
      memory::CapturedLoss sly(s.model, rows, [&](Tape& tape, const std::vector<Tensor>& batch) {
        return cross_entropy(s.model(tape.input(batch[0])), targets);
      });
      for (int call = 0; call < 4; ++call) {
        Tape tape(private_tape);
        sly(tape, {same_images ? first.images : random_batch(rows, random).images});
        CHECK(sly.reason() == "");
      }
      const Batch other = random_batch(rows, random);
      targets = other.targets.to(device);
      Tape tape(private_tape);
      CHECK(values(sly(tape, {other.images}).value()) == losses(s.plain, device, other));
      CHECK(sly.reason() != "");
    }
  });
}

// The first call's backward would read memory that may hold either batch.
TEST_CASE("backward of a call is refused after another one, also one that failed") {
  for_each_gpu([](Device device) {
    Setup s(device, rows);
    PublicRandom random(5);
    for (int call = 0; call < 2; ++call) {
      Tape tape(private_tape);
      s.captured(tape, tensors(random_batch(rows, random)));
    }
    Clipper clipper(flat_group(s.model.parameters(), 0.5));
    Tape first(private_tape), second(private_tape);
    const Var loss = s.captured(first, tensors(random_batch(rows, random)));
    Allocator& memory = allocator(device);
    memory.release_cached();
    memory.set_limit(memory.statistics().current);
    CHECK_THROWS_AS(s.captured(second, tensors(random_batch(rows, random))), OutOfMemory);
    memory.set_limit(0);
    CHECK(throws([&] { clipper.add(first, loss); }, "another batch was computed before"));
  });
}

TEST_CASE("two backwards are of one function") {
  for_each_gpu([](Device device) {
    Setup s(device, rows);
    PublicRandom random(6);
    Tape tape(private_tape);
    const Var loss = s.captured(tape, tensors(random_batch(rows, random)));
    Ignored norms;
    tape.backward(loss, norms, 1, Tape::Keep::graph);
    CHECK_NOTHROW(tape.backward(loss, norms, 1, Tape::Keep::graph));
    const Tensor& weight = s.model.parameters()[0]->value;
    axpby(1, weight, 1, weight);
    CHECK(throws([&] { tape.backward(loss, norms, 1, Tape::Keep::graph); },
                 "norms of one function do not bound sums of another"));
  });
}

TEST_CASE("regions of another precision and parameters outside the model are not captured") {
  for_each_gpu([](Device device) {
    Setup s(device, rows);
    PublicRandom random(7);
    const Batch batch = random_batch(rows, random);
    {
      Tape tape({.private_data = true, .precision = Dtype::bf16});
      const PrecisionRegion region(tape, Dtype::f32);
      s.captured(tape, tensors(batch));
      CHECK(s.captured.reason() == "it is called in a region of another precision");
    }
    {
      Tape tape({.precision = Dtype::f64});
      CHECK(s.captured(tape, tensors(batch)).dtype() == Dtype::f64);
      CHECK(s.captured.reason() == "its tape is in f64");
    }
    Parameter scale(full({}, 2, Dtype::f32, device));
    memory::CapturedLoss scaled(s.model, rows, [&](Tape& tape, const std::vector<Tensor>& part) {
      return loss_of(s.model, tape, part) * tape.use(scale);
    });
    Tape tape(private_tape);
    scaled(tape, tensors(batch));
    CHECK(scaled.reason() == "it depends on a parameter that is not the model's");
  });
}
