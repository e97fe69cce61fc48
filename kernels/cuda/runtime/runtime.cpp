// The entry point of libsotto_cuda.so: finds the usable GPUs and creates their memory and backends.
#include <memory>
#include <mutex>
#include <string>

#include <fmt/format.h>

#include "core/cuda/cuda_library.h"
#include "core/error.h"
#include "kernels/cuda/runtime/cuda_backend.h"

namespace sotto {

namespace {

// Clears the error of a call that cannot throw, or the next launch would report it as its own. An
// error of earlier work stays, and the next call reports it.
void forget_failure(cudaError_t status) noexcept {
  if (status != cudaSuccess) cudaGetLastError();
}

// The memory of one GPU, through CUDA's own allocator.
class DeviceMemory final : public RawMemory {
 public:
  explicit DeviceMemory(const DeviceState& state) : state_(state) {}
  void* allocate(std::size_t bytes) override {
    state_.use();
    void* address = nullptr;
    const cudaError_t status = cudaMalloc(&address, bytes);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // clears the error, which the allocator reports
      return nullptr;
    }
    cuda_check(Call("allocate", state_.device()), "cudaMalloc", status);
    return address;
  }
  void release(void* address) noexcept override {
    forget_failure(state_.select());
    forget_failure(cudaFree(address));
  }

 private:
  const DeviceState& state_;
};

// Pinned (page-locked) memory of the host, which a GPU can read asynchronously.
class PinnedMemory final : public RawMemory {
 public:
  explicit PinnedMemory(const DeviceState& state) : state_(state) {}
  void* allocate(std::size_t bytes) override {
    state_.use();
    void* address = nullptr;
    const cudaError_t status = cudaHostAlloc(&address, bytes, cudaHostAllocDefault);
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return nullptr;
    }
    cuda_check(Call("allocate pinned memory", state_.device()), "cudaHostAlloc", status);
    return address;
  }
  void release(void* address) noexcept override {
    forget_failure(state_.select());
    forget_failure(cudaFreeHost(address));
  }

 private:
  const DeviceState& state_;
};

class StreamEvent final : public DeviceEvent {
 public:
  // Records an event on the stream. A thread that waits for it sleeps.
  StreamEvent(const DeviceState& state, cudaStream_t stream) : state_(state) {
    const Call call("record", state.device());
    state.use();
    cuda_check(call, "cudaEventCreate",
               cudaEventCreateWithFlags(&event_, cudaEventDisableTiming | cudaEventBlockingSync));
    const cudaError_t status = cudaEventRecord(event_, stream);
    if (status != cudaSuccess) cudaEventDestroy(event_);
    cuda_check(call, "cudaEventRecord", status);
  }
  StreamEvent(const StreamEvent&) = delete;
  StreamEvent& operator=(const StreamEvent&) = delete;
  ~StreamEvent() override {
    state_.select();
    cudaEventDestroy(event_);
  }

  cudaEvent_t get() const { return event_; }
  const DeviceState& state() const { return state_; }

 private:
  const DeviceState& state_;
  cudaEvent_t event_ = nullptr;
};

const StreamEvent& recorded(const DeviceEvent& event) {
  return static_cast<const StreamEvent&>(event);
}

void wait_on(const Call& call, cudaStream_t stream, const DeviceEvent& event) {
  cuda_check(call, "cudaStreamWaitEvent", cudaStreamWaitEvent(stream, recorded(event).get(), 0));
}

struct Gpu {
  Gpu(int index, int ordinal)
      : state(index, ordinal), memory(state), pinned(state), backend(make_cuda_backend(state)) {}
  DeviceState state;
  DeviceMemory memory;
  PinnedMemory pinned;
  std::unique_ptr<Backend> backend;
};

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// The number of CUDA devices. Throws SystemFailure, with the reason, if there is none.
int count_ordinals() {
  int driver = 0, runtime = 0, count = 0;
  cudaRuntimeGetVersion(&runtime);
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
    throw SystemFailure("no driver: libcuda.so.1 was not found");
  }
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status == cudaErrorInsufficientDriver) {
    throw SystemFailure(fmt::format("the driver is too old: it is for CUDA {}, this build for {}",
                                    version_text(driver), version_text(runtime)));
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0)) {
    throw SystemFailure("no device");
  }
  if (status != cudaSuccess) throw SystemFailure(cudaGetErrorString(status));
  return count;
}

class Runtime final : public CudaRuntime {
 public:
  Runtime() {
    std::string reason;
    const int count = count_ordinals();
    for (int ordinal = 0; ordinal < count; ++ordinal) take(ordinal, reason);
    if (infos_.empty()) throw SystemFailure(reason);
  }

  const std::vector<DeviceInfo>& devices() const override { return infos_; }
  RawMemory& memory(int index) override { return gpu(index).memory; }
  Backend& backend(int index) override { return *gpu(index).backend; }

