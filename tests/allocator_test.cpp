#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <set>
#include <thread>
#include <vector>

#include "catch.h"
#include "sotto/core/allocator.h"
#include "sotto/core/error.h"
#include "sotto/core/tensor.h"
#include "tests/throws.h"

using namespace sotto;

namespace {

// Memory that counts, and that ends at `capacity`.
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
  allocator.release(a, 1000);
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
  allocator.release(a, 1020);
  allocator.reset_peak();
  CHECK(allocator.statistics().peak == 64);
  allocator.release_cached();
  CHECK(allocator.statistics().cached == 0);
  CHECK(source.used() == 64);
  allocator.release(b, 64);
}

TEST_CASE("nothing is allocated for no bytes") {
  Source source;
  Allocator allocator(source);
  CHECK(allocator.allocate(0) == nullptr);
  allocator.release(nullptr, 0);
  CHECK(allocator.statistics().current == 0);
}

TEST_CASE("passing the limit throws, says what is in use, and changes nothing") {
  Source source;
  Allocator allocator(source);
  allocator.set_limit(2048);
  void* const a = allocator.allocate(1024);
  CHECK(throws<SystemFailure>([&] { allocator.allocate(1025); },
                              "allocate: no memory for 1025 bytes: 1024 in use, peak 1024, 0 "
                              "cached, limit 2048"));
  void* const b = allocator.allocate(1024);
  CHECK(allocator.statistics().current == 2048);
  allocator.release(b, 1024);
  // What is cached is not in use, and a cached block counts when it is taken again.
  void* const c = allocator.allocate(512);
  CHECK(throws<SystemFailure>([&] { allocator.allocate(1024); }, "limit 2048"));
  allocator.set_limit(0);
  void* const d = allocator.allocate(1 << 20);
  allocator.release(a, 1024);
  allocator.release(c, 512);
  allocator.release(d, 1 << 20);
}

TEST_CASE("a machine out of memory gets the cache back before the request fails") {
  Source source(4096);
  Allocator allocator(source);
  void* const a = allocator.allocate(2048);
  void* const b = allocator.allocate(2048);
  CHECK(throws<SystemFailure>([&] { allocator.allocate(64); }, "limit none"));
  allocator.release(a, 2048);
  allocator.release(b, 2048);
  void* const c = allocator.allocate(4096);
  CHECK(allocator.statistics().cached == 0);
  CHECK(source.used() == 4096);
  allocator.release(c, 4096);
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
        allocator.release(block, bytes);
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

TEST_CASE("an allocator gives everything back when it goes") {
  Source source;
  {
    Allocator allocator(source);
    allocator.release(allocator.allocate(100), 100);
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
