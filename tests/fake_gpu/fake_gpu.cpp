// A substitute for libsotto_cuda.so whose GPU is the host: it runs the GPU's kernels
// (host_executor.h), in memory that the host cannot access while no primitive runs. A program that
// confuses host and device memory fails here as on a GPU. With SOTTO_CUDA_LIBRARY set to this
// library, the transfers of tensors are tested on machines without a GPU.
//
// An asynchronous copy is done when something waits for it, and not before. Until then its target
// holds poison and no primitive may use it, and the pinned memory that it reads cannot be written
// before the host has waited. The copy must come after all work that used its target.
#include <cstring>
#include <deque>
#include <map>
#include <mutex>

#include <sys/mman.h>

#include "core/cuda/cuda_library.h"
#include "core/error.h"
#include "tests/fake_gpu/host_executor.h"
#include "tests/support/fake_gpu_counts.h"

namespace sotto {

namespace {

constexpr Device pretend{DeviceKind::cuda, 0};

// A range of addresses, each of which is handed out once only.
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
    const std::lock_guard lock(mutex_);
    const char* const at = static_cast<const char*>(address);
    return at >= first_ && at < first_ + used_;
  }
  // Makes the device's memory accessible while the result lives.
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

  mutable std::mutex mutex_;
  char* first_;
  std::size_t used_ = 0;
  int open_ = 0;
};

class Pages final : public RawMemory {
 public:
  void* allocate(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    void* const address =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return nullptr;
    bytes_[address] = bytes;
    return address;
  }
  void release(void* address) noexcept override {
    const std::lock_guard lock(mutex_);
    munmap(address, bytes_.extract(address).mapped());
  }
  void protect(const void* address, int rights) {
    const std::lock_guard lock(mutex_);
    const auto found = bytes_.find(const_cast<void*>(address));
    check(found != bytes_.end(),
          "pretended GPU: a copy beside work from memory that is not pinned");
    mprotect(found->first, found->second, rights);
  }

 private:
  std::mutex mutex_;
  std::map<void*, std::size_t> bytes_;
};

// An event, reached after the first `work` primitives and `copies` asynchronous copies.
struct PretendEvent final : DeviceEvent {
  PretendEvent(std::uint64_t work, std::uint64_t copies) : work(work), copies(copies) {}
  std::uint64_t work, copies;
};

struct Range {
  const char *begin, *end;
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};

Range range_of(const View& view) {
  const auto width = static_cast<std::int64_t>(size_of(view.dtype));
  std::int64_t last = 0;
  for (int i = 0; i < view.rank; ++i) last += (view.size[i] - 1) * view.stride[i];
  const char* const begin = view.as<const char>();
  return {begin, begin + (last + 1) * width};
}

// The asynchronous copies, in order, and the last use of each piece of memory.
class Copies {
 public:
  Copies(Memory& memory, Pages& pinned) : memory_(memory), pinned_(pinned) {}

  // The device's next work uses the memory.
  void use(const Range& range) {
    const std::lock_guard lock(mutex_);
    for (std::size_t k = done_; k < copies_.size(); ++k) {
      check(!copies_[k].target.meets(range),
            "pretended GPU: memory is used that a copy beside the work writes to");
    }
    Used& used = used_[range.begin];
    used = {std::max(used.end, range.end), ++work_};
  }
  PretendEvent now() {
    const std::lock_guard lock(mutex_);
    return {work_, 0};
  }
  PretendEvent add(void* to, const void* from, std::size_t bytes, const PretendEvent& after) {
    const std::lock_guard lock(mutex_);
    const char* const first = static_cast<const char*>(to);
    const Range target{first, first + bytes};
    for (const auto& [begin, used] : used_) {
      check(used.work <= after.work || !target.meets({begin, used.end}),
            "pretended GPU: a copy beside the work does not wait for what used its target");
    }
    pinned_.protect(from, PROT_READ);
    const auto open = memory_.open();
    std::memset(to, 0xff, bytes);  // NaN in every floating-point type
    copies_.push_back({target, to, from});
    return {work_, copies_.size()};
  }
  void come_to(const PretendEvent& event) {
    const std::lock_guard lock(mutex_);
    const auto open = memory_.open();
    for (; done_ < event.copies; ++done_) {
      const Copy& copy = copies_[done_];
      std::memcpy(copy.to, copy.from,
                  static_cast<std::size_t>(copy.target.end - copy.target.begin));
    }
  }
  // Called when the host has waited for the event.
  void seen(const PretendEvent& event) {
    come_to(event);
    const std::lock_guard lock(mutex_);
    for (; seen_ < event.copies; ++seen_)
      pinned_.protect(copies_[seen_].from, PROT_READ | PROT_WRITE);
  }

