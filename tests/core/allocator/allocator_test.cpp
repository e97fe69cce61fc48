// File tags: [sanitized]
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "core/allocator/allocator.h"
#include "core/error.h"
#include "core/tensor.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

// Raw memory that counts its bytes and is exhausted at `capacity`.
class Source final : public RawMemory {
 public:
  explicit Source(std::size_t capacity = SIZE_MAX) : capacity_(capacity) {}

  void* allocate(std::size_t bytes) override {
    if (bytes > capacity_ - used_) return nullptr;
    used_ += bytes;
    void* const address = std::aligned_alloc(64, bytes);
    blocks_[address] = bytes;
    return address;
  }
  void release(void* address) noexcept override {
    used_ -= blocks_.at(address);
    blocks_.erase(address);
    std::free(address);
  }
  std::size_t used() const { return used_; }

 private:
  std::size_t capacity_;
  std::size_t used_ = 0;
  std::map<void*, std::size_t> blocks_;
};

}  // namespace

TEST_CASE("a size class holds the request, is aligned and wastes at most an eighth") {
  std::size_t last = 0;
  std::set<std::size_t> classes;
  for (std::size_t bytes = 1; bytes < 300'000; ++bytes) {
    const std::size_t size = Allocator::size_class(bytes);
    const bool good = size >= bytes && size % 64 == 0 && size >= last &&
                      (bytes <= 512 ? size - bytes < 64 : (size - bytes) * 8 <= bytes) &&
                      Allocator::size_class(size) == size;
    if (!good) FAIL("bytes " << bytes << " size " << size);
    classes.insert(last = size);
  }
  CHECK(classes.size() < 90);
  CHECK(Allocator::size_class(0) == 0);
  CHECK(Allocator::size_class((std::size_t{1} << 40) + 1) == (std::size_t{1} << 37) * 9);
}

TEST_CASE("statistics follow what is handed out and returned") {
  Source source;
  Allocator allocator(source);
  void* const a = allocator.allocate(1000);
  void* const b = allocator.allocate(64);
  CHECK(reinterpret_cast<std::uintptr_t>(a) % 64 == 0);
  CHECK(allocator.statistics().current == 1024 + 64);
  allocator.release(a);
  MemoryStatistics now = allocator.statistics();
  CHECK(now.current == 64);
  CHECK(now.peak == 1088);
  CHECK(now.cached == 1024);
  CHECK(now.allocations == 2);
  CHECK(now.reused == 0);
  CHECK(source.used() == 1088);
  CHECK(allocator.allocate(1020) == a);
  now = allocator.statistics();
  CHECK(now.reused == 1);
  CHECK(now.allocations == 3);
  CHECK(now.cached == 0);
  allocator.release(a);
  allocator.reset_peak();
  CHECK(allocator.statistics().peak == 64);
  allocator.release_cached();
  CHECK(allocator.statistics().cached == 0);
  CHECK(source.used() == 64);
  allocator.release(b);
}

TEST_CASE("nothing is allocated for no bytes") {
  Source source;
  Allocator allocator(source);
  CHECK(allocator.allocate(0) == nullptr);
  allocator.release(nullptr);
  CHECK(allocator.statistics().current == 0);
}

TEST_CASE("exceeding the limit throws, says how much is in use, and changes nothing") {
  Source source;
  Allocator allocator(source);
  allocator.set_limit(2048);
  void* const a = allocator.allocate(1024);
  CHECK(throws<SystemFailure>([&] { allocator.allocate(1025); },
                              "allocate: no memory for 1025 bytes: 1024 in use, peak 1024, 0 "
                              "cached, limit 2048"));
  void* const b = allocator.allocate(1024);
  CHECK(allocator.statistics().current == 2048);
  allocator.release(b);
  // Cached bytes are not in use; a cached block counts when it is taken from the cache.
  void* const c = allocator.allocate(512);
  CHECK(throws<SystemFailure>([&] { allocator.allocate(1024); }, "limit 2048"));
  allocator.set_limit(0);
  void* const d = allocator.allocate(1 << 20);
  allocator.release(a);
  allocator.release(c);
  allocator.release(d);
}

