#include "core/allocator/allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

#include "core/allocator/allocation_pool.h"
#include "core/allocator/limit_exemption.h"
#include "core/allocator/memory_accounts.h"
#include "core/cuda/capture.h"
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

// The blocks and their bookkeeping. Its functions require the lock.
struct Allocator::State {
  using FreeBlocks = std::map<std::size_t, std::vector<void*>>;  // by size
  struct Block {
    std::size_t size;
    std::size_t requested;
    std::uint64_t serial;
    MemoryAccount* account;
    AllocationPool* pool;  // it returns to this pool; nullptr: to the allocator
  };
  struct Waiting {
    void* address;
    std::uint64_t serial;
    std::size_t size;
    MemoryAccount* account;
  };

  explicit State(RawMemory& memory) : source(memory) {}
  bool allowed(std::size_t size) const;
  void* take(AllocationPool* pool, std::size_t size);
  void* take_cached(FreeBlocks& free, std::size_t size);
  void* take_new(std::size_t size);
  void hand_out(void* address, const Block& block);
  void cache(FreeBlocks& free, std::size_t size, void* address) noexcept;
  void give_back(std::size_t bytes);
  void move(Block& block, const MemoryLabel& label);
  void stop_waiting(std::uint64_t serial);
  [[noreturn]] void refuse(std::size_t bytes, const MemoryLabel& label) const {
    throw OutOfMemory(bytes, label, limit, statistics, accounts.live());
  }

  RawMemory& source;
  std::mutex mutex;
  FreeBlocks free_blocks;
  MemoryStatistics statistics;
  std::size_t requested = 0;    // requested bytes of the blocks in use
  std::size_t most_in_use = 0;  // the most bytes of blocks in use so far
  std::size_t limit = 0;
  std::uint64_t serial = 0;
  std::unordered_map<void*, Block> in_use;
  MemoryAccounts accounts;
  std::unordered_map<const void*, std::vector<Waiting>> waiting;  // by owner
  std::vector<AllocationObserver*> watches;
};

bool Allocator::State::allowed(std::size_t size) const {
  if (LimitExemption::holds()) return true;
  const bool within = limit == 0 || statistics.current + size <= limit;
  return within && std::all_of(watches.begin(), watches.end(),
                               [&](AllocationObserver* watch) { return watch->allows(size); });
}

void* Allocator::State::take_cached(FreeBlocks& free, std::size_t size) {
  const auto found = free.find(size);
  if (found == free.end() || found->second.empty()) return nullptr;
  void* address = found->second.back();
  found->second.pop_back();
  statistics.cached -= size;
  ++statistics.reused;
  return address;
}

// Returns no block to the system while this thread captures a graph: the call would wait for the
// device.
void* Allocator::State::take_new(std::size_t size) {
  const bool captures = Capture::any() && Capture::here();
  statistics.unusable = std::max(statistics.unusable, statistics.cached);
  const std::size_t held = statistics.current + statistics.cached + size;
  if (limit != 0 && held > limit && !captures) give_back(held - limit);
  // Sizes may change from batch to batch, and then those of earlier batches are not asked for
  // again.
  const std::size_t kept = std::max(most_in_use, statistics.current + size);
  if (statistics.cached > kept && !Capture::any()) give_back(statistics.cached - kept);
  // Blocks of pools may still be cached here; they cannot be given back.
  const bool room = limit == 0 || statistics.current + statistics.cached + size <= limit;
  if (!room && !LimitExemption::holds()) return nullptr;
  void* address = source.allocate(size);
  if (address || statistics.cached == 0 || captures) return address;
  give_back(statistics.cached);
  return source.allocate(size);
}

void* Allocator::State::take(AllocationPool* pool, std::size_t size) {
  void* address = pool ? take_cached(pool->free_, size) : nullptr;
  if (!address) address = take_cached(free_blocks, size);
  return address ? address : take_new(size);
}

