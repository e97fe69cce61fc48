// cuDNN's descriptors as values. Its graph API has one kind of object, whose attributes are set
// until it is finalized and read afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <cudnn_graph.h>

#include "kernels/cuda/runtime/device_state.h"
#include "kernels/cuda/runtime/library_room.h"

namespace sotto {

// Throws SystemFailure, naming the call, its shapes and the device, unless the status is success.
void cudnn_check(const Call& call, const char* function, cudnnStatus_t status);

// The library's handle for a device, on its stream. Not thread-safe.
cudnnHandle_t cudnn_handle(DeviceState& state, const Call& call);

// Thrown for a description that the library does not support, or calls wrong.
struct Unsupported {
  std::string reason;  // the library's own text
  bool wrong = false;
};
// Throws Unsupported, or SystemFailure for another reason, unless the status is success.
void describe_check(const Call& call, const char* function, cudnnStatus_t status);

// f(), once more where the library may have found no memory.
template <class F>
cudnnStatus_t cudnn_with_room(const Call& call, const F& f) {
  const auto failed = [](cudnnStatus_t status) {
    return status == CUDNN_STATUS_INTERNAL_ERROR ||
           CUDNN_STATUS_CATEGORY(static_cast<int>(status)) ==
               static_cast<int>(CUDNN_STATUS_EXECUTION_FAILED);
  };
  return library_with_room(call.device, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED,
                           failed, f);
}

// A handle to a shared descriptor, which keeps alive the descriptors that were set on it.
class Descriptor {
 public:
  Descriptor(const Call& call, cudnnBackendDescriptorType_t type);

  cudnnBackendDescriptor_t get() const { return node_->raw; }
  template <class T>
  void set(const Call& call, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           const std::vector<T>& values) {
    describe_check(call, "cudnnBackendSetAttribute",
                   cudnnBackendSetAttribute(
                       get(), name, type, static_cast<std::int64_t>(values.size()), values.data()));
  }
  void set(const Call& call, cudnnBackendAttributeName_t name,
           const std::vector<Descriptor>& values);
  void set(const Call& call, cudnnBackendAttributeName_t name, const Descriptor& value) {
    set(call, name, std::vector{value});
  }
  // The first `max` values of an attribute, or fewer if it has fewer.
  template <class T>
  std::vector<T> read(const Call& call, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, std::int64_t max) const {
    std::vector<T> values(static_cast<std::size_t>(max));
    std::int64_t count = 0;
    describe_check(call, "cudnnBackendGetAttribute",
                   cudnnBackendGetAttribute(get(), name, type, max, &count, values.data()));
    values.resize(static_cast<std::size_t>(count < max ? count : max));
    return values;
  }
  // The first `max` descriptors of another type that this one holds.
  std::vector<Descriptor> read(const Call& call, cudnnBackendAttributeName_t name,
                               cudnnBackendDescriptorType_t type, std::int64_t max) const;
  void finalize(const Call& call) {
    describe_check(call, "cudnnBackendFinalize", cudnnBackendFinalize(get()));
  }
  // Finalizes the descriptor; returns false if the library does not support it. Throws OutOfMemory.
  bool can_finalize(const Call& call) {
    const auto finalize = [this] { return cudnnBackendFinalize(get()); };
    return cudnn_with_room(call, finalize) == CUDNN_STATUS_SUCCESS;
  }

 private:
  struct Node {
    Node() = default;
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;
    ~Node() {
      if (raw) cudnnBackendDestroyDescriptor(raw);
    }

    cudnnBackendDescriptor_t raw = nullptr;
    std::vector<std::shared_ptr<Node>> uses;
  };
  std::shared_ptr<Node> node_;
};

// A tensor of a graph, without its address.
struct GraphTensor {
  std::int64_t id;
  cudnnDataType_t dtype;
  std::vector<std::int64_t> size, stride;
  bool within = false;    // virtual: not stored, but passed between operations
  bool by_value = false;  // one number, on the host
};
Descriptor tensor_descriptor(const Call& call, const GraphTensor& tensor);

// cuDNN's type for f32, f16 or bf16.
cudnnDataType_t cudnn_type(Dtype dtype);

// True if an address has the alignment for which graphs are described.
bool library_aligned(const View& view);

// Appends a view's type, sizes and strides to the key of a plan.
void append_form(std::vector<std::int64_t>& key, const View& view);

}  // namespace sotto