 private:
  struct Copy {
    Range target;
    void* to;
    const void* from;
  };
  struct Used {
    const char* end = nullptr;
    std::uint64_t work = 0;
  };

  Memory& memory_;
  Pages& pinned_;
  std::mutex mutex_;
  std::deque<Copy> copies_;
  std::size_t done_ = 0, seen_ = 0;  // indices of copies
  std::uint64_t work_ = 0;
  std::map<const char*, Used> used_;
};

// A captured sequence of launches.
class Captured final : public CapturedLaunches {
 public:
  Captured(Memory& memory, Launches launches) : memory_(memory), launches_(std::move(launches)) {}
  void replay() override {
    count_launch();
    const auto open = memory_.open();
    for (const auto& launch : launches_) launch();
  }

 private:
  Memory& memory_;
  Launches launches_;
};

// The index of the launch that is dropped from captured work; below 0: none.
int lost_launch = -1;

// The capture of this thread; nullptr if it is not capturing.
thread_local std::unique_ptr<Launches> capturing;

class Runtime final : public CudaRuntime {
 public:
  Runtime()
      : backend_(make_device_code(
            pretend, sotto::backend(cpu),
            [this](auto views) {
              for (const View* view : views) use(*view);
              return memory_.open();
            },
            [] { return capturing.get(); })) {}
  const std::vector<DeviceInfo>& devices() const override { return infos_; }
  RawMemory& memory(int) override { return memory_; }
  Backend& backend(int) override { return *backend_; }
  void copy(void* to, Device to_device, const void* from, Device from_device,
            std::size_t bytes) override {
    check(memory_.holds(to) == (to_device != cpu) && memory_.holds(from) == (from_device != cpu),
          "pretended GPU: a copy between other devices than it says");
    for (const void* end : {static_cast<const void*>(to), from}) {
      const char* const first = static_cast<const char*>(end);
      if (memory_.holds(first)) copies_.use({first, first + bytes});
    }
    const bool within = to_device == from_device;
    if (capturing && from_device != cpu)
      return capturing->push_back([=] { std::memcpy(to, from, bytes); });
    if (within)
      count_launch();
    else
      ++waits_;
    const auto open = memory_.open();
    std::memcpy(to, from, bytes);
  }
  void synchronize(int) override { ++waits_; }
  std::int64_t waits() const { return waits_; }
  void begin_capture(int) override { capturing = std::make_unique<Launches>(); }
  std::unique_ptr<CapturedLaunches> end_capture(int) override {
    Launches launches = std::move(*std::exchange(capturing, nullptr));
    if (lost_launch >= 0 && lost_launch < std::ssize(launches))
      launches.erase(launches.begin() + lost_launch);
    return std::make_unique<Captured>(memory_, std::move(launches));
  }

  RawMemory& pinned_memory(int) override { return pinned_; }
  std::unique_ptr<DeviceEvent> record(int) override {
    return std::make_unique<PretendEvent>(copies_.now());
  }
  std::unique_ptr<DeviceEvent> copy_beside(int, void* to, const void* from, std::size_t bytes,
                                           const DeviceEvent& after) override {
    check(memory_.holds(to), "pretended GPU: a copy to the host beside the work");
    return std::make_unique<PretendEvent>(
        copies_.add(to, from, bytes, static_cast<const PretendEvent&>(after)));
  }
  void wait(int, const DeviceEvent& event) override {
    copies_.come_to(static_cast<const PretendEvent&>(event));
  }
  void synchronize(const DeviceEvent& event) override {
    copies_.seen(static_cast<const PretendEvent&>(event));
  }

 private:
  void use(const View& view) {
    if (view.data == nullptr || view.numel() == 0) return;
    check(memory_.holds(view.data), "pretended GPU: a view of host memory");
    copies_.use(range_of(view));
  }

  std::vector<DeviceInfo> infos_{{pretend, "pretended GPU", std::int64_t{1} << 36, "0.0"}};
  Memory memory_;
  Pages pinned_;
  Copies copies_{memory_, pinned_};
  std::unique_ptr<Backend> backend_;
  std::atomic<std::int64_t> waits_ = 0;
};

Runtime& runtime() {
  static auto* const runtime = new Runtime;
  return *runtime;
}

}  // namespace

}  // namespace sotto

extern "C" __attribute__((visibility("default"))) sotto::CudaRuntime* sotto_cuda_runtime() {
  return &sotto::runtime();
}

extern "C" __attribute__((visibility("default"))) sotto::PretendedCounts sotto_pretended_counts() {
  return {sotto::launches_at_once(), sotto::runtime().waits()};
}

extern "C" __attribute__((visibility("default"))) void sotto_pretended_lose(int launch) {
  sotto::lost_launch = launch;
}

extern "C" __attribute__((visibility("default"))) void sotto_pretended_fail(std::int64_t number) {
  sotto::failing_launch() = number;
}
