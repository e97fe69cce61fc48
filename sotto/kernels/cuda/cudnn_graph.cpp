#include "sotto/kernels/cuda/cudnn_graph.h"

#include <algorithm>
#include <map>

namespace sotto {

void cudnn_check(const Call& call, const char* function, cudnnStatus_t status) {
  if (status != CUDNN_STATUS_SUCCESS) device_failed(call, function, cudnnGetErrorString(status));
}

cudnnHandle_t cudnn_handle(DeviceState& state, const Call& call) {
  static auto* const all = new std::map<int, cudnnHandle_t>;
  cudnnHandle_t& handle = (*all)[state.device().index];
  if (!handle) {
    state.use();
    cudnn_check(call, "cudnnCreate", cudnnCreate(&handle));
  }
  cudnn_check(call, "cudnnSetStream", cudnnSetStream(handle, state.stream()));
  return handle;
}

Descriptor::Descriptor(const Call& call, cudnnBackendDescriptorType_t type) {
  cudnnBackendDescriptor_t raw = nullptr;
  cudnn_check(call, "cudnnBackendCreateDescriptor", cudnnBackendCreateDescriptor(type, &raw));
  raw_.reset(raw);
}

// The library fills descriptors that the caller has made.
std::vector<Descriptor> Descriptor::read(const Call& call, cudnnBackendAttributeName_t name,
                                         cudnnBackendDescriptorType_t type,
                                         std::int64_t most) const {
  std::int64_t count = 0;
  cudnn_check(
      call, "cudnnBackendGetAttribute",
      cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
  count = std::min(count, most);
  std::vector<Descriptor> all;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i) raw.push_back(all.emplace_back(call, type).get());
  if (count == 0) return all;
  cudnn_check(call, "cudnnBackendGetAttribute",
              cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count,
                                       raw.data()));
  all.erase(all.begin() + std::min<std::int64_t>(count, std::ssize(all)), all.end());
  return all;
}

void Descriptor::finalize(const Call& call) {
  const cudnnStatus_t status = cudnnBackendFinalize(get());
  if (CUDNN_STATUS_CATEGORY(static_cast<int>(status)) ==
      CUDNN_STATUS_CATEGORY(static_cast<int>(CUDNN_STATUS_NOT_SUPPORTED)))
    throw Unsupported{};
  cudnn_check(call, "cudnnBackendFinalize", status);
}

}  // namespace sotto
