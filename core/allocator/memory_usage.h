// Bytes counted: of a device, of whoever shares a label's kind, op, module or phase; and what is
// thrown when there are no more.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/allocator/memory_label.h"
#include "core/error.h"

namespace sotto {

// Bytes are those really taken, of size classes.
struct MemoryUsage {
  std::size_t current = 0;       // handed out and not yet returned
  std::size_t peak = 0;          // the largest `current` since the start or reset_peak()
  std::size_t allocated = 0;     // bytes handed out so far, all together
  std::size_t freed = 0;         // bytes returned so far
  std::int64_t allocations = 0;  // blocks handed out so far
  std::int64_t releases = 0;     // blocks returned so far

  void add(std::size_t bytes);
  void remove(std::size_t bytes);
};

struct MemoryStatistics : MemoryUsage {
  std::size_t cached = 0;    // bytes kept for reuse
  std::int64_t reused = 0;   // allocations that came from there
  std::size_t rounding = 0;  // of `current`, bytes beyond what was asked for: lost to size classes
  // The most cached bytes, since the start or reset_peak(), among which a request that needed other
  // memory found no block of its class.
  std::size_t unusable = 0;
  // The largest current + cached since then: what the machine had to give.
  std::size_t held_peak = 0;
};

// The part of a label by which usage is summed.
enum class MemoryAxis { kind, op, module, phase };
inline constexpr int memory_axes = 4;

// That part in words: "conv2d (backward)"; empty where it is not known.
std::string part_of(const MemoryLabel& label, MemoryAxis axis);

struct NamedUsage {
  std::string name;
  MemoryUsage usage;
};

struct LabelledUsage {
  MemoryLabel label;
  MemoryUsage usage;
};

// No memory within the limit, or none on the machine. The text says what was in use, the largest
// first, and which settings need less of it.
class OutOfMemory final : public SystemFailure {
 public:
  // `live`: what is in use, the largest first.
  OutOfMemory(std::size_t requested, const MemoryLabel& label, std::size_t limit,
              const MemoryStatistics& statistics, const std::vector<LabelledUsage>& live);
  std::size_t requested() const { return requested_; }  // bytes
  std::size_t limit() const { return limit_; }          // bytes; 0: the machine's
  std::size_t current() const { return current_; }      // bytes in use

 private:
  std::size_t requested_, limit_, current_;
};

}  // namespace sotto