TEST_CASE("a machine out of memory gets the cache back before the request fails") {
  Source source(4096);
  Allocator allocator(source);
  void* const a = allocator.allocate(2048);
  void* const b = allocator.allocate(2048);
  CHECK(throws<SystemFailure>([&] { allocator.allocate(64); }, "limit none"));
  allocator.release(a);
  allocator.release(b);
  void* const c = allocator.allocate(4096);
  CHECK(allocator.statistics().cached == 0);
  CHECK(source.used() == 4096);
  allocator.release(c);
}

TEST_CASE("the limit counts cached bytes, which go back to the system first") {
  Source source;
  Allocator allocator(source);
  allocator.set_limit(8192);
  void* const a = allocator.allocate(4096);
  void* const b = allocator.allocate(1024);
  allocator.release(a);
  allocator.release(b);
  CHECK(allocator.statistics().cached == 5120);
  // 5120 + 3584 exceed the limit: the largest cached block is given back, the other one stays.
  void* const c = allocator.allocate(3584);
  CHECK(allocator.statistics().cached == 1024);
  CHECK(source.used() == 4608);
  CHECK(allocator.statistics().unusable == 5120);
  CHECK(allocator.statistics().held_peak == 5120);
  allocator.set_limit(4000);
  CHECK(allocator.statistics().cached == 0);
  CHECK(source.used() == 3584);
  allocator.release(c);
}

TEST_CASE("no more bytes stay cached than were ever in use, whatever the sizes") {
  Source source;
  Allocator allocator(source);
  for (std::size_t size = 1024; size <= 16 * 1024; size += 512) {
    void* const a = allocator.allocate(size);
    CHECK(allocator.statistics().cached <= Allocator::size_class(size));
    allocator.release(a);
  }
  CHECK(source.used() >= 16 * 1024);
}

TEST_CASE(
    "statistics count allocated and released bytes and blocks, and the loss to size classes") {
  Source source;
  Allocator allocator(source);
  void* const a = allocator.allocate(1000);
  void* const b = allocator.allocate(100);
  CHECK(allocator.statistics().rounding == 24 + 28);
  allocator.release(a);
  const MemoryStatistics now = allocator.statistics();
  CHECK(now.rounding == 28);
  CHECK(now.allocated == 1024 + 128);
  CHECK(now.freed == 1024);
  CHECK(now.allocations == 2);
  CHECK(now.releases == 1);
  allocator.release(b);
  CHECK(allocator.statistics().freed == allocator.statistics().allocated);
}

TEST_CASE("usage is summed by kind, op, module and phase") {
  Source source;
  Allocator allocator(source);
  const auto block = [&](MemoryKind kind, const char* op, const char* module) {
    return allocator.allocate(1024, {.kind = kind, .op = op, .module = module, .phase = "forward"});
  };
  void* const a = block(MemoryKind::activation, "conv", "first");
  void* const b = block(MemoryKind::workspace, "conv", "second");
  void* const c = block(MemoryKind::activation, "tanh", "second");
  allocator.release(b);
  const std::vector<NamedUsage> kinds = allocator.usage(MemoryAxis::kind);
  REQUIRE(kinds.size() == 2);
  CHECK(kinds[0].name == "activations");
  CHECK(kinds[0].usage.current == 2048);
  CHECK(kinds[1].name == "workspace");
  CHECK(kinds[1].usage.current == 0);
  CHECK(kinds[1].usage.freed == 1024);
  const std::vector<NamedUsage> ops = allocator.usage(MemoryAxis::op);
  REQUIRE(ops.size() == 2);
  CHECK(ops[0].name == "conv");
  CHECK(ops[0].usage.current == 1024);
  CHECK(ops[0].usage.peak == 2048);
  CHECK(allocator.usage(MemoryAxis::module)[1].name == "second");
  CHECK(allocator.usage(MemoryAxis::phase)[0].usage.peak == 3072);
  allocator.relabel(a, {.kind = MemoryKind::saved_factor, .op = "conv"});
  CHECK(allocator.label_of(a).kind == MemoryKind::saved_factor);
  CHECK(allocator.usage(MemoryAxis::kind)[0].usage.current == 1024);
  allocator.reset_peak();
  CHECK(allocator.usage(MemoryAxis::phase)[0].usage.peak == 1024);
  allocator.release(a);
  allocator.release(c);
  CHECK(allocator.live().empty());
}

