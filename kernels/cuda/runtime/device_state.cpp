#include "kernels/cuda/runtime/device_state.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include "core/devices.h"
#include "core/error.h"

namespace sotto {

namespace {

std::string described(const View& v) {
  std::string sizes;
  for (int i = 0; i < v.rank; ++i) sizes += fmt::format("{}{}", i == 0 ? "" : ", ", v.size[i]);
  return fmt::format("{} ({})", name(v.dtype), sizes);
}

}  // namespace

std::string failure_text(const Call& call, const char* function, const std::string& reason) {
  std::string views;
  for (const View* view : call.views) {
    if (view) views += (views.empty() ? " of " : ", ") + described(*view);
  }
  return fmt::format("{}: {}{}: {}: {}", name(call.device), call.name, views, function, reason);
}

void device_failed(const Call& call, const char* function, const std::string& reason) {
  cudaGetLastError();
  throw SystemFailure(failure_text(call, function, reason));
}

DeviceState::DeviceState(int index, int ordinal)
    : device_{DeviceKind::cuda, index}, ordinal_(ordinal), workspace_(new_workspace()) {
  const Call call("start", device_);
  for (cudaStream_t* stream : {&stream_, &copies_})
    cuda_check(call, "cudaStreamCreate", cudaStreamCreateWithFlags(stream, cudaStreamNonBlocking));
}

void* DeviceState::new_workspace() const {
  use();
  void* data = nullptr;
  cuda_check(Call("start", device_), "cudaMalloc", cudaMalloc(&data, workspace_bytes));
  return data;
}

cublasLtContext* DeviceState::cublas() {
  if (!cublas_) {
    const cublasStatus_t status =
        with_room(device_, CUBLAS_STATUS_ALLOC_FAILED, [this] { return cublasLtCreate(&cublas_); });
    if (status != CUBLAS_STATUS_SUCCESS) {
      cublas_ = nullptr;
      device_failed(Call("start", device_), "cublasLtCreate", cublasLtGetStatusString(status));
    }
  }
  return cublas_;
}

void DeviceState::use() const { cuda_check(Call("use", device_), "cudaSetDevice", select()); }

}  // namespace sotto
