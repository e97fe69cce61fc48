#include "kernels/cuda/cudnn/cudnn_graph.h"

#include <algorithm>
#include <array>
#include <map>
#include <string_view>

namespace sotto {

namespace {

constexpr std::int64_t alignment = 16;  // alignment of addresses, in bytes

// The library's status text and its last error message.
std::string reason_of(cudnnStatus_t status) {
  std::array<char, 512> message{};
  cudnnGetLastErrorString(message.data(), message.size());
  const std::string_view text = message.data();
  return std::string(cudnnGetErrorString(status)) + (text.empty() ? "" : ": ") + std::string(text);
}

}  // namespace

void cudnn_check(const Call& call, const char* function, cudnnStatus_t status) {
  if (status != CUDNN_STATUS_SUCCESS) device_failed(call, function, reason_of(status));
}

void describe_check(const Call& call, const char* function, cudnnStatus_t status) {
  const auto of = [](cudnnStatus_t category) {
    return CUDNN_STATUS_CATEGORY(static_cast<int>(category));
  };
  const bool wrong = of(status) == of(CUDNN_STATUS_BAD_PARAM);
  if (wrong || of(status) == of(CUDNN_STATUS_NOT_SUPPORTED))
    throw Unsupported{reason_of(status), wrong};
  cudnn_check(call, function, status);
}

cudnnHandle_t cudnn_handle(DeviceState& state, const Call& call) {
  static auto* const all = new std::map<int, cudnnHandle_t>;
  cudnnHandle_t& handle = (*all)[state.device().index];
  if (!handle) {
    state.use();
    cudnn_check(call, "cudnnCreate",
                cudnn_with_room(call, [&handle] { return cudnnCreate(&handle); }));
  }
  cudnn_check(call, "cudnnSetStream", cudnnSetStream(handle, state.stream()));
  return handle;
}

Descriptor::Descriptor(const Call& call, cudnnBackendDescriptorType_t type)
    : node_(std::make_shared<Node>()) {
  cudnn_check(call, "cudnnBackendCreateDescriptor",
              cudnnBackendCreateDescriptor(type, &node_->raw));
}

void Descriptor::set(const Call& call, cudnnBackendAttributeName_t name,
                     const std::vector<Descriptor>& values) {
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const Descriptor& value : values) {
    raw.push_back(value.get());
    node_->uses.push_back(value.node_);
  }
  set(call, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, raw);
}

// The library fills descriptors that the caller has created.
std::vector<Descriptor> Descriptor::read(const Call& call, cudnnBackendAttributeName_t name,
                                         cudnnBackendDescriptorType_t type,
                                         std::int64_t max) const {
  std::int64_t count = 0;
  describe_check(
      call, "cudnnBackendGetAttribute",
      cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0, &count, nullptr));
  count = std::min(count, max);
  std::vector<Descriptor> all;
  std::vector<cudnnBackendDescriptor_t> raw;
  for (std::int64_t i = 0; i < count; ++i) raw.push_back(all.emplace_back(call, type).get());
  if (count == 0) return all;
  describe_check(call, "cudnnBackendGetAttribute",
                 cudnnBackendGetAttribute(get(), name, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &count,
                                          raw.data()));
  all.erase(all.begin() + std::min<std::int64_t>(count, std::ssize(all)), all.end());
  return all;
}

Descriptor tensor_descriptor(const Call& call, const GraphTensor& tensor) {
  Descriptor d(call, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  const auto number = [&](cudnnBackendAttributeName_t name, std::int64_t value) {
    d.set(call, name, CUDNN_TYPE_INT64, std::vector{value});
  };
  // std::vector<bool> has no address, so this does not use set().
  const auto flag = [&](cudnnBackendAttributeName_t name, bool value) {
    describe_check(call, "cudnnBackendSetAttribute",
                   cudnnBackendSetAttribute(d.get(), name, CUDNN_TYPE_BOOLEAN, 1, &value));
  };
  d.set(call, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{tensor.dtype});
  d.set(call, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, tensor.size);
  d.set(call, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, tensor.stride);
  number(CUDNN_ATTR_TENSOR_UNIQUE_ID, tensor.id);
  number(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  flag(CUDNN_ATTR_TENSOR_IS_VIRTUAL, tensor.within);
  flag(CUDNN_ATTR_TENSOR_IS_BY_VALUE, tensor.by_value);
  d.finalize(call);
  return d;
}

cudnnDataType_t cudnn_type(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32: return CUDNN_DATA_FLOAT;
    case Dtype::f16: return CUDNN_DATA_HALF;
    default: return CUDNN_DATA_BFLOAT16;
  }
}

bool library_aligned(const View& view) {
  return reinterpret_cast<std::uintptr_t>(view.data) % alignment == 0;
}

void append_form(std::vector<std::int64_t>& key, const View& view) {
  key.push_back(static_cast<int>(view.dtype));
  key.insert(key.end(), view.size, view.size + view.rank);
  key.insert(key.end(), view.stride, view.stride + view.rank);
}

}  // namespace sotto
