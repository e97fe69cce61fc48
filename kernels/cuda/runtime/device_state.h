// The stream and library handles of one GPU, and its errors. It includes neither fmt nor Eigen,
// because .cu files include it.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>

#include <cuda_runtime_api.h>

#include "core/device.h"
#include "core/view.h"
#include "kernels/cuda/runtime/library_workspace.h"
#include "kernels/cuda/runtime/room.h"

struct cublasLtContext;

namespace sotto {

class CapturedLaunches;

// The call in progress, for error texts.
struct Call {
  const char* name;
  Device device;
  static constexpr std::size_t max_views = 9;
  const View* views[max_views] = {};  // the first views of the call

  Call(const char* name, Device device, std::initializer_list<const View*> all = {})
      : name(name), device(device) {
    std::size_t count = 0;
    for (const View* view : all) {
      if (count < max_views) views[count++] = view;
    }
  }
};

// "cuda:0: gemm of f32 (4, 3), f32 (3, 5): cublasLtMatmul: reason".
std::string failure_text(const Call& call, const char* function, const std::string& reason);
// Throws SystemFailure with that text. CUDA forgets the error, which the next launch would report
// as its own.
[[noreturn]] void device_failed(const Call& call, const char* function, const std::string& reason);

// Clears an error that a library's own calls of CUDA have left behind when it succeeded at last, or
// the next launch would report it as its own. An error of the GPU's work stays.
struct ForgetErrors {
  ForgetErrors() = default;
  ForgetErrors(const ForgetErrors&) = delete;
  ForgetErrors& operator=(const ForgetErrors&) = delete;
  ~ForgetErrors() { cudaGetLastError(); }
};

inline void cuda_check(const Call& call, const char* function, cudaError_t status) {
  if (status != cudaSuccess) [[unlikely]]
    device_failed(call, function, cudaGetErrorString(status));
}
// Checks the status that f() returns; if CUDA found no memory, frees some (room.h) and calls f()
// again.
template <class F>
void cuda_check_with_room(const Call& call, const char* function, const F& f) {
  const auto clear = [&f] {
    const cudaError_t status = f();
    if (status == cudaErrorMemoryAllocation) [[unlikely]]
      cudaGetLastError();
    return status;
  };
  cuda_check(call, function, with_room(call.device, cudaErrorMemoryAllocation, clear));
}

// A GPU in use, which lives as long as the process. Its work runs in order on one stream;
// asynchronous uploads run in order on the stream `copies`.
class DeviceState {
 public:
  // `index` counts usable GPUs, `ordinal` all CUDA devices.
  DeviceState(int index, int ordinal);
  DeviceState(const DeviceState&) = delete;
  DeviceState& operator=(const DeviceState&) = delete;

  Device device() const { return device_; }
  // The stream of the calling thread's work: main_stream(), or the stream of its capture.
  cudaStream_t stream() const;
  cudaStream_t main_stream() const { return stream_; }
  cudaStream_t copies() const { return copies_; }
  // Implements CudaRuntime's captures.
  void begin_capture();
  std::unique_ptr<CapturedLaunches> end_capture();
  // Makes this GPU the calling thread's current device.
  void use() const;
  // Makes the GPU current, and returns the status.
  cudaError_t select() const noexcept { return cudaSetDevice(ordinal_); }
  cublasLtContext* cublas();
  LibraryWorkspace& workspace() { return workspace_; }
  static constexpr std::size_t workspace_bytes = std::size_t{64} << 20;

 private:
  void* new_workspace() const;

  Device device_;
  int ordinal_;
  LibraryWorkspace workspace_;
  cudaStream_t stream_ = nullptr, copies_ = nullptr;
  cudaStream_t capture_stream_ = nullptr;  // shared by captures, which run one after the other
  std::mutex capturing_;
  cublasLtContext* cublas_ = nullptr;
};

// The oldest compute capability for which this build has code: 90 for 9.0. Defined in
// cuda_elementwise.cu.
int oldest_code();
// Success if this build has kernels for the current device, which gets a context.
cudaError_t find_code();

}  // namespace sotto
