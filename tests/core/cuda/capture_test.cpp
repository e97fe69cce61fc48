// CUDA graphs, on every GPU: a replay does the captured work on the present contents of memory, and
// work that must not be replayed is refused. Without a GPU: the reason, and the fallback without a
// graph.
// File tags: [gpu]
#include "core/cuda/capture.h"

#include <cmath>
#include <thread>

#include "autograd/check/op_run.h"
#include "autograd/sink.h"
#include "core/allocator/allocation_pool.h"
#include "core/allocator/allocator.h"
#include "core/cuda/cuda_library.h"
#include "core/random/chacha20.h"
#include "core/random/philox.h"
#include "core/random/rounded_gaussian.h"
#include "core/random/secret_random.h"
#include "kernels/functors/functors.h"
#include "kernels/host_device/optimizer_update.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/captured_setup.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

using namespace sotto;
using namespace sotto::testing;

namespace {

Tensor counted(std::int64_t n, double first, Device device) {
  std::vector<float> values;
  for (std::int64_t k = 0; k < n; ++k) values.push_back(static_cast<float>(first + k));
  return Tensor::from(values, {n}).to(device);
}

// Takes all free blocks of this size, and overwrites them.
std::vector<Tensor> all_free_memory(std::int64_t n, Device device) {
  std::vector<Tensor> all;
  for (int k = 0; k < 20; ++k) all.push_back(full({n}, -1, Dtype::f32, device));
  return all;
}

}  // namespace

TEST_CASE("captured work is done when it is replayed, on what its inputs hold then") {
  for_each_gpu([](Device device) {
    const Tensor x = counted(100, 0, device), y = zeros({100}, Dtype::f32, device);
    Capture capture(device);
    capture.add([&] { copy_into(add(scale(x, 2), x), y); });
    CHECK(y.select(0, 7).item() == 0);
    for (const double first : {0.0, 5.0, -3.0}) {
      copy_into(counted(100, first, device), x);
      capture.replay(0);
      CHECK(y.select(0, 7).item() == 3 * (first + 7));
    }
    CHECK_FALSE(Capture::here());
  });
}

TEST_CASE("pieces of captured work share their memory, which nothing else is given") {
  for_each_gpu([](Device device) {
    const Tensor x = counted(100, 1, device);
    Tensor square, sum;
    Capture capture(device);
    capture.add([&] { square = mul(x, x); });
    capture.add([&] {
      sum = add(scale(square, 3), scale(x, 2));
    });  // allocates workspace that is released before the replay
    const std::vector<Tensor> others = all_free_memory(100, device);
    for (int k = 0; k < 2; ++k) {
      capture.replay(0);
      capture.replay(1);
      CHECK(sum.select(0, 3).item() == 56);
      CHECK(square.select(0, 3).item() == 16);
    }
    for (const Tensor& other : others) CHECK(reduce(Reduction::max, other, {}, false).item() == -1);
    CHECK(throws([&] { capture.replay(2); }, "piece 2 of 2"));
  });
}

TEST_CASE("captured work keeps alive the tensors and host values that it reads") {
  for_each_gpu([](Device device) {
    const Tensor y = zeros({64}, Dtype::f32, device);
    Tensor x = counted(64, 1, device);
    Capture capture(device);
    capture.add([&] {
      const Tensor twice = add(x, x);  // its memory is reused
      const Tensor constant = counted(64, 100, cpu);
      copy_into(add(add(scale(twice, 1), constant), zeros({64}, Dtype::f32, device)), y);
    });
    x = Tensor();
    const std::vector<Tensor> others = all_free_memory(64, device);
    for (int k = 0; k < 2; ++k) {
      capture.replay(0);
      CHECK(y.select(0, 5).item() == 12 + 105);
    }
  });
}

