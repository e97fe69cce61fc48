#include "core/cuda/cuda_library.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include <dlfcn.h>
#include <unistd.h>

#include "core/cuda/capture.h"
#include "core/error.h"
#include "core/library_folder.h"

namespace sotto {

namespace {

std::string library_path() {
  const char* const asked = std::getenv("SOTTO_CUDA_LIBRARY");
  return asked ? asked : beside_library("libsotto_cuda.so");
}

// Without a driver CUDA's libraries, which take longer to load than small trainings, are of no use;
// a library that the user named may do without (tests/fake_gpu).
void check_driver() {
  if (std::getenv("SOTTO_CUDA_LIBRARY")) return;
  if (!dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL))
    throw SystemFailure(fmt::format("no driver: {}", dlerror()));
}

CudaRuntime* make_runtime() {
  const std::string path = library_path();
  if (access(path.c_str(), R_OK) != 0) {
    throw SystemFailure("this build has no GPU part: there is no " + path);
  }
  check_driver();
  // Never closed: tensors with static lifetime may live on a device.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) throw SystemFailure(fmt::format("library missing: {}", dlerror()));
  const auto make = reinterpret_cast<MakeCudaRuntime>(dlsym(library, "sotto_cuda_runtime"));
  if (!make) throw SystemFailure(path + " is not a CUDA library of sotto");
  return make();
}

struct Loaded {
  CudaRuntime* runtime = nullptr;
  std::string reason;
};

// The library is loaded once per process: a missing driver does not appear while the program runs.
const Loaded& loaded() {
  static const Loaded result = [] {
    Loaded y;
    try {
      y.runtime = make_runtime();
    } catch (const SystemFailure& failure) {
      y.reason = failure.what();
    }
    return y;
  }();
  return result;
}

}  // namespace

CudaRuntime& cuda_runtime() {
  check(loaded().runtime != nullptr, "cuda: {}", loaded().reason);
  return *loaded().runtime;
}

std::string cuda_reason() { return loaded().reason; }

namespace {

using Allocators = std::map<int, std::unique_ptr<Allocator>>;

// The caching allocator of a GPU, created over memory(runtime) at the first call.
template <class Memory>
Allocator& allocator_of(int index, Allocators& allocators, Memory&& memory) {
  check(cuda_reason().empty(), "cuda:{}: {}", index, cuda_reason());
  CudaRuntime& runtime = cuda_runtime();
  const auto count = static_cast<int>(runtime.devices().size());
  check(0 <= index && index < count, "cuda: device {} of {}", index, count);
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  auto& slot = allocators[index];
  if (!slot) slot = std::make_unique<Allocator>(memory(runtime));
  return *slot;
}

}  // namespace

Allocator& cuda_allocator(int index) {
  // Never destroyed, like the allocator of the CPU.
  static auto* const allocators = new Allocators;
  return allocator_of(index, *allocators,
                      [&](CudaRuntime& runtime) -> RawMemory& { return runtime.memory(index); });
}

Allocator& pinned_allocator(int index) {
  static auto* const allocators = new Allocators;
  return allocator_of(index, *allocators, [&](CudaRuntime& runtime) -> RawMemory& {
    return runtime.pinned_memory(index);
  });
}

namespace {

// A GPU's allocator reuses memory in the order of its own work alone. The copy, which is the
// target's work, therefore comes after the source's work so far, and the source's later work after
// the copy.
void copy_between(CudaRuntime& runtime, void* to, Device to_device, const void* from,
                  Device from_device, std::size_t bytes) {
  runtime.wait(to_device.index, *runtime.record(from_device.index));
  runtime.copy(to, to_device, from, from_device, bytes);
  runtime.wait(from_device.index, *runtime.record(to_device.index));
}

}  // namespace

void copy_bytes(void* to, Device to_device, const void* from, Device from_device,
                std::size_t bytes) {
  if (bytes == 0) return;
  if (to_device == cpu && from_device == cpu) {
    std::memcpy(to, from, bytes);
  } else {
    if (Capture::any()) Capture::check_copy(to, to_device, from_device);
    CudaRuntime& runtime = cuda_runtime();
    const bool between = to_device != cpu && from_device != cpu && to_device != from_device;
    if (between) return copy_between(runtime, to, to_device, from, from_device, bytes);
    runtime.copy(to, to_device, from, from_device, bytes);
  }
}

}  // namespace sotto
