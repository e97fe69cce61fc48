#include "sotto/core/allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "sotto/core/error.h"

namespace sotto {

namespace {

constexpr std::size_t alignment = 64;

class HostMemory final : public RawMemory {
 public:
  void* allocate(std::size_t bytes) override { return std::aligned_alloc(alignment, bytes); }
  void release(void* address) noexcept override { std::free(address); }
};

}  // namespace

std::size_t Allocator::size_class(std::size_t bytes) {
  if (bytes <= 8 * alignment) return (bytes + alignment - 1) / alignment * alignment;
  // Eight classes between powers of two.
  const std::size_t step = std::bit_floor(bytes - 1) / 8;
  return (bytes + step - 1) / step * step;
}

void* Allocator::take_cached(std::size_t bytes) {
  const auto found = free_.find(bytes);
  if (found == free_.end() || found->second.empty()) return nullptr;
  void* address = found->second.back();
  found->second.pop_back();
  statistics_.cached -= bytes;
  ++statistics_.reused;
  return address;
}

void* Allocator::allocate(std::size_t bytes) {
  const std::size_t size = size_class(bytes);
  if (size == 0) return nullptr;
  std::unique_lock lock(mutex_);
  const bool allowed = limit_ == 0 || statistics_.current + size <= limit_;
  void* address = allowed ? take_cached(size) : nullptr;
  if (allowed && !address) {
    address = source_.allocate(size);
    if (!address && statistics_.cached > 0) {
      lock.unlock();
      release_cached();
      lock.lock();
      address = source_.allocate(size);
    }
  }
  if (!address) {
    throw OutOfMemory(
        fmt::format("allocate: no memory for {} bytes: {} in use, peak {}, {} cached, limit {}",
                    bytes, statistics_.current, statistics_.peak, statistics_.cached,
                    limit_ == 0 ? "none" : std::to_string(limit_)));
  }
  statistics_.current += size;
  statistics_.peak = std::max(statistics_.peak, statistics_.current);
  ++statistics_.allocations;
  return address;
}

void Allocator::release(void* address, std::size_t bytes) noexcept {
  if (!address) return;
  const std::size_t size = size_class(bytes);
  const std::lock_guard lock(mutex_);
  statistics_.current -= size;
  statistics_.cached += size;
  free_[size].push_back(address);
}

MemoryStatistics Allocator::statistics() const {
  const std::lock_guard lock(mutex_);
  return statistics_;
}

void Allocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  statistics_.peak = statistics_.current;
}

void Allocator::set_limit(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
}

std::size_t Allocator::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

void Allocator::release_cached() {
  const std::lock_guard lock(mutex_);
  for (auto& [size, blocks] : free_) {
    for (void* block : blocks) source_.release(block);
    blocks.clear();
  }
  statistics_.cached = 0;
}

Allocator& allocator(Device device) {
  check(device == cpu, "allocator: no device {} of kind {}", device.index,
        device.kind == DeviceKind::cpu ? "cpu" : "cuda");
  static HostMemory host;
  // Never destroyed: tensors with static lifetime may outlive any order of destruction.
  static auto* const instance = new Allocator(host);
  return *instance;
}

}  // namespace sotto
