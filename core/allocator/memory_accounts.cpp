#include "core/allocator/memory_accounts.h"

#include <algorithm>
#include <functional>
#include <tuple>

namespace sotto {

std::size_t MemoryLabelHash::operator()(const MemoryLabel& label) const {
  std::size_t hash = static_cast<std::size_t>(label.kind) * 2 + (label.backward ? 1 : 0);
  constexpr std::size_t multiplier = 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio
  for (const char* part : {label.op, label.module, label.phase})
    hash = (hash ^ std::hash<const void*>()(part)) * multiplier;
  return hash;
}

void MemoryAccount::add(std::size_t bytes) {
  usage.add(bytes);
  for (MemoryUsage* group : groups) group->add(bytes);
}

void MemoryAccount::remove(std::size_t bytes) {
  usage.remove(bytes);
  for (MemoryUsage* group : groups) group->remove(bytes);
}

void MemoryAccount::move_to(MemoryAccount& to, std::size_t bytes, bool in_use) {
  const auto shift = [&](MemoryUsage& a, MemoryUsage& b) {
    a.allocated -= bytes;
    --a.allocations;
    b.allocated += bytes;
    ++b.allocations;
    if (in_use) {
      a.current -= bytes;
      b.current += bytes;
      b.peak = std::max(b.peak, b.current);
    } else {
      a.freed -= bytes;
      --a.releases;
      b.freed += bytes;
      ++b.releases;
      b.peak = std::max(b.peak, b.current + bytes);
    }
  };
  shift(usage, to.usage);
  for (std::size_t axis = 0; axis < groups.size(); ++axis) {
    if (groups[axis] != to.groups[axis]) shift(*groups[axis], *to.groups[axis]);
  }
}

MemoryAccount& MemoryAccounts::of(const MemoryLabel& label) {
  const auto found = accounts_.find(label);
  if (found != accounts_.end()) return found->second;
  MemoryAccount made{.label = label, .usage = {}, .groups = {}};
  for (std::size_t axis = 0; axis < groups_.size(); ++axis)
    made.groups[axis] = &groups_[axis][part_of(label, static_cast<MemoryAxis>(axis))];
  return accounts_.emplace(label, made).first->second;
}

std::vector<NamedUsage> MemoryAccounts::usage(MemoryAxis axis) const {
  std::vector<NamedUsage> all;
  for (const auto& [name, usage] : groups_[static_cast<std::size_t>(axis)])
    all.push_back({name, usage});
  std::stable_sort(all.begin(), all.end(), [](const NamedUsage& a, const NamedUsage& b) {
    return a.usage.current > b.usage.current;
  });
  return all;
}

std::vector<LabelledUsage> MemoryAccounts::live() const {
  std::vector<LabelledUsage> all;
  for (const auto& [label, account] : accounts_) {
    if (account.usage.current > 0) all.push_back({label, account.usage});
  }
  // Equal sizes are ordered by name, because the order of a hash map is not reproducible.
  const auto key = [](const LabelledUsage& x) {
    return std::tuple(~x.usage.current, x.label.kind, x.label.op_name(),
                      std::string(x.label.module), std::string(x.label.phase));
  };
  std::sort(all.begin(), all.end(),
            [&](const LabelledUsage& a, const LabelledUsage& b) { return key(a) < key(b); });
  return all;
}

void MemoryAccounts::reset_peaks() {
  for (auto& [label, account] : accounts_) account.usage.peak = account.usage.current;
  for (auto& groups : groups_) {
    for (auto& [name, usage] : groups) usage.peak = usage.current;
  }
}

}  // namespace sotto
