#include "core/cuda/upload.h"

#include <utility>

#include "core/cuda/capture.h"
#include "core/devices.h"

namespace sotto {

Upload::Upload(Device device) : index_(device.index) {
  check(device.kind == DeviceKind::cuda, "upload: to {}, which is no GPU", name(device));
  pinned_allocator(index_);
}

Upload::~Upload() {
  try {
    // The device waits for the copy before the tensor's memory can be reused.
    if (on_its_way_) arrive();
    if (sent_) cuda_runtime().synchronize(*sent_);
  } catch (const SystemFailure&) {
    // The device failed: the next call on it reports the error.
  }
  pinned_allocator(index_).release(room_);
}

void Upload::begin(const Shape& shape, Dtype dtype) {
  refuse_capture("an asynchronous upload of a batch");
  // The device waits for the copy before the tensor's memory can be reused.
  if (on_its_way_) arrive();
  tensor_ = {};
  tensor_ = Tensor::empty(shape, dtype, {DeviceKind::cuda, index_});
  after_ = cuda_runtime().record(index_);
}

std::byte* Upload::room() {
  if (sent_) cuda_runtime().synchronize(*std::exchange(sent_, nullptr));
  if (tensor_.bytes() > bytes_) {
    Allocator& memory = pinned_allocator(index_);
    bytes_ = 0;
    memory.release(std::exchange(room_, nullptr));
    room_ = memory.allocate(tensor_.bytes());
    bytes_ = tensor_.bytes();
  }
  return static_cast<std::byte*>(room_);
}

void Upload::send() {
  if (tensor_.numel() == 0) return;
  sent_ = cuda_runtime().copy_beside(index_, tensor_.view().data, room_, tensor_.bytes(), *after_);
  on_its_way_ = true;
}

Tensor Upload::arrive() {
  check(tensor_.defined() && (on_its_way_ || tensor_.numel() == 0), "upload: nothing was sent");
  if (std::exchange(on_its_way_, false)) cuda_runtime().wait(index_, *sent_);
  return std::exchange(tensor_, {});
}

}  // namespace sotto