// Returns at least `bytes` cached bytes to the system, the largest blocks first.
void Allocator::State::give_back(std::size_t bytes) {
  std::size_t given = 0;
  for (auto at = free_blocks.rbegin(); at != free_blocks.rend() && given < bytes; ++at) {
    auto& [size, blocks] = *at;
    for (; !blocks.empty() && given < bytes; blocks.pop_back(), given += size)
      source.release(blocks.back());
  }
  statistics.cached -= given;
}

// Records the block; returns it to the source if there is no memory for the record.
void Allocator::State::hand_out(void* address, const Block& block) {
  try {
    if (waits(block.account->label)) {
      std::vector<Waiting>& own = waiting[memory_owner()];
      if (own.size() == max_waiting) own.erase(own.begin(), own.begin() + max_waiting / 2);
      own.push_back({address, block.serial, block.size, block.account});
    }
    in_use.emplace(address, block);
  } catch (const std::bad_alloc&) {
    source.release(address);
    throw;
  }
  ++serial;
  requested += block.requested;
  statistics.add(block.size);
  most_in_use = std::max(most_in_use, statistics.current);
  statistics.held_peak = std::max(statistics.held_peak, statistics.current + statistics.cached);
  block.account->add(block.size);
  for (AllocationObserver* watch : watches)
    watch->allocated({block.serial, block.size, statistics.current, block.account->label});
}

// Adds a block, already counted as cached, to a free list.
void Allocator::State::cache(FreeBlocks& free, std::size_t size, void* address) noexcept {
  try {
    free[size].push_back(address);
  } catch (const std::bad_alloc&) {
    statistics.cached -= size;
    source.release(address);
  }
}

void Allocator::State::move(Block& block, const MemoryLabel& label) {
  if (block.account->label == label) return;
  if (waits(block.account->label)) stop_waiting(block.serial);
  MemoryAccount& to = accounts.of(label);
  block.account->move_to(to, block.size, true);
  block.account = &to;
  for (AllocationObserver* watch : watches) watch->relabelled(block.serial, label);
}

void Allocator::State::stop_waiting(std::uint64_t serial) {
  for (auto& [thread, blocks] : waiting)
    std::erase_if(blocks, [&](const Waiting& block) { return block.serial == serial; });
}

Allocator::Allocator(RawMemory& source) : state_(std::make_unique<State>(source)) {}

Allocator::~Allocator() { release_cached(); }

std::size_t Allocator::size_class(std::size_t bytes) {
  if (bytes <= 8 * alignment) return (bytes + alignment - 1) / alignment * alignment;
  // Eight size classes between consecutive powers of two.
  const std::size_t step = std::bit_floor(bytes - 1) / 8;
  // NOLINTNEXTLINE(clang-analyzer-core.DivideZero): bytes is above 8 alignments here.
  return (bytes + step - 1) / step * step;
}

void* Allocator::allocate(std::size_t bytes, const MemoryLabel& label) {
  const std::size_t size = size_class(bytes);
  if (size == 0) return nullptr;
  const std::lock_guard lock(state_->mutex);
  void* address = nullptr;
  if (state_->allowed(size)) {
    MemoryAccount& account = state_->accounts.of(label);
    AllocationPool* const pool = AllocationPool::of_thread(*this);
    address = state_->take(pool, size);
    if (address) state_->hand_out(address, {size, bytes, state_->serial + 1, &account, pool});
  }
  if (!address) state_->refuse(bytes, label);
  return address;
}

void Allocator::release(void* address) noexcept {
  if (!address) return;
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->in_use.find(address);
  const State::Block block = found->second;
  state_->in_use.erase(found);
  state_->requested -= block.requested;
  state_->statistics.remove(block.size);
  block.account->remove(block.size);
  state_->statistics.cached += block.size;
  state_->cache(block.pool ? block.pool->free_ : state_->free_blocks, block.size, address);
  for (AllocationObserver* watch : state_->watches)
    watch->released({block.serial, block.size, state_->statistics.current, block.account->label});
}

const AllocationPool* Allocator::pool_of(void* address) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->in_use.find(address);
  return found == state_->in_use.end() ? nullptr : found->second.pool;
}