TEST_CASE("memory of captured work is released with it") {
  for_each_gpu([](Device device) {
    Allocator& memory = allocator(device);
    const Tensor x = counted(5000, 0, device);
    const std::size_t before = memory.statistics().current;
    Tensor kept;
    {
      Capture capture(device);
      capture.add([&] { kept = scale(scale(x, 2), 3); });
      CHECK(memory.statistics().current == before + Allocator::size_class(20000));
      const std::size_t cached = memory.statistics().cached;
      const Tensor other = Tensor::empty({5000}, Dtype::f32, device);
      CHECK(memory.statistics().cached == cached);  // the free blocks are the capture's
    }
    const std::size_t cached = memory.statistics().cached;
    const Tensor other = Tensor::empty({5000}, Dtype::f32, device);
    CHECK(memory.statistics().cached == cached - Allocator::size_class(20000));
    kept = Tensor();
    CHECK(memory.statistics().current == before + Allocator::size_class(20000));
  });
}

TEST_CASE("a capture under a limit does not give back memory, for which it would have to wait") {
  for_each_gpu([](Device device) {
    Allocator& memory = allocator(device);
    const Tensor x = counted(5000, 0, device);
    memory.release_cached();
    counted(6000, 0, device);  // cached, of another size
    memory.set_limit(memory.statistics().current + 2 * Allocator::size_class(20000));
    Capture capture(device);
    Tensor y;
    CHECK_NOTHROW(capture.add([&] { y = scale(scale(x, 2), 3); }));
    memory.set_limit(0);
    capture.replay(0);
    CHECK(y.select(0, 7).item() == 42);
  });
}

TEST_CASE("a capture for which memory does not suffice gives none back") {
  for_each_gpu([](Device device) {
    const Tensor x = counted(100, 0, device);
    Tensor y;
    Capture capture(device);
    const auto work = [&] {
      std::jthread([&] { counted(7000, 0, device); }).join();  // cached, by another thread
      constexpr std::int64_t too_many = std::int64_t{1} << 38;
      CHECK_THROWS_AS(Tensor::empty({too_many}, Dtype::f32, device), OutOfMemory);
      {
        const AllocationPool::Scope apart(nullptr);  // as for values that the host brings
        CHECK_THROWS_AS(Tensor::empty({too_many}, Dtype::f32, device), OutOfMemory);
      }
      y = scale(x, 2);
    };
    CHECK_NOTHROW(capture.add(work));
    capture.replay(0);
    CHECK(y.select(0, 7).item() == 14);
  });
}

TEST_CASE("other threads work on while one captures") {
  for_each_gpu([](Device device) {
    const Tensor x = counted(100, 0, device), y = zeros({100}, Dtype::f32, device),
                 z = zeros({100}, Dtype::f32, device);
    double elsewhere = 0;
    Capture capture(device);
    capture.add([&] {
      copy_into(scale(x, 2), y);
      std::jthread([&] {
        copy_into(scale(x, 3), z);
        elsewhere = z.select(0, 2).item();
      });
    });
    CHECK(elsewhere == 6);
    CHECK(y.select(0, 2).item() == 0);
    copy_into(zeros({100}), z);
    capture.replay(0);
    CHECK(y.select(0, 2).item() == 4);
    CHECK(z.select(0, 2).item() == 0);
  });
}

