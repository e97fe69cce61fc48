#include "core/allocator/allocation_pool.h"

namespace sotto {

namespace {

constinit thread_local AllocationPool* current = nullptr;

}  // namespace

AllocationPool::Scope::Scope(AllocationPool* pool) : before_(current) { current = pool; }

AllocationPool::Scope::~Scope() { current = before_; }

AllocationPool* AllocationPool::of_thread(const Allocator& allocator) {
  return current && &current->allocator_ == &allocator ? current : nullptr;
}

AllocationPool::~AllocationPool() { allocator_.dissolve(*this); }

bool AllocationPool::holds(void* address) const { return allocator_.pool_of(address) == this; }

}  // namespace sotto
