// Memory for tensors: cached by size class, counted, and limited.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <vector>

#include "sotto/core/device.h"

namespace sotto {

struct MemoryStatistics {
  std::size_t current = 0;       // bytes handed out and not yet returned
  std::size_t peak = 0;          // the largest `current` since the start or reset_peak()
  std::size_t cached = 0;        // bytes kept for reuse
  std::int64_t allocations = 0;  // blocks handed out so far
  std::int64_t reused = 0;       // of these, blocks that came from the cache
};

// A source of raw memory; the CUDA backend supplies one for each GPU.
class RawMemory {
 public:
  virtual ~RawMemory() = default;
  virtual void* allocate(std::size_t bytes) = 0;  // nullptr when there is none
  virtual void release(void* address) noexcept = 0;
};

// Hands out blocks of at least 64-byte alignment and keeps returned ones for reuse, in size
// classes that waste at most an eighth. Thread-safe.
class Allocator {
 public:
  explicit Allocator(RawMemory& source) : source_(source) {}
  ~Allocator() { release_cached(); }
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // Throws std::bad_alloc's relative SystemFailure, with what is in use, when the limit would be
  // passed or the machine has no more.
  void* allocate(std::size_t bytes);
  void release(void* address, std::size_t bytes) noexcept;

  MemoryStatistics statistics() const;
  void reset_peak();
  // Bytes that may be in use at once; 0 means no limit.
  void set_limit(std::size_t bytes);
  std::size_t limit() const;
  // Gives every cached block back to the system.
  void release_cached();

  // The size that is really taken for a request of `bytes`.
  static std::size_t size_class(std::size_t bytes);

 private:
  void* take_cached(std::size_t bytes);

  RawMemory& source_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;
  MemoryStatistics statistics_;
  std::size_t limit_ = 0;
};

// The allocator of a device. Throws std::invalid_argument when the device is not there.
Allocator& allocator(Device device);

}  // namespace sotto
