// GPUs of ranks that send to each other by NCCL: when they do, and how a run ends that cannot go
// on. On a machine without GPUs the pretended ones, and a pretended NCCL
// (tests/fake_gpu/fake_nccl.cpp).
// File tags: [gpus]
#include "core/ranks/gpu_link.h"

#include <chrono>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <dlfcn.h>

#include "core/devices.h"
#include "core/ranks/rank_failure.h"
#include "core/ranks/rank_threads.h"
#include "core/ranks/tensor_moves.h"
#include "core/ranks/thread_ranks.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

using GpuOf = std::function<Device(Ranks&)>;

// The pretended NCCL's function, or null without it.
template <class F>
F* pretended(const char* name) {
  const char* const path = std::getenv("SOTTO_NCCL_LIBRARY");
  void* const library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  return library ? reinterpret_cast<F*>(dlsym(library, name)) : nullptr;
}
std::int64_t bytes_moved() {
  auto* const moved = pretended<std::int64_t()>("sotto_pretended_nccl_bytes");
  return moved ? moved() : 0;
}
bool have_gpus(std::size_t count) { return devices().size() > count; }
bool have_nccl() { return pretended<std::int64_t()>("sotto_pretended_nccl_bytes") != nullptr; }

// The texts that the ranks have for people, and how many have a link.
struct Connected {
  std::set<std::string> texts;
  int links = 0;
};
Connected connected(int size, const GpuOf& gpu_of) {
  std::mutex mutex;
  Connected all;
  on_thread_ranks(size, [&](Ranks& ranks) {
    connect_gpus(ranks, gpu_of(ranks));
    const std::lock_guard lock(mutex);
    all.texts.insert(ranks.gpus().text);
    all.links += ranks.gpus().link ? 1 : 0;
  });
  return all;
}

Device own_gpu(Ranks& ranks) { return {DeviceKind::cuda, ranks.rank()}; }

// Each rank tells the others `elements` numbers, and gets theirs.
void gather_numbers(Ranks& ranks, std::int64_t elements, const char* place = "numbers") {
  const Device gpu = own_gpu(ranks);
  const Tensor all = zeros({ranks.size(), elements}, Dtype::f64, gpu);
  std::vector<Tensor> rows;
  for (int k = 0; k < ranks.size(); ++k) rows.push_back(all.slice(0, k, k + 1));
  const Tensor own = rows[static_cast<std::size_t>(ranks.rank())];
  copy_into(full({1, elements}, 1 + ranks.rank(), Dtype::f64, gpu), own);
  all_gather_tensors(ranks, place, own, rows).wait();
  for (int k = 0; k < ranks.size(); ++k)
    check(all.at({k, elements - 1}) == 1 + k, "expected the numbers of rank {}", k);
}

}  // namespace

TEST_CASE("ranks on CPUs, and a single rank, have no link") {
  for (const int size : {1, 3}) {
    const Connected all = connected(size, [](Ranks&) { return cpu; });
    CHECK(all.links == 0);
    CHECK(all.texts == std::set<std::string>{""});
  }
  if (have_gpus(1)) CHECK(connected(1, own_gpu).links == 0);
}

TEST_CASE("GPUs are connected where each rank has one, and the reason is told where not") {
  if (!have_gpus(2)) return;
  const auto told = [](int size, const GpuOf& gpu_of, const char* text, int links) {
    const Connected all = connected(size, gpu_of);
    CHECK(all.texts == std::set<std::string>{text});
    CHECK(all.links == links);
  };
  const GpuOf shared = [](Ranks&) { return Device{DeviceKind::cuda, 0}; };
  const GpuOf some = [](Ranks& ranks) { return ranks.rank() == 1 ? cpu : own_gpu(ranks); };
  if (!have_nccl()) {
    told(2, own_gpu, "GPUs send through the hosts' memory (rank 0: no NCCL is named)", 0);
    return;
  }
  told(2, own_gpu, "GPUs send to each other by NCCL 2.28.9", 2);
  told(2, shared, "GPUs send through the hosts' memory (ranks 0 and 1 have the same one)", 0);
  told(2, some, "GPUs send through the hosts' memory (rank 1 has none)", 0);
}

TEST_CASE("GPUs that are connected stay so, and their bytes are NCCL's") {
  if (!have_gpus(3) || !have_nccl()) return;
  constexpr std::int64_t elements = 1000;
  for (const int size : {2, 3}) {
    const std::int64_t before = bytes_moved();
    on_thread_ranks(size, [](Ranks& ranks) {
      connect_gpus(ranks, own_gpu(ranks));
      const auto link = ranks.gpus().link;
      connect_gpus(ranks, own_gpu(ranks));
      check(link && link == ranks.gpus().link, "expected one link");
      gather_numbers(ranks, elements);
    });
    constexpr std::int64_t first = 4;  // of connect_gpus
    CHECK(bytes_moved() - before == size * (size - 1) * (elements * 8 + first));
  }
}

TEST_CASE("ranks at different places, or with other sizes, end with an error on all") {
  if (!have_gpus(2) || !have_nccl()) return;
  const auto ended = [](const std::function<void(Ranks&)>& call) {
    std::mutex mutex;
    std::vector<std::string> errors;
    try {
      on_thread_ranks(2, [&](Ranks& ranks) {
        connect_gpus(ranks, own_gpu(ranks));
        try {
          call(ranks);
        } catch (const RankFailure& failure) {
          const std::lock_guard lock(mutex);
          errors.emplace_back(failure.what());
          throw;
        }
      });
    } catch (const RankFailure&) {
    }
    return errors;
  };
  const auto places = ended(
      [](Ranks& ranks) { gather_numbers(ranks, 10, ranks.rank() == 0 ? "apples" : "pears"); });
  REQUIRE(places.size() == 2);
  CHECK(places[0].find("apples") != std::string::npos);
  CHECK(places[0].find("pears") != std::string::npos);
  const auto sizes = ended([](Ranks& ranks) { gather_numbers(ranks, 10 + ranks.rank()); });
  REQUIRE(sizes.size() == 2);
  for (const std::string& error : sizes)
    CHECK(error.find(" bytes where rank ") != std::string::npos);
}

TEST_CASE("a network that breaks ends the run on all ranks, and their GPUs' work") {
  auto* const fail = pretended<void(int, std::int64_t)>("sotto_pretended_nccl_fail");
  if (!have_gpus(3) || !fail) return;
  fail(1, 2);  // the first group is that of connect_gpus
  std::mutex mutex;
  int failed = 0;
  const auto start = std::chrono::steady_clock::now();
  const auto run = [&] {
    on_thread_ranks(3, [&](Ranks& ranks) {
      connect_gpus(ranks, own_gpu(ranks));
      gather_numbers(ranks, 5);
      try {
        gather_numbers(ranks, 5);
      } catch (const std::exception&) {
        const std::lock_guard lock(mutex);
        ++failed;
        throw;
      }
    });
  };
  CHECK(throws<RankFailure>(run, "remote process exited"));
  CHECK(failed == 3);
  constexpr auto limit = std::chrono::seconds(60);  // not the hour that NCCL would wait
  CHECK(std::chrono::steady_clock::now() - start < limit);
  fail(-1, 0);
}

}  // namespace sotto
