// CUDA graphs: a sequence of launches is captured once and replayed by one call, which replaces the
// hundreds of launches that bound small networks.
//
// A graph holds the launches with the addresses and values of their arguments, but no work of the
// host. Noise, which must not repeat, and decisions of the host that depend on values therefore
// throw CannotCapture. It tells the caller to run the work without a graph.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <stdexcept>
#include <vector>

#include "core/device.h"

namespace sotto {

class AllocationPool;
class CapturedLaunches;
class Storage;

// The reason why work cannot be captured, in words: "secret randomness, which must never repeat".
class CannotCapture final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A list of CUDA graphs that share memory; each is replayed by one call. Use it for work that runs
// many times on one set of buffers.
//
// The memory that captured work read and wrote stays valid while the object lives: blocks allocated
// inside belong to its pool, blocks allocated before are kept alive. A tensor allocated inside a
// piece holds the values of the last replay.
//   Capture capture(device);
//   capture.add([&] { copy_into(scale(x, 2), y); });
//   capture.replay(0);  // y = 2 x, for the present values of x
class Capture {
 public:
  // Throws CannotCapture on the CPU, which has no launches.
  explicit Capture(Device device);
  // Blocks of tensors that are still in use return to the allocator when they are released.
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Captures the device work that `work` starts, without running it, as the next piece. Values from
  // the host are copied now and are constants in each replay. Throws CannotCapture for work that
  // cannot be captured, std::invalid_argument inside of another capture, and the exceptions of
  // `work`; no piece is added then.
  void add(const std::function<void()>& work);
  // Runs piece number `piece` (from 0), in order with the device's other work.
  void replay(std::size_t piece) const;

  // True while this thread is capturing.
  static bool here();

  // For core only: true while any thread is capturing, a cheap test before the functions below.
  static bool any() { return running_.load(std::memory_order_relaxed) != 0; }
  // Keeps alive a block that a primitive is about to use.
  static void keep(const std::shared_ptr<Storage>& storage);
  // Checks a copy. Throws CannotCapture if its bytes leave the device.
  static void check_copy(void* to, Device to_device, Device from_device);

 private:
  class Running;
  static std::atomic<int> running_;

  Device device_;
  std::unique_ptr<AllocationPool> pool_;
  std::vector<std::unique_ptr<CapturedLaunches>> pieces_;
  std::set<std::shared_ptr<Storage>>
      kept_;  // allocated before the capture, or for a copy from the host
};

// Throws CannotCapture while this thread is capturing.
void refuse_capture(const char* reason);

}  // namespace sotto
