// Blocks of an allocator that one user keeps for itself: work that was captured once reads and
// writes the same addresses whenever it is done again (capture.h).
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "core/allocator/allocator.h"

namespace sotto {

// What was allocated in its Scope comes back to it when it is released, and serves nothing else as
// long as the pool lives. The allocator counts such blocks as cached. Thread-safe as the allocator.
class AllocationPool {
 public:
  explicit AllocationPool(Allocator& allocator) : allocator_(allocator) {}
  // Blocks become the allocator's, those in use when they are released.
  ~AllocationPool();
  AllocationPool(const AllocationPool&) = delete;
  AllocationPool& operator=(const AllocationPool&) = delete;

  // Whether it is the address of a block in use that was allocated from the pool.
  bool holds(void* address) const;

  // While it lives, what this thread allocates from the pool's allocator is the pool's: blocks that
  // came back first, then the allocator's. nullptr: nothing is a pool's.
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
  // That this thread allocates from; nullptr where it is none of the allocator's.
  static AllocationPool* of_thread(const Allocator& allocator);

  Allocator& allocator_;
  Allocator::FreeBlocks free_;  // under the allocator's lock
};

}  // namespace sotto
