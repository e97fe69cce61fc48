// Counters of memory use, for a device or for all blocks whose labels share a kind, op, module or
// phase; and the exception thrown when memory runs out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/allocator/memory_label.h"
#include "core/error.h"

namespace sotto {

// All sizes are bytes of size classes (Allocator::size_class), not of requests.
struct MemoryUsage {
  std::size_t current = 0;       // handed out and not yet returned
  std::size_t peak = 0;          // the largest `current` since the start or reset_peak()
  std::size_t allocated = 0;     // bytes handed out so far
  std::size_t freed = 0;         // bytes returned so far
  std::int64_t allocations = 0;  // blocks handed out so far
  std::int64_t releases = 0;     // blocks returned so far

  // Counts a block that is handed out.
  void add(std::size_t bytes);
  void remove(std::size_t bytes);  // counts its return
};

// The memory of a device: its usage, and the state of the allocator's cache.
struct MemoryStatistics : MemoryUsage {
  std::size_t cached = 0;    // bytes kept for reuse
  std::int64_t reused = 0;   // allocations met from the cache
  std::size_t rounding = 0;  // bytes of `current` beyond the requests, lost to size classes
  // Fragmentation: the most cached bytes, since the start or reset_peak(), at a request that found
  // no cached block of its size class.
  std::size_t unusable = 0;
  // The peak of current + cached since the start or reset_peak(): the memory the machine had to
  // supply.
  std::size_t held_peak = 0;
};

// The field of a label by which usage is grouped.
enum class MemoryAxis { kind, op, module, phase };
inline constexpr int memory_axes = 4;  // the number of MemoryAxis values

// That field in words, such as "conv2d (backward)"; empty if it is not known.
std::string part_of(const MemoryLabel& label, MemoryAxis axis);

// Usage by one field of the label.
struct NamedUsage {
  std::string name;   // the field in words
  MemoryUsage usage;  // of its blocks
};

struct LabelledUsage {
  MemoryLabel label;  // of the blocks
  MemoryUsage usage;  // of its blocks
};

// Thrown when the limit or the machine's memory is exhausted. The text lists the largest owners and
// the settings that lower the largest kind.
class OutOfMemory final : public SystemFailure {
 public:
  // `live`: usage by label, the largest first (Allocator::live()).
  OutOfMemory(std::size_t requested, const MemoryLabel& label, std::size_t limit,
              const MemoryStatistics& statistics, const std::vector<LabelledUsage>& live);
  std::size_t requested() const { return requested_; }  // bytes
  std::size_t limit() const { return limit_; }          // bytes; 0: no limit was set
  std::size_t current() const { return current_; }      // bytes in use

 private:
  std::size_t requested_, limit_, current_;
};

}  // namespace sotto
