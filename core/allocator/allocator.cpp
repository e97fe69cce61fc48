#include "core/allocator/allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <new>
#include <tuple>
#include <utility>

#include "core/allocator/allocation_pool.h"
#include "core/allocator/limit_exemption.h"
#include "core/cuda/cuda_library.h"
#include "core/error.h"

namespace sotto {

namespace {

constexpr std::size_t alignment = 64;
// Blocks of one thread that wait for the name of their op; beyond it the older half stays unnamed.
constexpr std::size_t max_waiting = 4096;

class HostMemory final : public RawMemory {
 public:
  void* allocate(std::size_t bytes) override { return std::aligned_alloc(alignment, bytes); }
  void release(void* address) noexcept override { std::free(address); }
};

bool waits(const MemoryLabel& label) {
  const bool fits = label.kind == MemoryKind::other || label.kind == MemoryKind::workspace;
  return fits && *label.op == '\0';
}

}  // namespace

std::size_t Allocator::size_class(std::size_t bytes) {
  if (bytes <= 8 * alignment) return (bytes + alignment - 1) / alignment * alignment;
  // Eight size classes between consecutive powers of two.
  const std::size_t step = std::bit_floor(bytes - 1) / 8;
  // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): bytes is above 8 alignments here.
  return (bytes + step - 1) / step * step;
}

std::size_t Allocator::LabelHash::operator()(const MemoryLabel& label) const {
  std::size_t hash = static_cast<std::size_t>(label.kind) * 2 + (label.backward ? 1 : 0);
  constexpr std::size_t multiplier = 0x9E3779B97F4A7C15;  // 2^64 over the golden ratio
  for (const char* part : {label.op, label.module, label.phase})
    hash = (hash ^ std::hash<const void*>()(part)) * multiplier;
  return hash;
}

Allocator::Account& Allocator::account_of(const MemoryLabel& label) {
  const auto found = accounts_.find(label);
  if (found != accounts_.end()) return found->second;
  Account made{.label = label, .usage = {}, .groups = {}};
  for (std::size_t axis = 0; axis < groups_.size(); ++axis)
    made.groups[axis] = &groups_[axis][part_of(label, static_cast<MemoryAxis>(axis))];
  return accounts_.emplace(label, made).first->second;
}

bool Allocator::allowed(std::size_t size) const {
  if (LimitExemption::holds()) return true;
  const bool within = limit_ == 0 || statistics_.current + size <= limit_;
  return within && std::all_of(watches_.begin(), watches_.end(),
                               [&](AllocationObserver* watch) { return watch->allows(size); });
}

void* Allocator::take_cached(FreeBlocks& free, std::size_t size) {
  const auto found = free.find(size);
  if (found == free.end() || found->second.empty()) return nullptr;
  void* address = found->second.back();
  found->second.pop_back();
  statistics_.cached -= size;
  ++statistics_.reused;
  return address;
}

void* Allocator::take_new(std::size_t size) {
  statistics_.unusable = std::max(statistics_.unusable, statistics_.cached);
  const std::size_t held = statistics_.current + statistics_.cached + size;
  if (limit_ != 0 && held > limit_) give_back_cached(held - limit_);
  // Only blocks of pools are still cached here; they cannot be given back.
  const bool room = limit_ == 0 || statistics_.current + statistics_.cached + size <= limit_;
  if (!room && !LimitExemption::holds()) return nullptr;
  void* address = source_.allocate(size);
  if (address || statistics_.cached == 0) return address;
  give_back_cached(statistics_.cached);
  return source_.allocate(size);
}

void* Allocator::take(AllocationPool* pool, std::size_t size) {
  void* address = pool ? take_cached(pool->free_, size) : nullptr;
  if (!address) address = take_cached(free_, size);
  return address ? address : take_new(size);
}

// Returns at least `bytes` cached bytes to the system, the largest blocks first.
void Allocator::give_back_cached(std::size_t bytes) {
  std::size_t given = 0;
  for (auto at = free_.rbegin(); at != free_.rend() && given < bytes; ++at) {
    auto& [size, blocks] = *at;
    for (; !blocks.empty() && given < bytes; blocks.pop_back(), given += size)
      source_.release(blocks.back());
  }
  statistics_.cached -= given;
}

void* Allocator::allocate(std::size_t bytes, const MemoryLabel& label) {
  const std::size_t size = size_class(bytes);
  if (size == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  void* address = nullptr;
  if (allowed(size)) {
    Account& account = account_of(label);
    AllocationPool* const pool = AllocationPool::of_thread(*this);
    address = take(pool, size);
    if (address) hand_out(address, {size, bytes, serial_ + 1, &account, pool});
  }
  if (!address) refuse(bytes, label);
  return address;
}

// Records the block; returns it to the source if there is no memory for the record.
void Allocator::hand_out(void* address, const Block& block) {
  try {
    if (waits(block.account->label)) {
      std::vector<Waiting>& waiting = waiting_[memory_owner()];
      if (waiting.size() == max_waiting)
        waiting.erase(waiting.begin(), waiting.begin() + max_waiting / 2);
      waiting.push_back({address, block.serial, block.size, block.account});
    }
    blocks_.emplace(address, block);
  } catch (const std::bad_alloc&) {
    source_.release(address);
    throw;
  }
  ++serial_;
  requested_ += block.requested;
  statistics_.add(block.size);
  statistics_.held_peak = std::max(statistics_.held_peak, statistics_.current + statistics_.cached);
  block.account->usage.add(block.size);
  for (MemoryUsage* group : block.account->groups) group->add(block.size);
  for (AllocationObserver* watch : watches_)
    watch->allocated({block.serial, block.size, statistics_.current, block.account->label});
}

void Allocator::release(void* address) noexcept {
  if (!address) return;
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  const Block block = found->second;
  blocks_.erase(found);
  requested_ -= block.requested;
  statistics_.remove(block.size);
  block.account->usage.remove(block.size);
  for (MemoryUsage* group : block.account->groups) group->remove(block.size);
  statistics_.cached += block.size;
  cache(block.pool ? block.pool->free_ : free_, block.size, address);
  for (AllocationObserver* watch : watches_)
    watch->released({block.serial, block.size, statistics_.current, block.account->label});
}

const AllocationPool* Allocator::pool_of(void* address) const {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  return found == blocks_.end() ? nullptr : found->second.pool;
}

void Allocator::dissolve(AllocationPool& pool) noexcept {
  const std::lock_guard lock(mutex_);
  for (auto& [address, block] : blocks_) {
    if (block.pool == &pool) block.pool = nullptr;
  }
  for (const auto& [size, blocks] : pool.free_) {
    for (void* address : blocks) cache(free_, size, address);
  }
}

// Adds a block, already counted as cached, to a free list.
void Allocator::cache(FreeBlocks& free, std::size_t size, void* address) noexcept {
  try {
    free[size].push_back(address);
  } catch (const std::bad_alloc&) {
    statistics_.cached -= size;
    source_.release(address);
  }
}

void Allocator::check_room(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (bytes > 0 && !allowed(size_class(bytes))) refuse(bytes, memory_label());
}

void Allocator::refuse(std::size_t bytes, const MemoryLabel& label) const {
  throw OutOfMemory(bytes, label, limit_, statistics_, live_labels());
}

// Moves the totals of one block from one account to another.
void Allocator::move_totals(Account& from, Account& to, std::size_t size, bool in_use) {
  const auto shift = [&](MemoryUsage& a, MemoryUsage& b) {
    a.allocated -= size;
    --a.allocations;
    b.allocated += size;
    ++b.allocations;
    if (in_use) {
      a.current -= size;
      b.current += size;
      b.peak = std::max(b.peak, b.current);
    } else {
      a.freed -= size;
      --a.releases;
      b.freed += size;
      ++b.releases;
      b.peak = std::max(b.peak, b.current + size);
    }
  };
  shift(from.usage, to.usage);
  for (std::size_t axis = 0; axis < from.groups.size(); ++axis) {
    if (from.groups[axis] != to.groups[axis]) shift(*from.groups[axis], *to.groups[axis]);
  }
}

void Allocator::move(Block& block, const MemoryLabel& label) {
  if (block.account->label == label) return;
  if (waits(block.account->label)) stop_waiting(block.serial);
  Account& to = account_of(label);
  move_totals(*block.account, to, block.size, true);
  block.account = &to;
  for (AllocationObserver* watch : watches_) watch->relabelled(block.serial, label);
}

void Allocator::relabel(void* address, const MemoryLabel& label) {
  const std::lock_guard lock(mutex_);
  if (const auto found = blocks_.find(address); found != blocks_.end()) move(found->second, label);
}

MemoryLabel Allocator::label_of(void* address) const {
  const std::lock_guard lock(mutex_);
  const auto found = blocks_.find(address);
  return found == blocks_.end() ? MemoryLabel{} : found->second.account->label;
}

void Allocator::stop_waiting(std::uint64_t serial) {
  for (auto& [thread, blocks] : waiting_)
    std::erase_if(blocks, [&](const Waiting& block) { return block.serial == serial; });
}

void Allocator::name_waiting(const char* op, const char* phase) {
  const std::lock_guard lock(mutex_);
  const auto own = waiting_.find(memory_owner());
  if (own == waiting_.end()) return;
  const std::vector<Waiting> waiting = std::exchange(own->second, {});
  for (const Waiting& block : waiting) {
    MemoryLabel label = block.account->label;
    label.op = op;
    if (*label.phase == '\0') label.phase = phase;
    const auto found = blocks_.find(block.address);
    if (found != blocks_.end() && found->second.serial == block.serial) {
      if (label.kind == MemoryKind::other) label.kind = MemoryKind::activation;
      move(found->second, label);
    } else {
      label.kind = MemoryKind::workspace;
      move_totals(*block.account, account_of(label), block.size, false);
      for (AllocationObserver* watch : watches_) watch->relabelled(block.serial, label);
    }
  }
}

void Allocator::forget_waiting() {
  const std::lock_guard lock(mutex_);
  waiting_.erase(memory_owner());
}

MemoryStatistics Allocator::statistics() const {
  const std::lock_guard lock(mutex_);
  MemoryStatistics now = statistics_;
  now.rounding = now.current - requested_;
  return now;
}

std::vector<NamedUsage> Allocator::usage(MemoryAxis axis) const {
  const std::lock_guard lock(mutex_);
  std::vector<NamedUsage> all;
  for (const auto& [name, usage] : groups_[static_cast<std::size_t>(axis)])
    all.push_back({name, usage});
  std::stable_sort(all.begin(), all.end(), [](const NamedUsage& a, const NamedUsage& b) {
    return a.usage.current > b.usage.current;
  });
  return all;
}

std::vector<LabelledUsage> Allocator::live_labels() const {
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

std::vector<LabelledUsage> Allocator::live() const {
  const std::lock_guard lock(mutex_);
  return live_labels();
}

void Allocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  statistics_.peak = statistics_.current;
  statistics_.unusable = 0;
  statistics_.held_peak = statistics_.current + statistics_.cached;
  for (auto& [label, account] : accounts_) account.usage.peak = account.usage.current;
  for (auto& groups : groups_) {
    for (auto& [name, usage] : groups) usage.peak = usage.current;
  }
}

void Allocator::set_limit(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  limit_ = bytes;
  const std::size_t held = statistics_.current + statistics_.cached;
  if (limit_ != 0 && held > limit_) give_back_cached(held - limit_);
}

std::size_t Allocator::limit() const {
  const std::lock_guard lock(mutex_);
  return limit_;
}

void Allocator::release_cached() {
  const std::lock_guard lock(mutex_);
  give_back_cached(statistics_.cached);
}

void Allocator::add_watch(AllocationObserver& watch) {
  const std::lock_guard lock(mutex_);
  std::vector<AllocationObserver::Block> in_use;
  for (const auto& [address, block] : blocks_)
    in_use.push_back({block.serial, block.size, statistics_.current, block.account->label});
  std::sort(in_use.begin(), in_use.end(),
            [](const auto& a, const auto& b) { return a.serial < b.serial; });
  watches_.push_back(&watch);
  for (const AllocationObserver::Block& block : in_use) watch.allocated(block);
}

void Allocator::remove_watch(AllocationObserver& watch) {
  const std::lock_guard lock(mutex_);
  std::erase(watches_, &watch);
}

Allocator& allocator(Device device) {
  if (device.kind == DeviceKind::cuda) return cuda_allocator(device.index);
  if (device != cpu) fail(fmt::format("allocator: no device {}", name(device)));
  static HostMemory host;
  // Never destroyed: tensors with static lifetime may outlive every other static object.
  static auto* const instance = new Allocator(host);
  return *instance;
}

}  // namespace sotto
