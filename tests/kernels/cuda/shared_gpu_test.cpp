// Threads that share a GPU, as ranks of one process may.
// File tags: [gpu]
#include <array>
#include <barrier>
#include <thread>

#include "tests/support/captured_setup.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

constexpr int threads = 3, rounds = 20;

}  // namespace

TEST_CASE("products of threads that share a GPU are those of each thread alone") {
  for_each_gpu([](Device device) {
    Random random(11);
    std::array<Tensor, threads> a, b, alone;
    for (std::size_t k = 0; k < threads; ++k) {
      // Long sums of few results: a library splits them between several launches.
      a[k] = random_tensor(random, {40, 20'000}, {0, 1}, Dtype::f32).to(device);
      b[k] = random_tensor(random, {20'000, 40}, {0, 1}, Dtype::f32).to(device);
      alone[k] = gemm(a[k], b[k]).to(cpu);
    }
    std::array<std::array<Tensor, rounds>, threads> together;
    {
      std::barrier<> begin(threads);
      std::array<std::jthread, threads> running;
      for (std::size_t k = 0; k < threads; ++k) {
        running[k] = std::jthread([&, k] {
          begin.arrive_and_wait();
          for (Tensor& y : together[k]) y = gemm(a[k], b[k]);
        });
      }
    }
    for (std::size_t k = 0; k < threads; ++k) {
      for (const Tensor& y : together[k]) CHECK(same_bits(y.to(cpu), alone[k]));
    }
  });
}
