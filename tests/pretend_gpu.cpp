// A library in the place of libsotto_cuda.so whose GPU is the host: its kernels are the GPU's
// (device_code.h), and its memory is memory that the host cannot touch while no primitive runs. A
// program that mixes the two up fails here as it would on a GPU: with SOTTO_CUDA_LIBRARY set to
// this library, the way of tensors to a device and back is tested where there is none.
#include <cstring>
#include <mutex>

#include <sys/mman.h>

#include "sotto/core/cuda.h"
#include "sotto/core/error.h"
#include "tests/device_code.h"

namespace sotto {

namespace {

constexpr Device pretend{DeviceKind::cuda, 0};

// One range of addresses, handed out from its start and never again.
class Memory final : public RawMemory {
 public:
  Memory()
      : first_(static_cast<char*>(mmap(nullptr, reserved, PROT_NONE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (first_ == MAP_FAILED) throw SystemFailure("no addresses for the pretended GPU");
  }
  void* allocate(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    const std::size_t size = (bytes + page - 1) / page * page;
    if (used_ + size > reserved) return nullptr;
    char* const address = first_ + used_;
    used_ += size;
    if (open_ > 0) protect(PROT_READ | PROT_WRITE);
    return address;
  }
  void release(void*) noexcept override {}

  bool holds(const void* address) const {
    const char* const at = static_cast<const char*>(address);
    return at >= first_ && at < first_ + used_;
  }
  // The device's memory can be touched for as long as the result lives.
  std::shared_ptr<void> open() {
    const std::lock_guard lock(mutex_);
    if (open_++ == 0) protect(PROT_READ | PROT_WRITE);
    return std::shared_ptr<void>(this, [](Memory* memory) { memory->close(); });
  }

 private:
  static constexpr std::size_t page = 4096;
  static constexpr std::size_t reserved = std::size_t{1} << 36;

  void close() {
    const std::lock_guard lock(mutex_);
    if (--open_ == 0) protect(PROT_NONE);
  }
  void protect(int rights) const {
    if (used_ > 0) mprotect(first_, used_, rights);
  }

  std::mutex mutex_;
  char* first_;
  std::size_t used_ = 0;
  int open_ = 0;
};

class Runtime final : public CudaRuntime {
 public:
  Runtime()
      : backend_(make_device_code(pretend, sotto::backend(cpu), [this](auto views) {
          for (const View* view : views) require_here(*view);
          return memory_.open();
        })) {}
  const std::vector<DeviceInfo>& devices() const override { return infos_; }
  RawMemory& memory(int) override { return memory_; }
  Backend& backend(int) override { return *backend_; }
  void copy(void* to, Device to_device, const void* from, Device from_device,
            std::size_t bytes) override {
    check(memory_.holds(to) == (to_device != cpu) && memory_.holds(from) == (from_device != cpu),
          "pretended GPU: a copy between other devices than it says");
    const auto open = memory_.open();
    std::memcpy(to, from, bytes);
  }
  void synchronize(int) override {}

 private:
  void require_here(const View& view) const {
    check(view.data == nullptr || view.numel() == 0 || memory_.holds(view.data),
          "pretended GPU: a view of host memory");
  }

  std::vector<DeviceInfo> infos_{{pretend, "pretended GPU", std::int64_t{1} << 36, "0.0"}};
  Memory memory_;
  std::unique_ptr<Backend> backend_;
};

}  // namespace

}  // namespace sotto

extern "C" __attribute__((visibility("default"))) sotto::CudaRuntime* sotto_cuda_runtime() {
  static auto* const runtime = new sotto::Runtime;
  return runtime;
}