  void copy(void* to, Device to_device, const void* from, Device from_device,
            std::size_t bytes) override {
    const Device lead = to_device == cpu ? from_device : to_device;
    const Call call("copy", lead);
    const DeviceState& state = gpu(lead.index).state;
    // A copy from or to the host is never captured.
    const bool within = to_device == from_device;
    const cudaStream_t stream = within ? state.stream() : state.main_stream();
    state.use();
    cuda_check(call, "cudaMemcpyAsync",
               cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
    if (to_device == cpu || from_device == cpu) synchronize(lead.index);
  }

  void synchronize(int index) override {
    const DeviceState& state = gpu(index).state;
    state.use();
    cuda_check(Call("synchronize", state.device()), "cudaStreamSynchronize",
               cudaStreamSynchronize(state.main_stream()));
  }

  void begin_capture(int index) override { gpu(index).state.begin_capture(); }
  std::unique_ptr<CapturedLaunches> end_capture(int index) override {
    return gpu(index).state.end_capture();
  }

  RawMemory& pinned_memory(int index) override { return gpu(index).pinned; }

  std::unique_ptr<DeviceEvent> record(int index) override {
    const DeviceState& state = gpu(index).state;
    return std::make_unique<StreamEvent>(state, state.main_stream());
  }

  std::unique_ptr<DeviceEvent> copy_beside(int index, void* to, const void* from, std::size_t bytes,
                                           const DeviceEvent& after) override {
    const DeviceState& state = gpu(index).state;
    const Call call("asynchronous copy", state.device());
    state.use();
    wait_on(call, state.copies(), after);
    cuda_check(call, "cudaMemcpyAsync",
               cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, state.copies()));
    return std::make_unique<StreamEvent>(state, state.copies());
  }

  void wait(int index, const DeviceEvent& event) override {
    const DeviceState& state = gpu(index).state;
    state.use();
    wait_on(Call("wait", state.device()), state.main_stream(), event);
  }

  void synchronize(const DeviceEvent& event) override {
    const DeviceState& state = recorded(event).state();
    state.use();
    cuda_check(Call("synchronize", state.device()), "cudaEventSynchronize",
               cudaEventSynchronize(recorded(event).get()));
  }

  bool reached(const DeviceEvent& event) override {
    const DeviceState& state = recorded(event).state();
    state.use();
    const cudaError_t status = cudaEventQuery(recorded(event).get());
    if (status == cudaErrorNotReady) {
      cudaGetLastError();  // or the next launch would report it
      return false;
    }
    cuda_check(Call("query", state.device()), "cudaEventQuery", status);
    return true;
  }

  void* stream(int index) override {
    const DeviceState& state = gpu(index).state;
    state.use();
    return state.main_stream();
  }

  std::string bus_id(int index) override {
    check(index >= 0 && index < std::ssize(ordinals_), "cuda: device {} of {}", index,
          ordinals_.size());
    char text[64] = "";
    const int ordinal = ordinals_[static_cast<std::size_t>(index)];
    cuda_check(Call("identify", infos_[static_cast<std::size_t>(index)].device),
               "cudaDeviceGetPCIBusId", cudaDeviceGetPCIBusId(text, sizeof text, ordinal));
    return text;
  }

  std::string nccl_library() const override { return "libnccl.so.2"; }

 private:
  void take(int ordinal, std::string& reason) {
    // Asks for properties alone: a context takes some hundred MB of the GPU.
    cudaDeviceProp properties{};
    if (cudaGetDeviceProperties(&properties, ordinal) != cudaSuccess) {
      reason = fmt::format("device {}: {}", ordinal, cudaGetErrorString(cudaGetLastError()));
      return;
    }
    const std::string capability = fmt::format("{}.{}", properties.major, properties.minor);
    if (10 * properties.major + properties.minor < oldest_code()) {
      reason = fmt::format("{} is too old: this build has no code for compute capability {}",
                           properties.name, capability);
      return;
    }
    const Device device{DeviceKind::cuda, static_cast<int>(infos_.size())};
    ordinals_.push_back(ordinal);
    gpus_.emplace_back();
    infos_.push_back({device, properties.name, static_cast<std::int64_t>(properties.totalGlobalMem),
                      capability});
  }

  // Created at the first use, so that GPUs that are not used are not touched.
  Gpu& gpu(int index) {
    const auto at = static_cast<std::size_t>(index);
    check(index >= 0 && at < gpus_.size(), "cuda: device {} of {}", index, gpus_.size());
    const std::lock_guard lock(creating_);
    if (!gpus_[at]) {
      const Call call("start", infos_[at].device);
      cuda_check(call, "cudaSetDevice", cudaSetDevice(ordinals_[at]));
      cuda_check(call, "code for this GPU", find_code());
      gpus_[at] = std::make_unique<Gpu>(index, ordinals_[at]);
    }
    return *gpus_[at];
  }

  std::vector<DeviceInfo> infos_;
  std::vector<int> ordinals_;
  std::vector<std::unique_ptr<Gpu>> gpus_;
  std::mutex creating_;
};

}  // namespace

}  // namespace sotto

extern "C" __attribute__((visibility("default"))) sotto::CudaRuntime* sotto_cuda_runtime() {
  // Never destroyed: tensors with static lifetime may be on a device.
  static auto* const runtime = new sotto::Runtime;
  return runtime;
}
