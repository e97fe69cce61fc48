// A substitute for libsotto_cuda.so whose GPU is the host: it runs the GPU's kernels
// (host_executor.h), in memory that the host cannot access while no primitive runs. A program that
// confuses host and device memory fails here as on a GPU. With SOTTO_CUDA_LIBRARY set to this
// library, the transfers of tensors are tested on machines without a GPU. SOTTO_PRETENDED_GPUS says
// how many GPUs there are.
//
// A GPU's work runs as late as can be: when the host waits for it, when another GPU waits for its
// event, or when a test asks; with SOTTO_PRETENDED_DRY=1 never, and what was asked for can be
// counted. Memory given back is poisoned.
//
// An asynchronous copy is done when something waits for it, and not before. Until then its target
// holds poison and no primitive may use it, and the pinned memory that it reads cannot be written
// before the host has waited. The copy must come after all work that used its target.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include "core/cuda/cuda_library.h"
#include "core/error.h"
#include "tests/fake_gpu/fake_memory.h"
#include "tests/fake_gpu/host_executor.h"
#include "tests/fake_gpu/pretended_stream.h"
#include "tests/support/fake_gpu_counts.h"

namespace sotto {

namespace {

// The bytes that an H100 with 80 GB reports.
constexpr std::int64_t h100_bytes = 85'000'000'000;

// The index of the launch that is dropped from captured work; below 0: none.
int lost_launch = -1;

// The capture of this thread; nullptr if it is not capturing.
thread_local std::unique_ptr<Launches> capturing;

// Whether this thread gave memory back while it was capturing, which may end a capture.
thread_local bool given_back_while_capturing = false;

// One GPU: its memory, and its work in the order in which it was asked for.
class Gpu final : public PretendedStream {
 public:
  explicit Gpu(int index)
      : device{DeviceKind::cuda, index},
        memory([this] {
          given_back_while_capturing = capturing != nullptr;
          run(asked());
        }),
        backend(make_device_code(
            device, sotto::backend(cpu),
            [this](auto views) {
              for (const View* view : views) use(*view);
              return nullptr;
            },
            [this](std::function<void()> work, Asked asked) {
              check(asked != Asked::bytes || !capturing,
                    "pretended GPU: bytes of the host in captured work");
              if (capturing) return capture(std::move(work), asked);
              if (asked == Asked::launch) count_launch(device);
              add(std::move(work));
            })) {}

  void add(std::function<void()> work) { add_when({}, std::move(work)); }
  void add_when(std::function<bool()> ready, std::function<void()> work) override {
    if (dry()) return;
    const std::lock_guard lock(mutex());
    work_.push_back({std::move(ready), std::move(work)});
  }
  void advance() override { run_ready(asked()); }
  bool use(const void* address, std::size_t bytes) override {
    const char* const first = static_cast<const char*>(address);
    if (!memory.holds(address)) return false;
    copies.use({first, first + bytes});
    return true;
  }
  // How many pieces of work the GPU was asked for.
  std::size_t asked() const {
    const std::lock_guard lock(mutex());
    return done_ + work_.size();
  }
  // Runs the first `count` pieces, unless they have run.
  void run(std::size_t count) {
    while (!run_ready(count)) std::this_thread::yield();
  }
  // Runs those of them that can be run now. Returns true if that is all.
  bool run_ready(std::size_t count) {
    const std::lock_guard lock(mutex());
    const auto open = memory.open();
    while (done_ < count) {
      if (!front_is_ready()) return false;
      const Piece piece = std::move(work_.front());
      work_.pop_front();
      ++done_;
      piece.work();
    }
    return true;
  }

  const Device device;
  Memory memory;
  Pages pinned;
  Copies copies{memory, pinned};
  const std::unique_ptr<Backend> backend;

 private:
  // Of all GPUs, and locked again where one's work runs another's.
  static std::recursive_mutex& mutex() {
    static std::recursive_mutex mutex;
    return mutex;
  }
  // Launches of one product are one in captured work.
  static void capture(std::function<void()> work, Asked asked) {
    if (asked == Asked::launch) return capturing->push_back(std::move(work));
    capturing->back() = [first = std::move(capturing->back()), work = std::move(work)] {
      first();
      work();
    };
  }
  void use(const View& view) {
    if (view.data == nullptr || view.numel() == 0) return;
    check(memory.holds(view.data), "pretended GPU: a view of host memory");
    copies.use(range_of(view));
  }

  struct Piece {
    std::function<bool()> ready;  // if empty, it is
    std::function<void()> work;
  };
  // True if the front can be run. Its ready() may let other GPUs go on, which ask this one.
  bool front_is_ready() {
    if (!work_.front().ready) return true;
    if (std::exchange(asking_, true)) return false;
    const bool ready = work_.front().ready();
    asking_ = false;
    return ready;
  }

  std::deque<Piece> work_;
  std::size_t done_ = 0;
  bool asking_ = false;
};

// A captured sequence of launches.
class Captured final : public CapturedLaunches {
 public:
  Captured(Gpu& gpu, Launches launches)
      : gpu_(gpu), launches_(std::make_shared<Launches>(std::move(launches))) {}
  ~Captured() override { gpu_.run(gpu_.asked()); }
  void replay() override {
    count_launch(gpu_.device);
    gpu_.add([launches = launches_] {
      for (const auto& launch : *launches) launch();
    });
  }

