// A program of several ranks, as a user writes it: run by launched_test.py under mpirun.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "core/ranks/launched_ranks.h"
#include "core/ranks/rank_failure.h"
#include "core/ranks/rank_threads.h"
#include "core/threads/parallel.h"

using namespace sotto;

namespace {

using Blocks = std::vector<std::vector<std::byte>>;

constexpr auto long_work = std::chrono::seconds(60);

std::vector<std::byte> block(int from, int to, std::size_t bytes) {
  std::vector<std::byte> y(bytes);
  for (std::size_t i = 0; i < bytes; ++i)
    y[i] = static_cast<std::byte>(from * 7 + to * 3 + static_cast<int>(i % 251));
  return y;
}

void require(bool right, const char* operation) {
  if (!right) throw std::logic_error(fmt::format("{} moved wrong bytes", operation));
}

void exchange(Ranks& ranks, const std::string& place, std::size_t bytes) {
  Blocks send, want, got(static_cast<std::size_t>(ranks.size()), std::vector<std::byte>(bytes));
  for (int k = 0; k < ranks.size(); ++k) {
    send.push_back(block(ranks.rank(), k, bytes));
    want.push_back(block(k, ranks.rank(), bytes));
  }
  ranks.exchange(place, {send.begin(), send.end()}, {got.begin(), got.end()}).wait();
  require(got == want, "exchange");
}

void moves(Ranks& ranks) {
  for (const std::size_t bytes : {0, 1, 1000, 100000, 3000000}) {
    exchange(ranks, "sums", bytes);
    require(ranks.broadcast("control", block(ranks.rank(), 1, bytes)) == block(0, 1, bytes),
            "tell");
    Blocks dealt;
    for (int k = 0; ranks.rank() == 0 && k < ranks.size(); ++k)
      dealt.push_back(block(0, k, bytes + static_cast<std::size_t>(k)));
    require(ranks.scatter("order", {dealt.begin(), dealt.end()}) ==
                block(0, ranks.rank(), bytes + static_cast<std::size_t>(ranks.rank())),
            "deal");
    const Blocks all = ranks.gather("losses", block(ranks.rank(), 2, bytes));
    for (std::size_t k = 0; k < all.size(); ++k)
      require(all[k] == block(static_cast<int>(k), 2, bytes), "collect");
  }
  if (ranks.rank() == 0)
    fmt::print("{} ranks, {} on this host\n", ranks.size(), ranks.ranks_on_host());
}

// Several large operations at once, the last waited for first.
void overlaps(Ranks& ranks) {
  constexpr std::size_t operations = 4, bytes = 50'000'000;
  Blocks send, got;
  for (std::size_t i = 0; i < operations; ++i) {
    send.push_back(block(ranks.rank(), static_cast<int>(i), bytes));
    for (int k = 0; k < ranks.size(); ++k) got.emplace_back(bytes);
  }
  std::vector<Pending> pending;
  for (std::size_t i = 0; i < operations; ++i) {
    const auto first = got.begin() + static_cast<std::ptrdiff_t>(i) * ranks.size();
    pending.push_back(ranks.all_gather("weights", send[i], {first, first + ranks.size()}));
  }
  for (std::size_t i = operations; i-- > 0;) {
    pending[i].wait();
    for (int k = 0; k < ranks.size(); ++k)
      require(got[i * static_cast<std::size_t>(ranks.size()) + static_cast<std::size_t>(k)] ==
                  block(k, static_cast<int>(i), bytes),
              "gather");
  }
}

void threads(Ranks& ranks) {
  const std::string line = share_processors(ranks);
  const std::string own = fmt::format("{} ", thread_count());
  std::string counts;
  for (const auto& each : ranks.gather("threads", std::as_bytes(std::span(own))))
    counts.append(reinterpret_cast<const char*>(each.data()), each.size());
  if (ranks.rank() == 0) fmt::print("{}\n{}\n", line, counts);
}

// More than 2^31 bytes from rank 0 to rank 1. Pages that were never written share one page of
// zeros.
void large(Ranks& ranks) {
  constexpr std::size_t bytes = (std::size_t{1} << 31) + 12345;
  const bool sends = ranks.rank() == 0;
  auto* const memory = static_cast<std::byte*>(mmap(
      nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  memory[bytes - 1] = sends ? std::byte{42} : std::byte{1};
  std::vector<Ranks::Bytes> send(2);
  std::vector<Ranks::Room> receive(2);
  if (sends) send[1] = {memory, bytes};
  if (!sends) receive[0] = {memory, bytes};
  ranks.exchange("weights", send, receive).wait();
  require(memory[bytes - 1] == std::byte{42}, "a large exchange");
  if (sends) fmt::print("moved {} bytes\n", bytes);
}

double processor_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& x) {
    return static_cast<double>(x.tv_sec) + 1e-6 * static_cast<double>(x.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The processor time of a rank that waits, as a part of the time that it waits.
void idle(Ranks& ranks) {
  exchange(ranks, "first", 1000);
  const double before = processor_seconds();
  const auto start = std::chrono::steady_clock::now();
  if (ranks.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
  exchange(ranks, "second", 1000);
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
  if (ranks.rank() == 0)
    fmt::print("idle {:.4f}\n", (processor_seconds() - before) / passed.count());
}

// Rank 1 does something, and the others wait for it in an operation, or compute.
std::function<void(Ranks&)> on_rank_1(const std::function<void()>& does,
                                      bool others_compute = false) {
  return [=](Ranks& ranks) {
    exchange(ranks, "first", 1000);
    if (ranks.rank() == 1) does();
    if (others_compute) std::this_thread::sleep_for(long_work);
    exchange(ranks, "second", 1000);
  };
}

void throw_error() { throw std::out_of_range("no such sample"); }

void other_place(Ranks& ranks) { exchange(ranks, ranks.rank() == 1 ? "weights" : "sums", 8); }

// Rank 1 sends what rank 0 ends without taking.
std::function<void(Ranks&)> untaken(std::size_t bytes) {
  return [=](Ranks& ranks) {
    exchange(ranks, "first", 1000);
    if (ranks.rank() == 1) ranks.gather("losses", block(1, 0, bytes));
  };
}

// As when rank 0 cannot write, and tells the others before all throw.
void fail_together(Ranks& ranks) {
  exchange(ranks, "first", 1000);
  ranks.fail("no space left");
  exchange(ranks, "second", 1000);
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<void(Ranks&)>> bodies{
      {"moves", moves},
      {"overlaps", overlaps},
      {"threads", threads},
      {"large", large},
      {"idle", idle},
      {"place", other_place},
      {"untaken", untaken(8)},
      {"untaken_large", untaken(std::size_t{1} << 22)},
      {"fail_together", fail_together},
      {"throw", on_rank_1(throw_error)},
      {"throw_beside", on_rank_1(throw_error, true)},
      {"uncaught", on_rank_1([] { std::thread(throw_error).join(); })},
      {"exit", on_rank_1([] { std::exit(0); })},
      {"kill", on_rank_1([] { std::raise(SIGKILL); })},
      {"stop", on_rank_1([] { std::raise(SIGSTOP); })},
      {"stop_beside", on_rank_1([] { std::raise(SIGSTOP); }, true)},
      {"wait", on_rank_1([] { std::this_thread::sleep_for(long_work); })},
      {"late", on_rank_1([] { std::this_thread::sleep_for(long_work); })},
  };
  try {
    const bool late = argc == 2 && std::string(argv[1]) == "late";
    const auto ranks = launched_ranks({.operation_seconds = late ? 2.0 : 600.0});
    bodies.at(argc == 2 ? argv[1] : "")(*ranks);
  } catch (const RankFailure&) {
    return 2;  // one rank has said it
  } catch (const std::exception& exception) {
    fmt::print(stderr, "{}\n", exception.what());
    return 1;
  }
}