void Allocator::dissolve(AllocationPool& pool) noexcept {
  const std::lock_guard lock(state_->mutex);
  for (auto& [address, block] : state_->in_use) {
    if (block.pool == &pool) block.pool = nullptr;
  }
  for (const auto& [size, blocks] : pool.free_) {
    for (void* address : blocks) state_->cache(state_->free_blocks, size, address);
  }
}

void Allocator::check_room(std::size_t bytes) {
  const std::lock_guard lock(state_->mutex);
  if (bytes > 0 && !state_->allowed(size_class(bytes))) state_->refuse(bytes, memory_label());
}

void Allocator::relabel(void* address, const MemoryLabel& label) {
  const std::lock_guard lock(state_->mutex);
  if (const auto found = state_->in_use.find(address); found != state_->in_use.end())
    state_->move(found->second, label);
}

MemoryLabel Allocator::label_of(void* address) const {
  const std::lock_guard lock(state_->mutex);
  const auto found = state_->in_use.find(address);
  return found == state_->in_use.end() ? MemoryLabel{} : found->second.account->label;
}

void Allocator::name_waiting(const char* op, const char* phase) {
  const std::lock_guard lock(state_->mutex);
  const auto own = state_->waiting.find(memory_owner());
  if (own == state_->waiting.end()) return;
  const std::vector<State::Waiting> waiting = std::exchange(own->second, {});
  for (const State::Waiting& block : waiting) {
    MemoryLabel label = block.account->label;
    label.op = op;
    if (*label.phase == '\0') label.phase = phase;
    const auto found = state_->in_use.find(block.address);
    if (found != state_->in_use.end() && found->second.serial == block.serial) {
      if (label.kind == MemoryKind::other) label.kind = MemoryKind::activation;
      state_->move(found->second, label);
    } else {
      label.kind = MemoryKind::workspace;
      block.account->move_to(state_->accounts.of(label), block.size, false);
      for (AllocationObserver* watch : state_->watches) watch->relabelled(block.serial, label);
    }
  }
}

void Allocator::forget_waiting() {
  const std::lock_guard lock(state_->mutex);
  state_->waiting.erase(memory_owner());
}

MemoryStatistics Allocator::statistics() const {
  const std::lock_guard lock(state_->mutex);
  MemoryStatistics now = state_->statistics;
  now.rounding = now.current - state_->requested;
  return now;
}

std::vector<NamedUsage> Allocator::usage(MemoryAxis axis) const {
  const std::lock_guard lock(state_->mutex);
  return state_->accounts.usage(axis);
}

std::vector<LabelledUsage> Allocator::live() const {
  const std::lock_guard lock(state_->mutex);
  return state_->accounts.live();
}

void Allocator::reset_peak() {
  const std::lock_guard lock(state_->mutex);
  state_->statistics.peak = state_->statistics.current;
  state_->statistics.unusable = 0;
  state_->statistics.held_peak = state_->statistics.current + state_->statistics.cached;
  state_->accounts.reset_peaks();
}

void Allocator::set_limit(std::size_t bytes) {
  const std::lock_guard lock(state_->mutex);
  state_->limit = bytes;
  const std::size_t held = state_->statistics.current + state_->statistics.cached;
  if (state_->limit != 0 && held > state_->limit) state_->give_back(held - state_->limit);
}

std::size_t Allocator::limit() const {
  const std::lock_guard lock(state_->mutex);
  return state_->limit;
}

void Allocator::release_cached() {
  const std::lock_guard lock(state_->mutex);
  state_->give_back(state_->statistics.cached);
}

void Allocator::add_watch(AllocationObserver& watch) {
  const std::lock_guard lock(state_->mutex);
  std::vector<AllocationObserver::Block> in_use;
  for (const auto& [address, block] : state_->in_use)
    in_use.push_back({block.serial, block.size, state_->statistics.current, block.account->label});
  std::sort(in_use.begin(), in_use.end(),
            [](const auto& a, const auto& b) { return a.serial < b.serial; });
  state_->watches.push_back(&watch);
  for (const AllocationObserver::Block& block : in_use) watch.allocated(block);
}

void Allocator::remove_watch(AllocationObserver& watch) {
  const std::lock_guard lock(state_->mutex);
  std::erase(state_->watches, &watch);
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