TEST_CASE("blocks allocated before their op was known become the op's") {
  Source source;
  Allocator allocator(source);
  void* const before = allocator.allocate(64);
  allocator.forget_waiting();
  void* const kept = allocator.allocate(128);
  allocator.release(allocator.allocate(256));
  void* const other = allocator.allocate(512, {.kind = MemoryKind::gradient});
  void* theirs = nullptr;
  std::thread([&] { theirs = allocator.allocate(192); }).join();
  allocator.name_waiting("tanh", "forward");
  CHECK(allocator.label_of(before) == MemoryLabel{});
  CHECK(allocator.label_of(theirs) == MemoryLabel{});
  CHECK(allocator.label_of(kept).op_name() == "tanh");
  CHECK(allocator.label_of(kept).kind == MemoryKind::activation);
  CHECK(allocator.label_of(other).op_name() == "");
  const std::vector<NamedUsage> ops = allocator.usage(MemoryAxis::op);
  REQUIRE(ops.size() == 2);
  CHECK(ops[1].name == "tanh");
  CHECK(ops[1].usage.current == 128);
  CHECK(ops[1].usage.allocated == 128 + 256);
  CHECK(ops[1].usage.freed == 256);
  for (void* block : {before, kept, other, theirs}) allocator.release(block);
}

TEST_CASE(
    "out of memory names the owners of bytes, the largest first, and the settings that would "
    "help") {
  Source source;
  Allocator allocator(source);
  allocator.set_limit(8192);
  void* const a = allocator.allocate(1024, {.kind = MemoryKind::parameter, .module = "dense"});
  void* const b =
      allocator.allocate(4096, {.kind = MemoryKind::activation, .op = "conv", .module = "first"});
  try {
    allocator.allocate(4096, {.kind = MemoryKind::workspace, .backward = true, .op = "tanh"});
    FAIL("allocated beyond the limit");
  } catch (const OutOfMemory& error) {
    CHECK(error.requested() == 4096);
    CHECK(error.limit() == 8192);
    CHECK(error.current() == 5120);
    const std::string text = error.what();
    CHECK(text.find("wanted for workspace of tanh (backward)") != std::string::npos);
    const auto first = text.find("4096 bytes: activations of conv in first");
    const auto second = text.find("1024 bytes: parameters in dense");
    CHECK(first != std::string::npos);
    CHECK(second != std::string::npos);
    CHECK(first < second);
    CHECK(text.find("activation checkpointing") != std::string::npos);
  }
  CHECK(throws<OutOfMemory>(
      [&] { allocator.allocate(64 * 1024, {.kind = MemoryKind::per_sample_grad}); },
      "per_sample_grad_budget"));
  allocator.release(a);
  allocator.release(b);
}

namespace {

// Counts the bytes it sees, and refuses requests on demand.
class Counting final : public AllocationObserver {
 public:
  bool allows(std::size_t) override { return !refuses; }
  void allocated(const Block& block) override { bytes += block.bytes, last = block.current; }
  void released(const Block& block) override { bytes -= block.bytes, last = block.current; }
  bool refuses = false;
  std::size_t bytes = 0, last = 0;
};

}  // namespace