 private:
  Gpu& gpu_;
  std::shared_ptr<Launches> launches_;
};

std::size_t gpus_wanted() {
  const char* const wanted = std::getenv("SOTTO_PRETENDED_GPUS");
  return wanted ? std::stoul(wanted) : 1;
}

class Runtime final : public CudaRuntime {
 public:
  Runtime() {
    for (int index = 0; index < static_cast<int>(gpus_wanted()); ++index) {
      gpus_.push_back(std::make_unique<Gpu>(index));
      infos_.push_back({gpus_.back()->device, "pretended GPU",
                        dry() ? h100_bytes : std::int64_t{1} << 36, "0.0"});
    }
  }
  const std::vector<DeviceInfo>& devices() const override { return infos_; }
  RawMemory& memory(int index) override { return gpu(index).memory; }
  Backend& backend(int index) override { return *gpu(index).backend; }
  void copy(void* to, Device to_device, const void* from, Device from_device,
            std::size_t bytes) override {
    check(lies(to, to_device) && lies(from, from_device),
          "pretended GPU: a copy between other devices than it says");
    use(to, to_device, bytes);
    use(from, from_device, bytes);
    const Device lead = to_device == cpu ? from_device : to_device;
    const auto work = [=, this] {
      const auto target = opened(to_device), source = opened(from_device);
      std::memcpy(to, from, bytes);
    };
    if (capturing && from_device != cpu) return capturing->push_back(work);
    const bool host = to_device == cpu || from_device == cpu;
    if (dry() && to_device == cpu) std::memset(to, 0, bytes);
    if (!host) count_launch(lead);
    gpu(lead.index).add(work);
    if (host) synchronize(lead.index);
  }
  void synchronize(int index) override {
    ++waits_;
    run(index);
  }
  std::int64_t waits() const { return waits_; }
  void run(int index) { gpu(index).run(gpu(index).asked()); }
  void begin_capture(int) override { capturing = std::make_unique<Launches>(); }
  std::unique_ptr<CapturedLaunches> end_capture(int index) override {
    Launches launches = std::move(*std::exchange(capturing, nullptr));
    if (std::exchange(given_back_while_capturing, false))
      throw SystemFailure("pretended GPU: memory was given back during a capture");
    if (lost_launch >= 0 && lost_launch < std::ssize(launches))
      launches.erase(launches.begin() + lost_launch);
    return std::make_unique<Captured>(gpu(index), std::move(launches));
  }

  RawMemory& pinned_memory(int index) override { return gpu(index).pinned; }
  std::unique_ptr<DeviceEvent> record(int index) override {
    auto event = std::make_unique<PretendEvent>();
    event->gpu = index;
    event->queued = gpu(index).asked();
    event->work = gpu(index).copies.uses();
    return event;
  }
  std::unique_ptr<DeviceEvent> copy_beside(int index, void* to, const void* from, std::size_t bytes,
                                           const DeviceEvent& after) override {
    check(lies(to, gpu(index).device), "pretended GPU: a copy to the host beside the work");
    const PretendEvent& before = pretended_event(after);
    gpu(before.gpu).run(before.queued);
    auto event = std::make_unique<PretendEvent>();
    event->gpu = index;
    event->copies = gpu(index).copies.add(to, from, bytes, before);
    return event;
  }
  void wait(int index, const DeviceEvent& event) override {
    const PretendEvent& before = pretended_event(event);
    gpu(before.gpu).copies.come_to(before.copies);
    gpu(index).add([&other = gpu(before.gpu), queued = before.queued] { other.run(queued); });
  }
  void synchronize(const DeviceEvent& event) override {
    const PretendEvent& before = pretended_event(event);
    gpu(before.gpu).run(before.queued);
    gpu(before.gpu).copies.seen(before.copies);
  }
  bool reached(const DeviceEvent& event) override {
    const PretendEvent& before = pretended_event(event);
    return gpu(before.gpu).run_ready(before.queued);
  }
  void* stream(int index) override { return static_cast<PretendedStream*>(&gpu(index)); }
  std::string bus_id(int index) override { return std::to_string(index); }
  // A real one knows no pretended GPU.
  std::string nccl_library() const override { return ""; }

 private:
  Gpu& gpu(int index) { return *gpus_.at(static_cast<std::size_t>(index)); }
  std::shared_ptr<void> opened(Device device) {
    return device == cpu ? nullptr : gpu(device.index).memory.open();
  }
  // Whether the address is of the device's memory.
  bool lies(const void* address, Device device) const {
    return std::all_of(gpus_.begin(), gpus_.end(), [&](const auto& gpu) {
      return gpu->memory.holds(address) == (gpu->device == device);
    });
  }
  void use(const void* address, Device device, std::size_t bytes) {
    const char* const first = static_cast<const char*>(address);
    if (device != cpu) gpu(device.index).copies.use({first, first + bytes});
  }

  std::vector<DeviceInfo> infos_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
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

extern "C" __attribute__((visibility("default"))) void sotto_pretended_counts(
    sotto::PretendedCounts& counts) {
  counts = {sotto::launches_at_once(), sotto::runtime().waits()};
}

extern "C" __attribute__((visibility("default"))) std::vector<sotto::PrimitiveWork>*
sotto_pretended_work() {
  return &sotto::recorded_work();
}

extern "C" __attribute__((visibility("default"))) void sotto_pretended_run(int gpu) {
  sotto::runtime().run(gpu);
}

extern "C" __attribute__((visibility("default"))) void sotto_pretended_lose(int launch) {
  sotto::lost_launch = launch;
}

extern "C" __attribute__((visibility("default"))) void sotto_pretended_fill(std::int64_t first,
                                                                            int times) {
  sotto::full_launches().first = first;
  sotto::full_launches().times = times;
}

extern "C" __attribute__((visibility("default"))) void sotto_pretended_skip_tiles(bool skip) {
  sotto::skips_tiles() = skip;
}

extern "C" __attribute__((visibility("default"))) void sotto_pretended_fail(std::int64_t number) {
  sotto::failing_launch() = number;
}
