// cuDNN's descriptors as values. Its graph API knows one kind of object, with attributes that are
// set until it is finalized and read afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <cudnn_graph.h>

#include "kernels/cuda/runtime/device_state.h"

namespace sotto {

// Throws SystemFailure, naming call, shapes and device, unless the status is success.
void cudnn_check(const Call& call, const char* function, cudnnStatus_t status);

// The library's handle for a device, on its stream. Not for two threads at once.
cudnnHandle_t cudnn_handle(DeviceState& state, const Call& call);

// What was described is right and the library cannot do it.
struct Unsupported {
  std::string reason;  // its own
};

// A handle: copies name one object, which lives as long as what was set to it.
class Descriptor {
 public:
  Descriptor(const Call& call, cudnnBackendDescriptorType_t type);

  cudnnBackendDescriptor_t get() const { return node_->raw; }
  template <class T>
  void set(const Call& call, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           const std::vector<T>& values) {
    cudnn_check(call, "cudnnBackendSetAttribute",
                cudnnBackendSetAttribute(get(), name, type,
                                         static_cast<std::int64_t>(values.size()), values.data()));
  }
  void set(const Call& call, cudnnBackendAttributeName_t name,
           const std::vector<Descriptor>& values);
  void set(const Call& call, cudnnBackendAttributeName_t name, const Descriptor& value) {
    set(call, name, std::vector{value});
  }
  // Up to `most` values, fewer if there are fewer.
  template <class T>
  std::vector<T> read(const Call& call, cudnnBackendAttributeName_t name,
                      cudnnBackendAttributeType_t type, std::int64_t most) const {
    std::vector<T> values(static_cast<std::size_t>(most));
    std::int64_t count = 0;
    cudnn_check(call, "cudnnBackendGetAttribute",
                cudnnBackendGetAttribute(get(), name, type, most, &count, values.data()));
    values.resize(static_cast<std::size_t>(count < most ? count : most));
    return values;
  }
  // Descriptors of another type that this one holds, all or as many as are wanted.
  std::vector<Descriptor> read(const Call& call, cudnnBackendAttributeName_t name,
                               cudnnBackendDescriptorType_t type, std::int64_t most) const;
  // Throws Unsupported, and SystemFailure for what is not right.
  void finalize(const Call& call);
  // Whether the library supports what was described.
  bool can_finalize() { return cudnnBackendFinalize(get()) == CUDNN_STATUS_SUCCESS; }

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

// A tensor of a graph, without an address.
struct GraphTensor {
  std::int64_t id;
  cudnnDataType_t dtype;
  std::vector<std::int64_t> size, stride;
  bool within = false;    // lies in no memory: made by one operation and read by others
  bool by_value = false;  // one number, given by the host
};
Descriptor tensor_descriptor(const Call& call, const GraphTensor& tensor);

// Of f32, f16 or bf16.
cudnnDataType_t cudnn_type(Dtype dtype);

// Whether an address is one that graphs are described for.
bool library_aligned(const View& view);

// Appends a view's type, sizes and strides, as a part of a key that plans are kept by.
void append_form(std::vector<std::int64_t>& key, const View& view);

}  // namespace sotto
