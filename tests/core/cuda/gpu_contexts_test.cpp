// Contexts, which take some hundred MB of a GPU each: only GPUs that are used have one. Needs a
// process in which nothing was used before, and a GPU; the pretended ones have no contexts.
// File tags: [alone]
#include <algorithm>
#include <thread>

#include <dlfcn.h>

#include "core/cuda/upload.h"
#include "core/devices.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/fake_gpu_counts.h"

using namespace sotto;

namespace {

// The driver's answer for the GPU with this ordinal.
bool has_context(int ordinal) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  REQUIRE(driver != nullptr);
  const auto ask =
      reinterpret_cast<int (*)(int, unsigned*, int*)>(dlsym(driver, "cuDevicePrimaryCtxGetState"));
  REQUIRE(ask != nullptr);
  unsigned flags = 0;
  int active = 0;
  REQUIRE(ask(ordinal, &flags, &active) == 0);
  return active != 0;
}

// Uses a GPU from threads that have used nothing before, as a loader of batches does.
void use(Device device) {
  Upload upload(device);
  Tensor there;
  std::jthread([&] { upload.begin({1000}, Dtype::f32); }).join();
  std::jthread([&] {
    std::fill_n(reinterpret_cast<float*>(upload.room()), 1000, 3.0f);
    upload.send();
  }).join();
  std::jthread([&] { upload.room(); }).join();
  there = upload.arrive();
  CHECK(add(there, there).select(0, 7).item() == 6);
  there = {};
  std::jthread([&] { allocator(device).release_cached(); }).join();
}

}  // namespace

TEST_CASE("a GPU has a context when it is used, and not before") {
  const int gpus = static_cast<int>(devices().size()) - 1;
  if (pretended_counts()) return;
  for (int k = 0; k < gpus; ++k) CHECK_FALSE(has_context(k));
  // From the last on: the first is the current device of a thread that has named none.
  for (int used = gpus - 1; used >= 0; --used) {
    use({DeviceKind::cuda, used});
    for (int k = 0; k < gpus; ++k) {
      CAPTURE(used, k);
      CHECK(has_context(k) == (k >= used));
    }
  }
}
