// Work of a GPU that is captured once and done again by one call each time: a CUDA graph, in place
// of the hundreds of launches that bound small networks.
//
// What is captured is the launches, with the addresses and numbers they were given, and nothing
// that the host does. So whatever must not come again (noise), and whatever the host decides by
// values, is refused while work is captured: that is no error of the caller, but a reason to do the
// work in the ordinary way.
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

// Why work cannot be captured, in words: "secret randomness, which must never come again".
class CannotCapture final : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Pieces of work that share their memory, each done by one call.
//
// What they read and wrote while they were captured stays where it is as long as this lives: memory
// that they allocated is theirs alone, and what was allocated before is kept. A tensor that was
// allocated in a piece holds what the last replay wrote.
class Capture {
 public:
  // Throws CannotCapture where there are no launches: on the CPU.
  explicit Capture(Device device);
  // The memory of tensors that are still in use becomes theirs.
  ~Capture();
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;

  // Captures what `work` asks of the device, without doing it, as the next piece. Values from the
  // host are brought once, now, and are constants for each replay. Throws CannotCapture for what
  // can only be done in the ordinary way, std::invalid_argument within a piece, and what `work`
  // throws; nothing is added then.
  void add(const std::function<void()>& work);
  // Does a piece, counted from 0, in order with the device's other work.
  void replay(std::size_t piece) const;

  // Whether this thread is capturing.
  static bool here();

  // For core alone. Whether any thread is capturing: a cheap question before the others.
  static bool any() { return running_.load(std::memory_order_relaxed) != 0; }
  // Of memory that a primitive is about to be shown.
  static void keep(const std::shared_ptr<Storage>& storage);
  // Of bytes that are about to be copied. Throws CannotCapture where they leave the device.
  static void check_copy(void* to, Device to_device, Device from_device);

 private:
  class Running;
  static std::atomic<int> running_;

  Device device_;
  std::unique_ptr<AllocationPool> pool_;
  std::vector<std::unique_ptr<CapturedLaunches>> pieces_;
  std::set<std::shared_ptr<Storage>> kept_;  // allocated before, or on the host's behalf
};

// Throws CannotCapture while this thread is capturing.
void refuse_capture(const char* reason);

}  // namespace sotto
