// Memory for tensors: cached by size class, accounted by owner, and limited.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/allocator/memory_usage.h"
#include "core/device.h"

namespace sotto {

class AllocationPool;

// A source of raw memory; the CUDA backend supplies one for each GPU.
class RawMemory {
 public:
  virtual ~RawMemory() = default;
  virtual void* allocate(std::size_t bytes) = 0;  // nullptr: no memory left
  virtual void release(void* address) noexcept = 0;
};

// Receives every block that an allocator hands out and gets back. It is called under the
// allocator's lock, by any thread, and must not call the allocator.
class AllocationObserver {
 public:
  // A block that was handed out or returned.
  struct Block {
    std::uint64_t serial;  // of the allocation: 1, 2, ...
    std::size_t bytes;     // the size class of the request
    std::size_t current;   // in use on the device after this call
    MemoryLabel label;     // of the owner
  };

  virtual ~AllocationObserver() = default;
  // Returns whether a request may be met; false makes it fail like an exhausted device.
  virtual bool allows(std::size_t /*bytes*/) { return true; }
  // Called for every allocation, and when the observer is added, for every block in use.
  virtual void allocated(const Block& block) = 0;
  // Called for every block that is returned.
  virtual void released(const Block& block) = 0;
  // The owner of a block, in use or already released, became known or changed.
  virtual void relabelled(std::uint64_t /*serial*/, const MemoryLabel& /*label*/) {}
};

// A caching allocator of one device: it hands out blocks aligned to at least 64 bytes and keeps
// released ones for reuse, in size classes that waste at most an eighth. Thread-safe.
// `allocator(cpu).set_limit(bytes)` limits a device, `allocator(cpu).usage(MemoryAxis::kind)` shows
// its owners.
class Allocator {
 public:
  // `source` supplies blocks and must outlive the allocator.
  explicit Allocator(RawMemory& source);
  ~Allocator();
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // Returns nullptr for 0 bytes. When the limit or the machine's memory would be exceeded, cached
  // blocks are given back first; if that is not enough, it throws OutOfMemory, with only the cache
  // changed.
  void* allocate(std::size_t bytes, const MemoryLabel& label = memory_label());
  // Returns a block that allocate() gave; nullptr is ignored.
  void release(void* address) noexcept;
  // Throws as allocate(bytes) would, but allocates nothing. Call it before work that is exempt from
  // the limit (LimitExemption) begins.
  void check_room(std::size_t bytes);

  // Usage of the device, and of the cache.
  MemoryStatistics statistics() const;
  // Usage summed by kind, op, module or phase: the largest `current` first, then by name. A group's
  // peak is that of its own bytes.
  std::vector<NamedUsage> usage(MemoryAxis axis) const;
  // Usage of each label that has bytes in use, the largest first.
  std::vector<LabelledUsage> live() const;
  // Resets the peaks of the device and of every label.
  void reset_peak();
  // Limits the bytes held at once, in use or cached; 0 means no limit.
  void set_limit(std::size_t bytes);
  // The limit in bytes; 0: none.
  std::size_t limit() const;
  // Returns every cached block to the system, except those of pools.
  void release_cached();

  // Changes the label of a block in use; ignores other addresses.
  void relabel(void* address, const MemoryLabel& label);
  // The label of a block in use; a default label for other addresses.
  MemoryLabel label_of(void* address) const;
  // Labels memory whose op was not yet known when it was allocated. Blocks that this thread
  // allocated without an op, as tensors or workspace, become the op's: tensors still in use as its
  // activations, released ones as its workspace. `phase` is set where the label has none.
  void name_waiting(const char* op, const char* phase);
  // Leaves the waiting blocks of this thread without an op.
  void forget_waiting();

  // Adds an observer; it must live until it is removed.
  void add_watch(AllocationObserver& watch);
  void remove_watch(AllocationObserver& watch);  // if it is there

  // The bytes taken for a request of `bytes`.
  static std::size_t size_class(std::size_t bytes);

 private:
  friend class AllocationPool;
  struct State;
  const AllocationPool* pool_of(void* address) const;
  void dissolve(AllocationPool& pool) noexcept;

  std::unique_ptr<State> state_;
};

// The allocator of a device. Throws std::invalid_argument if the device does not exist.
Allocator& allocator(Device device);

}  // namespace sotto