TEST_CASE(
    "noise, updates, random draws and values that the host reads are refused, without effect") {
  for_each_gpu([](Device device) {
    Capture capture(device);
    const Tensor x = counted(64, 0, device), y = zeros({64}, Dtype::f32, device);
    const auto refused = [&](const char* reason, const std::function<void()>& work) {
      INFO(reason);
      CHECK(throws<CannotCapture>([&] { capture.add(work); }, reason));
      CHECK_FALSE(Capture::here());
      copy_into(scale(x, 2), y);  // work without a graph continues
      CHECK(y.select(0, 5).item() == 10);
    };
    const char* const secret = "secret randomness, which must never repeat";
    const char* const numbered = "public randomness, which the host numbers (dropout)";
    SecretRandom random = SecretRandom::insecure_seeded(1);
    refused(secret, [&] { random.word(); });
    refused(secret, [&] { random.reserve(1); });
    refused(secret, [&] {
      const std::int64_t counts[] = {8};
      const Tensor noise = Tensor::empty({8}, Dtype::i64, device);
      backend(device).rounded_gaussian(RoundedGaussian(5), ChaChaStream{}, counts, noise.view());
    });
    refused("an update",
            [&] { backend(device).update({}, zeros({update_faults}, Dtype::i32, device).view()); });
    const Tensor rows = zeros({64, 2}, Dtype::i64, device);
    refused(numbered, [&] { backend(device).bernoulli({1, 2}, rows.view(), 0.5, y.view()); });
    refused(numbered, [] { Tape().next_key(); });
    refused(numbered, [] { TapeOptions().sample_id(0); });
    refused("a value that the host reads", [&] { x.select(0, 1).item(); });
    refused("host values copied into memory of the captured work", [&] {
      const Tensor own = Tensor::empty({64}, Dtype::f32, device), host = zeros({64});
      copy_bytes(own.view().data, device, host.view().data, cpu, own.bytes());
    });
    CHECK(throws([&] { capture.add([&] { capture.add([] {}); }); },
                 "capture: inside of another capture"));
    CHECK(throws([&] { capture.add([&] { capture.replay(0); }); }, "capture: piece 0 of 0"));
  });
}

TEST_CASE("the CPU captures nothing") {
  CHECK(throws<CannotCapture>([] { Capture{cpu}; }, "the CPU has no launches to save"));
  CHECK_NOTHROW(refuse_capture("anything, where nothing is captured"));
}

namespace {

// The reason why the cases of an operation cannot be captured: random draws, or lengths or
// positions that the host reads.
const char* why_not(const OpCase& one) {
  const auto named = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(),
                       [&](const char* x) { return one.op == x || one.what == x; });
  };
  if (named({"dropout", "attention"})) return "public randomness, which the host numbers (dropout)";
  return named({"sort", "ctc_loss", "rnn", "gru", "lstm", "rotary"}) ? "a value that the host reads"
                                                                     : "";
}

// The reason why the case was not captured; if it was, its results are compared with `expected`.
std::string captured(Instance there, const OpRun& expected, Device device) {
  for (OpInput& input : there.inputs) {
    if (is_float(input.value.dtype())) input.value = to_dtype(input.value, Dtype::f32);
    input.value = input.value.to(device);
  }
  OpRun got;
  Capture capture(device);
  try {
    capture.add([&] { got = run_case(there, Dtype::f32); });
  } catch (const CannotCapture& reason) {
    return reason.what();
  }
  for (int replay = 0; replay < 2; ++replay) {
    capture.replay(0);
    check_close(got.output, values(expected.output));
    check_close(got.losses, values(expected.losses));
    for (std::size_t k = 0; k < got.uses.size(); ++k) {
      REQUIRE(got.uses[k].size() == expected.uses[k].size());
      for (std::size_t use = 0; use < got.uses[k].size(); ++use)
        check_close(got.uses[k][use].sum(), values(expected.uses[k][use].sum()));
    }
  }
  return "";
}

}  // namespace

TEST_CASE("captured operations give their ordinary results, and the others are known") {
  for_each_gpu([](Device device) {
    for (const OpCase& one : op_cases()) {
      if (cpu_alone(one)) continue;
      INFO(one.op << ", " << one.what);
      PublicRandom random(77);
      const Instance instance = with_loss(one.make(random), random);
      const OpRun expected = run_case(instance, Dtype::f32);
      const std::string reason = captured(instance, expected, device);
      const bool known = reason.empty() || reason == why_not(one);
      CHECK(known);
    }
  });
}

