// Memory for tensors: cached by size class, counted by owner, and limited.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/allocator/memory_usage.h"
#include "core/device.h"

namespace sotto {

class AllocationPool;

// A source of raw memory; the CUDA backend supplies one for each GPU.
class RawMemory {
 public:
  virtual ~RawMemory() = default;
  virtual void* allocate(std::size_t bytes) = 0;  // nullptr when there is none
  virtual void release(void* address) noexcept = 0;
};

// Sees what an allocator hands out and takes back. Called under the allocator's lock, by any
// thread: it must not call the allocator.
class AllocationObserver {
 public:
  struct Block {
    std::uint64_t serial;  // of the allocation: 1, 2, ...
    std::size_t bytes;     // really taken
    std::size_t current;   // in use on the device afterwards
    MemoryLabel label;
  };

  virtual ~AllocationObserver() = default;
  // Whether the request may be met; false is as if there were no more memory.
  virtual bool allows(std::size_t /*bytes*/) { return true; }
  // Also called, at the start of the watch, for every block in use.
  virtual void allocated(const Block& block) = 0;
  virtual void released(const Block& block) = 0;
  // The block, in use or already released, turned out to be someone else's.
  virtual void relabelled(std::uint64_t /*serial*/, const MemoryLabel& /*label*/) {}
};

// Hands out blocks of at least 64-byte alignment and keeps returned ones for reuse, in size
// classes that waste at most an eighth. Thread-safe.
class Allocator {
 public:
  explicit Allocator(RawMemory& source) : source_(source) {}
  ~Allocator() { release_cached(); }
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // nullptr for no bytes. Throws OutOfMemory, with nothing changed but the cache, when the limit
  // would be passed or the machine has no more, after what is cached was given back.
  void* allocate(std::size_t bytes, const MemoryLabel& label = memory_label());
  void release(void* address) noexcept;
  // Throws as allocate() does, but takes nothing: whether work that will need so many bytes, but
  // is exempt from the limit (LimitExemption), may begin.
  void check_room(std::size_t bytes);

  MemoryStatistics statistics() const;
  // By kind, op, module or phase: the largest current first, then by name. A group's peak is that
  // of its own bytes.
  std::vector<NamedUsage> usage(MemoryAxis axis) const;
  // By whole labels, those in use: the largest first.
  std::vector<LabelledUsage> live() const;
  // Of all peaks.
  void reset_peak();
  // Bytes that may be held at once, in use or cached; 0 means no limit.
  void set_limit(std::size_t bytes);
  std::size_t limit() const;
  // Gives every cached block back to the system.
  void release_cached();

  // The label of a block in use; nothing happens for another address.
  void relabel(void* address, const MemoryLabel& label);
  // The label of a block in use; the default for another address.
  MemoryLabel label_of(void* address) const;
  // An operation's memory is handed out before the operation is known: tensors and workspace that
  // this thread allocated without naming an op wait for one. These blocks become the op's: tensors
  // in use are its activations, those that are not any more its workspace. `phase` is for those
  // that have none.
  void name_waiting(const char* op, const char* phase);
  // They are no operation's.
  void forget_waiting();

  void add_watch(AllocationObserver& watch);
  void remove_watch(AllocationObserver& watch);

  // The size that is really taken for a request of `bytes`.
  static std::size_t size_class(std::size_t bytes);

 private:
  friend class AllocationPool;
  using FreeBlocks = std::map<std::size_t, std::vector<void*>>;
  struct Account {
    MemoryLabel label;
    MemoryUsage usage;
    std::array<MemoryUsage*, memory_axes> groups;
  };
  struct Block {
    std::size_t size;
    std::size_t requested;
    std::uint64_t serial;
    Account* account;
    AllocationPool* pool;  // that it goes back to; nullptr: anybody's
  };
  struct Waiting {
    void* address;
    std::uint64_t serial;
    std::size_t size;
    Account* account;
  };
  struct LabelHash {
    std::size_t operator()(const MemoryLabel& label) const;
  };

  bool allowed(std::size_t size) const;
  void* take_cached(FreeBlocks& free, std::size_t size);
  void* take(AllocationPool* pool, std::size_t size);
  const AllocationPool* pool_of(void* address) const;
  void dissolve(AllocationPool& pool) noexcept;
  void cache(FreeBlocks& free, std::size_t size, void* address) noexcept;
  void* take_new(std::size_t size);
  void give_back_cached(std::size_t bytes);
  [[noreturn]] void refuse(std::size_t bytes, const MemoryLabel& label) const;
  void hand_out(void* address, const Block& block);
  Account& account_of(const MemoryLabel& label);
  std::vector<LabelledUsage> live_labels() const;
  void move(Block& block, const MemoryLabel& label);
  void stop_waiting(std::uint64_t serial);
  static void move_totals(Account& from, Account& to, std::size_t size, bool in_use);

  RawMemory& source_;
  mutable std::mutex mutex_;
  FreeBlocks free_;
  MemoryStatistics statistics_;
  std::size_t requested_ = 0;  // of what is in use
  std::size_t limit_ = 0;
  std::uint64_t serial_ = 0;
  std::unordered_map<void*, Block> blocks_;  // in use
  std::unordered_map<MemoryLabel, Account, LabelHash> accounts_;
  std::array<std::map<std::string, MemoryUsage>, memory_axes> groups_;
  std::unordered_map<const void*, std::vector<Waiting>> waiting_;
  std::vector<AllocationObserver*> watches_;
};

// The allocator of a device. Throws std::invalid_argument when the device is not there.
Allocator& allocator(Device device);

}  // namespace sotto
