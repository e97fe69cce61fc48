// The workspace of one GPU's products. A product of several launches, such as one whose sum is
// split, leaves partial sums there for its next launch. Includes no CUDA, because tests/fake_gpu
// uses it.
#pragma once

#include <mutex>

namespace sotto {

// Threads share the GPU's stream, so that another thread's product between two launches of one
// would overwrite its partial sums. A second stream would need a workspace of its own.
class LibraryWorkspace {
 public:
  explicit LibraryWorkspace(void* data) : data_(data) {}
  // Returns enqueue(workspace), which enqueues all launches of one product. Launches of other
  // threads' products come before or after these, never between.
  template <class F>
  auto use(const F& enqueue) {
    const std::lock_guard lock(mutex_);
    return enqueue(data_);
  }

 private:
  std::mutex mutex_;
  void* data_;
};

}  // namespace sotto