namespace {

// Checks a loss that is not captured for a given reason: its results are those without a capture,
// however often it is called.
void check_ordinary(Device device, const char* reason, const memory::CapturedLoss::Loss& loss,
                    nn::Module& model) {
  INFO(reason);
  PublicRandom random(8);
  memory::CapturedLoss captured(model, 4, loss);
  for (int step = 0; step < 2; ++step) {
    const std::vector<Tensor> batch = tensors(random_batch(4, random));
    const auto run = [&](const memory::CapturedLoss::Loss& f, const std::vector<Tensor>& tensors) {
      Clipper clipper(flat_group(model.parameters(), 0.5));
      Tape tape({.private_data = true, .seed = 1, .step = 2});
      clipper.add(tape, f(tape, tensors));
      return flat(clipper.clipped_sums());
    };
    const bool same = run(std::ref(captured), batch) == run(loss, on_device(device, batch));
    CHECK(same);
    CHECK(captured.reason() == reason);
  }
  CHECK(captured.captures() == 0);
}

}  // namespace

TEST_CASE("a loss that cannot be captured is computed without a graph, and the reason reported") {
  for_each_gpu([](Device device) {
    Setup s(device, 4);
    check_ordinary(
        device, "public randomness, which the host numbers (dropout)",
        [&](Tape& tape, const std::vector<Tensor>& batch) {
          return cross_entropy(s.model(dropout(tape.input(batch[0]), 0.5)), batch[1]);
        },
        s.model);
    check_ordinary(
        device, "a value that the host reads",
        [&](Tape& tape, const std::vector<Tensor>& batch) {
          const Var y = s.plain(tape, batch);
          return affine(y, reduce(Reduction::max, y.value(), {}, false).item() > 0 ? 2 : 1, 0);
        },
        s.model);
  });
}

TEST_CASE("a loss that changes at its second call is not captured") {
  for_each_gpu([](Device device) {
    Setup s(device, 4);
    int calls = 0;
    memory::CapturedLoss captured(s.model, 4, [&](Tape& tape, const std::vector<Tensor>& batch) {
      return affine(s.plain(tape, batch), ++calls, 0);
    });
    PublicRandom random(8);
    Tape tape({.private_data = true});
    captured(tape, tensors(random_batch(4, random)));
    CHECK(captured.reason() == "a replay differs from the run before it");
    CHECK(calls == 3);
  });
}

TEST_CASE("a captured loss on a private tape refuses to mix samples, as without capture") {
  for_each_gpu([](Device device) {
    Setup s(device, 4);
    memory::CapturedLoss mixing(s.model, 4, [&](Tape& tape, const std::vector<Tensor>& batch) {
      const Var y = s.plain(tape, batch);
      return y - mean(y, {0});
    });
    PublicRandom random(8);
    const std::vector<Tensor> batch = tensors(random_batch(4, random));
    Tape tape({.private_data = true}), ordinary;
    CHECK(throws([&] { mixing(tape, batch); }, "mean: combines samples"));
    mixing(ordinary, batch);
    CHECK(mixing.reason().find("a loss of shape") != std::string::npos);
  });
}

TEST_CASE("calls of a captured loss and their backwards take turns") {
  for_each_gpu([](Device device) {
    Setup s(device, 4);
    PublicRandom random(8);
    const std::vector<Tensor> batch = tensors(random_batch(4, random));
    Tape first, second;
    const Var a = s.captured(first, batch), b = s.captured(second, batch);
    SumSink sums;
    CHECK(throws([&] { first.backward(a, sums); }, "another batch was computed"));
    CHECK_NOTHROW(second.backward(b, sums));
    Tape third;
    PerSampleGradSink rows;
    const Var c = s.captured(third, batch);
    CHECK(throws([&] { third.backward(c, rows); }, "sinks receive sums only"));
  });
}

TEST_CASE("a captured loss and its own values stay apart") {
  for_each_gpu([](Device device) {
    Setup s(device, 4);
    PublicRandom random(8);
    Tape first, second;
    const Var a = s.captured(first, tensors(random_batch(4, random)));
    const std::vector<double> before = values(a.value());
    s.captured(second, tensors(random_batch(4, random)));
    CHECK(values(a.value()) == before);
  });
}
