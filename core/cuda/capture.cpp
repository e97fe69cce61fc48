#include "core/cuda/capture.h"

#include "core/allocator/allocation_pool.h"
#include "core/cuda/cuda_library.h"
#include "core/error.h"
#include "core/tensor.h"

namespace sotto {

namespace {

constinit thread_local Capture* current = nullptr;

}  // namespace

constinit std::atomic<int> Capture::running_ = 0;

// Marks this thread as capturing, with the capture's pool as its allocation pool.
class Capture::Running {
 public:
  explicit Running(Capture& capture) : scope_(capture.pool_.get()) {
    current = &capture;
    ++running_;
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  ~Running() {
    --running_;
    current = nullptr;
  }

 private:
  AllocationPool::Scope scope_;
};

Capture::Capture(Device device) : device_(device) {
  if (device == cpu) throw CannotCapture("the CPU has no launches to save");
  pool_ = std::make_unique<AllocationPool>(allocator(device));
}

Capture::~Capture() = default;

void Capture::add(const std::function<void()>& work) {
  check(!current, "capture: inside of another capture");
  CudaRuntime& runtime = cuda_runtime();
  // New blocks may need the memory of cached ones. Giving these back waits for the device, so that
  // it is done before and not while work is captured.
  allocator(device_).release_cached();
  runtime.begin_capture(device_.index);
  try {
    const Running running(*this);
    work();
  } catch (...) {
    try {
      runtime.end_capture(device_.index);
    } catch (const SystemFailure&) {
      // The first exception says why the capture ended; it is rethrown.
    }
    throw;
  }
  pieces_.push_back(runtime.end_capture(device_.index));
}

void Capture::replay(std::size_t piece) const {
  check(piece < pieces_.size(), "capture: piece {} of {}", piece, pieces_.size());
  check(!current, "capture: a replay inside of a capture");
  pieces_[piece]->replay();
}

bool Capture::here() { return current != nullptr; }

void Capture::keep(const std::shared_ptr<Storage>& storage) {
  if (!current || !storage || storage->device() != current->device_) return;
  if (!current->pool_->holds(storage->data())) current->kept_.insert(storage);
}

void Capture::check_copy(void* to, Device to_device, Device from_device) {
  if (!current) return;
  if (to_device == cpu) throw CannotCapture("a value that the host reads");
  if (from_device == cpu) {
    if (current->pool_->holds(to))
      throw CannotCapture("host values copied into memory of the captured work");
  } else if (to_device != from_device) {
    throw CannotCapture("a copy from one GPU to another");
  }
}

void refuse_capture(const char* reason) {
  if (Capture::any() && Capture::here()) throw CannotCapture(reason);
}

}  // namespace sotto
