// The bookkeeping of an allocator: the usage of each label, and of all labels with one kind, op,
// module or phase. For the sources of this folder.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/allocator/memory_usage.h"

namespace sotto {

struct MemoryLabelHash {
  std::size_t operator()(const MemoryLabel& label) const;
};

// The usage of one label, and that of the groups that it belongs to.
struct MemoryAccount {
  MemoryLabel label;
  MemoryUsage usage;
  std::array<MemoryUsage*, memory_axes> groups;

  void add(std::size_t bytes);
  void remove(std::size_t bytes);
  // Moves the totals of one block, in use or already released, to another account.
  void move_to(MemoryAccount& to, std::size_t bytes, bool in_use);
};

// The accounts stay at their addresses. Not thread-safe: the allocator's lock guards them.
class MemoryAccounts {
 public:
  // The account of a label; the first call makes it.
  MemoryAccount& of(const MemoryLabel& label);
  // Allocator::usage() and Allocator::live().
  std::vector<NamedUsage> usage(MemoryAxis axis) const;
  std::vector<LabelledUsage> live() const;
  void reset_peaks();

 private:
  std::unordered_map<MemoryLabel, MemoryAccount, MemoryLabelHash> accounts_;
  std::array<std::map<std::string, MemoryUsage>, memory_axes> groups_;
};

}  // namespace sotto
