// Blocks of an allocator that are reserved for one user. A CUDA graph needs them: every replay
// reads and writes the addresses of its capture (core/cuda/capture.h).
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "core/allocator/allocator.h"

namespace sotto {

// A block allocated in the pool's Scope returns to the pool when it is released, and is reused only
// from there while the pool lives. The allocator counts such blocks as cached. Thread-safe, like
// the allocator.
class AllocationPool {
 public:
  explicit AllocationPool(Allocator& allocator) : allocator_(allocator) {}
  // Returns the free blocks to the allocator; blocks still in use follow when they are released.
  ~AllocationPool();
  AllocationPool(const AllocationPool&) = delete;
  AllocationPool& operator=(const AllocationPool&) = delete;

  // True if `address` is a block in use that was allocated from the pool.
  bool holds(void* address) const;

  // While it lives, this thread's allocations from the pool's allocator take the pool's free blocks
  // first, then the allocator's, and belong to the pool. nullptr: allocations belong to no pool.
  class Scope {
   public:
    explicit Scope(AllocationPool* pool);
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
    ~Scope();

   private:
    AllocationPool* before_;
  };

 private:
  friend class Allocator;
  // The pool of this thread's innermost Scope; nullptr if it belongs to another allocator.
  static AllocationPool* of_thread(const Allocator& allocator);

  Allocator& allocator_;
  std::map<std::size_t, std::vector<void*>> free_;  // by size; guarded by the allocator's lock
};

}  // namespace sotto
