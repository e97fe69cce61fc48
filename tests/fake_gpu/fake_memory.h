// The memory of a pretended GPU, and the copies beside its work.
#pragma once

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <sys/mman.h>

#include "core/cuda/cuda_library.h"
#include "core/error.h"
#include "core/view.h"
#include "tests/fake_gpu/host_executor.h"

namespace sotto {

// Poison is NaN in every floating-point type.
inline constexpr int poison = 0xff;

// A range of addresses, each of which is handed out once only.
class Memory final : public RawMemory {
 public:
  // `finish` does the work that the memory's GPU was asked for.
  explicit Memory(std::function<void()> finish)
      : finish_(std::move(finish)),
        first_(static_cast<char*>(mmap(nullptr, reserved, PROT_NONE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {
    if (first_ == MAP_FAILED) throw SystemFailure("no addresses for the pretended GPU");
  }
  void* allocate(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    const std::size_t size = (bytes + page - 1) / page * page;
    if (used_ + size > reserved) return nullptr;
    char* const address = first_ + used_;
    used_ += size;
    sizes_[address] = size;
    if (open_ > 0) protect(PROT_READ | PROT_WRITE);
    return address;
  }
  void release(void* address) noexcept override {
    finish_();
    if (dry()) return;
    const auto open = this->open();
    std::memset(address, poison, sizes_.at(address));
  }

  bool holds(const void* address) const {
    const std::lock_guard lock(mutex_);
    const char* const at = static_cast<const char*>(address);
    return at >= first_ && at < first_ + used_;
  }
  // Makes the device's memory accessible while the result lives.
  std::shared_ptr<void> open() {
    const std::lock_guard lock(mutex_);
    if (open_++ == 0) protect(PROT_READ | PROT_WRITE);
    return std::shared_ptr<void>(this, [](Memory* memory) { memory->close(); });
  }

 private:
  static constexpr std::size_t page = 4096;
  static constexpr std::size_t reserved = std::size_t{1} << 38;

  void close() {
    const std::lock_guard lock(mutex_);
    if (--open_ == 0) protect(PROT_NONE);
  }
  void protect(int rights) const {
    if (used_ > 0) mprotect(first_, used_, rights);
  }

  std::function<void()> finish_;
  mutable std::mutex mutex_;
  char* first_;
  std::size_t used_ = 0;
  std::map<void*, std::size_t> sizes_;
  int open_ = 0;
};

class Pages final : public RawMemory {
 public:
  void* allocate(std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    void* const address =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return nullptr;
    bytes_[address] = bytes;
    return address;
  }
  void release(void* address) noexcept override {
    const std::lock_guard lock(mutex_);
    munmap(address, bytes_.extract(address).mapped());
  }
  void protect(const void* address, int rights) {
    const std::lock_guard lock(mutex_);
    const auto found = bytes_.find(const_cast<void*>(address));
    check(found != bytes_.end(),
          "pretended GPU: a copy beside work from memory that is not pinned");
    mprotect(found->first, found->second, rights);
  }

 private:
  std::mutex mutex_;
  std::map<void*, std::size_t> bytes_;
};

// An event of GPU `gpu`, reached after its first `queued` pieces of work, which use memory `work`
// times, and after `copies` asynchronous copies.
struct PretendEvent final : DeviceEvent {
  int gpu = 0;
  std::size_t queued = 0;
  std::uint64_t work = 0, copies = 0;
};

inline const PretendEvent& pretended_event(const DeviceEvent& event) {
  return static_cast<const PretendEvent&>(event);
}

struct Range {
  const char *begin, *end;
  bool meets(const Range& other) const { return begin < other.end && other.begin < end; }
};

inline Range range_of(const View& view) {
  const auto width = static_cast<std::int64_t>(size_of(view.dtype));
  std::int64_t last = 0;
  for (int i = 0; i < view.rank; ++i) last += (view.size[i] - 1) * view.stride[i];
  const char* const begin = view.as<const char>();
  return {begin, begin + (last + 1) * width};
}

// The asynchronous copies, in order, and the last use of each piece of memory.
class Copies {
 public:
  Copies(Memory& memory, Pages& pinned) : memory_(memory), pinned_(pinned) {}

  // The device's next work uses the memory.
  void use(const Range& range) {
    const std::lock_guard lock(mutex_);
    for (std::size_t k = done_; k < copies_.size(); ++k) {
      check(!copies_[k].target.meets(range),
            "pretended GPU: memory is used that a copy beside the work writes to");
    }
    Used& used = used_[range.begin];
    used = {std::max(used.end, range.end), ++work_};
  }
  std::uint64_t uses() {
    const std::lock_guard lock(mutex_);
    return work_;
  }
  // Returns the number of copies so far.
  std::uint64_t add(void* to, const void* from, std::size_t bytes, const PretendEvent& after) {
    const std::lock_guard lock(mutex_);
    const char* const first = static_cast<const char*>(to);
    const Range target{first, first + bytes};
    for (const auto& [begin, used] : used_) {
      check(used.work <= after.work || !target.meets({begin, used.end}),
            "pretended GPU: a copy beside the work does not wait for what used its target");
    }
    pinned_.protect(from, PROT_READ);
    const auto open = memory_.open();
    if (!dry()) std::memset(to, poison, bytes);
    copies_.push_back({target, to, from});
    return copies_.size();
  }
  void come_to(std::uint64_t copies) {
    const std::lock_guard lock(mutex_);
    const auto open = memory_.open();
    for (; done_ < copies; ++done_) {
      const Copy& copy = copies_[done_];
      std::memcpy(copy.to, copy.from,
                  static_cast<std::size_t>(copy.target.end - copy.target.begin));
    }
  }
  // Called when the host has waited for the first `copies` copies.
  void seen(std::uint64_t copies) {
    come_to(copies);
    const std::lock_guard lock(mutex_);
    for (; seen_ < copies; ++seen_) pinned_.protect(copies_[seen_].from, PROT_READ | PROT_WRITE);
  }

 private:
  struct Copy {
    Range target;
    void* to;
    const void* from;
  };
  struct Used {
    const char* end = nullptr;
    std::uint64_t work = 0;
  };

  Memory& memory_;
  Pages& pinned_;
  std::mutex mutex_;
  std::deque<Copy> copies_;
  std::size_t done_ = 0, seen_ = 0;  // indices of copies
  std::uint64_t work_ = 0;
  std::map<const char*, Used> used_;
};

}  // namespace sotto
