// Errors of CUDA that its libraries meet and get over, as when they try what a GPU has not: the
// next launch must not report them. Needs a GPU and CUDA's runtime: the pretended one has none.
// File tags: [gpu]
#include <dlfcn.h>

#include "tests/support/captured_setup.h"
#include "tests/support/fake_gpu_counts.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

// Leaves an error in this thread, as a library's own calls of the runtime may.
void leave_error() {
  void* runtime = nullptr;
  for (const char* const name : {"libcudart.so.13", "libcudart.so.12"}) {
    if (!runtime) runtime = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
  }
  REQUIRE(runtime != nullptr);
  const auto select = reinterpret_cast<int (*)(int)>(dlsym(runtime, "cudaSetDevice"));
  REQUIRE(select != nullptr);
  CHECK(select(-1) != 0);
}

}  // namespace

TEST_CASE("an error that a library leaves behind is not reported by the next launch") {
  if (devices().size() < 2 || pretended_counts()) return;
  for_each_gpu([](Device device) {
    Random random(3);
    const auto some = [&](const Shape& shape) {
      return random_tensor(random, shape, Dtype::f32).to(device);
    };
    const Tensor a = some({18, 143}), b = some({143, 21}), x = some({3, 6, 1, 11, 13}),
                 w = some({5, 6, 1, 3, 3});
    Window window;
    window.kernel[1] = window.kernel[2] = 3;
    // A new shape, for which an algorithm is chosen, and one for which it is known.
    for (int k = 0; k < 2; ++k) {
      leave_error();
      const Tensor y = gemm(a, b);
      CHECK_NOTHROW(add(y, y).to(cpu));
      leave_error();
      const Tensor z = conv(x, w, {}, window);
      CHECK_NOTHROW(add(z, z).to(cpu));
    }
  });
}