TEST_CASE("an observer sees blocks in use, allocations and releases, and may refuse") {
  Source source;
  Allocator allocator(source);
  void* const a = allocator.allocate(1024);
  Counting watch;
  allocator.add_watch(watch);
  CHECK(watch.bytes == 1024);
  void* const b = allocator.allocate(512);
  CHECK(watch.bytes == 1536);
  CHECK(watch.last == 1536);
  allocator.release(a);
  CHECK(watch.bytes == 512);
  watch.refuses = true;
  CHECK(throws<OutOfMemory>([&] { allocator.allocate(1024); }, "1024"));
  CHECK(allocator.statistics().current == 512);
  CHECK(allocator.statistics().cached == 1024);
  allocator.remove_watch(watch);
  allocator.release(allocator.allocate(1024));
  CHECK(watch.bytes == 512);
  allocator.release(b);
}

TEST_CASE("under a limit threads fail and go on, and every byte is accounted for") {
  Source source(40'000);
  Allocator allocator(source);
  allocator.set_limit(30'000);
  std::atomic<int> refused{0};
  std::atomic<bool> passed{false};
  std::vector<std::thread> threads;
  for (std::size_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&, thread] {
      std::vector<void*> held;
      for (std::size_t i = 0; i < 2000; ++i) {
        try {
          held.push_back(allocator.allocate(1 + (i * 37 + thread * 911) % 5000));
        } catch (const OutOfMemory&) {
          ++refused;
        }
        const MemoryStatistics now = allocator.statistics();
        if (now.current + now.cached > 30'000) passed = true;
        if (i % 7 == 6 || refused % 2 == 1) {
          for (void* block : held) allocator.release(block);
          held.clear();
        }
      }
      for (void* block : held) allocator.release(block);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(refused > 0);
  CHECK(!passed);
  const MemoryStatistics now = allocator.statistics();
  CHECK(now.current == 0);
  CHECK(now.rounding == 0);
  CHECK(now.allocated == now.freed);
  CHECK(now.allocations == now.releases);
  CHECK(now.allocations + refused == 8000);
  CHECK(now.held_peak <= 30'000);
  CHECK(now.cached == source.used());
  CHECK(allocator.live().empty());
}

TEST_CASE("blocks in use at the same time never overlap, from several threads") {
  Source source;
  Allocator allocator(source);
  std::atomic<int> spoiled{0};
  std::vector<std::thread> threads;
  for (unsigned char mark = 1; mark <= 4; ++mark) {
    threads.emplace_back([&, mark] {
      for (std::size_t i = 0; i < 2000; ++i) {
        const std::size_t bytes = 1 + i * 37 % 3000;
        auto* const block = static_cast<unsigned char*>(allocator.allocate(bytes));
        std::fill_n(block, bytes, mark);
        if (std::count(block, block + bytes, mark) != static_cast<std::ptrdiff_t>(bytes)) ++spoiled;
        allocator.release(block);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(spoiled == 0);
  const MemoryStatistics now = allocator.statistics();
  CHECK(now.current == 0);
  CHECK(now.allocations == 8000);
  CHECK(now.cached == source.used());
}

TEST_CASE("an allocator gives everything back when it is destroyed") {
  Source source;
  {
    Allocator allocator(source);
    allocator.release(allocator.allocate(100));
    CHECK(source.used() > 0);
  }
  CHECK(source.used() == 0);
}

TEST_CASE("tensors take from the device's allocator and return to it") {
  const std::size_t before = allocator(cpu).statistics().current;
  {
    const Tensor x = Tensor::empty({100, 100});
    const Tensor part = x.slice(0, 1, 2);
    CHECK(allocator(cpu).statistics().current - before == Allocator::size_class(40'000));
  }
  CHECK(allocator(cpu).statistics().current == before);
  CHECK(throws([] { allocator({DeviceKind::cuda, 99}); }, "99"));
}
