// cuDNN's descriptors as values. Its graph API knows one kind of object, with attributes that are
// set until it is finalized and read afterwards.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <cudnn_graph.h>

#include "sotto/kernels/cuda/device_state.h"

namespace sotto {

// Throws SystemFailure, naming call, shapes and device, unless the status is success.
void cudnn_check(const Call& call, const char* function, cudnnStatus_t status);

// The library's handle for a device, on its stream. Not for two threads at once.
cudnnHandle_t cudnn_handle(DeviceState& state, const Call& call);

// What was described is right and the library cannot do it.
struct Unsupported {};

class Descriptor {
 public:
  Descriptor(const Call& call, cudnnBackendDescriptorType_t type);

  cudnnBackendDescriptor_t get() const { return raw_.get(); }
  template <class T>
  void set(const Call& call, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
           const std::vector<T>& values) {
    cudnn_check(call, "cudnnBackendSetAttribute",
                cudnnBackendSetAttribute(get(), name, type,
                                         static_cast<std::int64_t>(values.size()), values.data()));
  }
  void set(const Call& call, cudnnBackendAttributeName_t name, const Descriptor& value) {
    set(call, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, std::vector{value.get()});
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
  struct Destroy {
    void operator()(void* raw) const { cudnnBackendDestroyDescriptor(raw); }
  };
  std::unique_ptr<void, Destroy> raw_;
};

}  // namespace sotto
