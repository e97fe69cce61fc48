#include "core/allocator/memory_usage.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace sotto {

namespace {

constexpr std::size_t listed = 8;  // owners listed in an error

// Advice that lowers the bytes of each kind, in the order of MemoryKind.
constexpr const char* advice[memory_kinds] = {
    "a model of fewer parameters",
    "freezing parameters",
    "16-bit optimizer state or an optimizer that keeps less",
    "a smaller physical batch, activation checkpointing or 16-bit activations",
    "a smaller physical batch, clipping in two passes or by layers, or 16-bit activations",
    "a smaller per_sample_grad_budget, a smaller physical batch or clipping in two passes",
    "a smaller physical batch or fewer threads",
    "fewer samples in memory or a smaller physical batch",
    "a smaller physical batch",
};

// A tensor of a module whose op is not yet known will be an activation.
MemoryKind expected_kind(const MemoryLabel& label) {
  const bool waits = label.kind == MemoryKind::other && *label.module != '\0';
  return waits ? MemoryKind::activation : label.kind;
}

std::string owner(const MemoryLabel& label) {
  std::string text = name(expected_kind(label));
  if (*label.op != '\0') text += " of " + label.op_name();
  if (*label.module != '\0') text += fmt::format(" in {}", label.module);
  return text;
}

// Sums the usage of labels that have the same text.
std::vector<std::pair<std::string, std::size_t>> owners(const std::vector<LabelledUsage>& live) {
  std::vector<std::pair<std::string, std::size_t>> all;
  for (const auto& [label, usage] : live) {
    const std::string text = owner(label);
    const auto same = [&](const auto& entry) { return entry.first == text; };
    const auto found = std::find_if(all.begin(), all.end(), same);
    if (found == all.end()) {
      all.emplace_back(text, usage.current);
    } else {
      found->second += usage.current;
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  return all;
}

MemoryKind max_kind(const MemoryLabel& wanted, std::size_t bytes,
                    const std::vector<LabelledUsage>& live) {
  std::array<std::size_t, memory_kinds> totals{};
  totals[static_cast<std::size_t>(expected_kind(wanted))] += bytes;
  for (const auto& [label, usage] : live)
    totals[static_cast<std::size_t>(expected_kind(label))] += usage.current;
  const auto largest = std::max_element(totals.begin(), totals.end());
  return static_cast<MemoryKind>(std::distance(totals.begin(), largest));
}

std::string report(std::size_t requested, const MemoryLabel& wanted, std::size_t limit,
                   const MemoryStatistics& statistics, const std::vector<LabelledUsage>& live) {
  const std::string wanted_bytes =
      requested == 0 ? "the device's kernels and libraries" : fmt::format("{} bytes", requested);
  std::string text = fmt::format(
      "allocate: no memory for {}: {} in use, peak {}, {} cached, limit {}; wanted for {}",
      wanted_bytes, statistics.current, statistics.peak, statistics.cached,
      limit == 0 ? "none" : std::to_string(limit), owner(wanted));
  const auto all = owners(live);
  for (std::size_t k = 0; k < std::min(listed, all.size()); ++k)
    text += fmt::format("\n  {:>14} bytes: {}", all[k].second, all[k].first);
  if (all.size() > listed) text += fmt::format("\n  and {} more", all.size() - listed);
  const MemoryKind largest = max_kind(wanted, requested, live);
  return text + fmt::format("\n{} need most: {} would lower them", name(largest),
                            advice[static_cast<std::size_t>(largest)]);
}

}  // namespace

void MemoryUsage::add(std::size_t bytes) {
  current += bytes;
  peak = std::max(peak, current);
  allocated += bytes;
  ++allocations;
}

void MemoryUsage::remove(std::size_t bytes) {
  current -= bytes;
  freed += bytes;
  ++releases;
}

std::string part_of(const MemoryLabel& label, MemoryAxis axis) {
  switch (axis) {
    case MemoryAxis::kind: return name(label.kind);
    case MemoryAxis::op: return label.op_name();
    case MemoryAxis::module: return label.module;
    case MemoryAxis::phase: return label.phase;
  }
  return "";
}

OutOfMemory::OutOfMemory(std::size_t requested, const MemoryLabel& label, std::size_t limit,
                         const MemoryStatistics& statistics, const std::vector<LabelledUsage>& live)
    : SystemFailure(report(requested, label, limit, statistics, live)),
      requested_(requested),
      limit_(limit),
      current_(statistics.current) {}

}  // namespace sotto
