// Tensors of ranks, on the CPU and on GPUs.
// File tags: [gpus]
#include "core/ranks/tensor_moves.h"

#include "core/devices.h"
#include "core/ranks/rank_threads.h"
#include "core/ranks/thread_ranks.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

// For ranks' threads, in which Catch's checks are not allowed.
void expect(bool ok, const char* what) { check(ok, "expected {}", what); }

Device device_for(Ranks& ranks, bool on_gpus) { return on_gpus ? gpu_of_rank(ranks) : cpu; }

// Rank `from` sends rank `to` from + to numbers, so that rank 0 sends itself none.
Tensor letter(int from, int to, Device device) {
  std::vector<float> numbers;
  for (int k = 0; k < from + to; ++k)
    numbers.push_back(static_cast<float>(100 * from + 10 * to + k));
  return Tensor::from(numbers, {std::ssize(numbers)}).to(device);
}

void check_exchange(Ranks& ranks, Device device) {
  std::vector<Tensor> send, receive;
  for (int k = 0; k < ranks.size(); ++k) {
    send.push_back(letter(ranks.rank(), k, device));
    receive.push_back(zeros({k + ranks.rank()}, Dtype::f32, device));
  }
  const std::vector<Tensor> room = receive;
  Pending first = exchange_tensors(ranks, "letters", std::move(send), std::move(receive));
  // Another operation while the first is under way; every rank's own part is in its place already.
  const Tensor all = full({2 * ranks.size()}, -1, Dtype::i64, device);
  std::vector<Tensor> parts;
  for (int k = 0; k < ranks.size(); ++k) parts.push_back(all.slice(0, 2 * k, 2 * k + 2));
  const Tensor own = parts[static_cast<std::size_t>(ranks.rank())];
  copy_into(full({2}, ranks.rank(), Dtype::i64, device), own);
  Pending second = all_gather_tensors(ranks, "numbers", own, std::move(parts));
  first.wait();
  for (int k = 0; k < ranks.size(); ++k)
    expect(room[static_cast<std::size_t>(k)].to_vector<float>() ==
               letter(k, ranks.rank(), cpu).to_vector<float>(),
           "the letter of each rank");
  second.wait();
  for (int k = 0; k < 2 * ranks.size(); ++k)
    expect(all.at({k}) == k / 2, "the number of each rank");
}

TEST_CASE("tensors arrive where they belong, on the CPU and on GPUs") {
  for (const bool on_gpus : {false, true}) {
    if (on_gpus && devices().size() < 2) continue;
    for (const int size : {1, 2, 3}) {
      CAPTURE(on_gpus, size);
      on_thread_ranks(size,
                      [&](Ranks& ranks) { check_exchange(ranks, device_for(ranks, on_gpus)); });
    }
  }
}

TEST_CASE("tensors with gaps, on several devices, or too few for the ranks are refused") {
  const auto refused = [](const char* message, const std::function<void(Ranks&)>& call) {
    CHECK(throws([&] { on_thread_ranks(2, call); }, message));
  };
  const Tensor x = zeros({4, 4});
  refused("with gaps", [&](Ranks& ranks) {
    exchange_tensors(ranks, "x", {x.transpose(0, 1), {}}, {{}, {}});
  });
  refused("1 tensors sent and 2 received for 2 ranks", [&](Ranks& ranks) {
    exchange_tensors(ranks, "x", {x}, {x, x});
  });
  refused("1 received for 2 ranks", [&](Ranks& ranks) { all_gather_tensors(ranks, "x", x, {x}); });
  if (devices().size() < 2) return;
  refused("on several devices", [&](Ranks& ranks) {
    all_gather_tensors(ranks, "x", x, {x.to({DeviceKind::cuda, 0}), x});
  });
}

}  // namespace
}  // namespace sotto
