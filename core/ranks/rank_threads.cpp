#include "core/ranks/rank_threads.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string_view>
#include <vector>

#include "core/cuda/cuda_library.h"
#include "core/error.h"
#include "core/ranks/collectives.h"
#include "core/ranks/host_name.h"
#include "core/threads/parallel.h"

namespace sotto {

namespace {

using Host = std::array<char, 256>;

Host own_host() {
  Host own{};
  const std::string name = host_name().substr(0, own.size() - 1);
  std::copy(name.begin(), name.end(), own.begin());
  return own;
}

RankProcessors own_processors() {
  RankProcessors own{.host = own_host()};
  if (sched_getaffinity(0, sizeof own.mask, &own.mask) != 0)
    throw SystemFailure("share_processors: this process's processors are unknown");
  return own;
}

std::string line(std::span<const RankProcessors> ranks, std::span<const int> threads) {
  std::set<std::string_view> hosts;
  bool bound = false;
  for (std::size_t k = 0; k < ranks.size(); ++k) {
    hosts.insert(ranks[k].host.data());
    bound |= ranks[k].host == ranks[0].host && !CPU_EQUAL(&ranks[k].mask, &ranks[0].mask);
  }
  const auto [least, most] = std::minmax_element(threads.begin(), threads.end());
  const std::string count =
      *least == *most ? fmt::format("{}", *least) : fmt::format("{} to {}", *least, *most);
  return fmt::format("{} rank{} on {} host{}, {} thread{} each{}", ranks.size(),
                     ranks.size() == 1 ? "" : "s", hosts.size(), hosts.size() == 1 ? "" : "s",
                     count, *most == 1 ? "" : "s",
                     bound ? ", bound to processors by the launcher" : "");
}

}  // namespace

int threads_of(std::size_t rank, std::span<const RankProcessors> ranks) {
  double share = 0;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (!CPU_ISSET(processor, &ranks[rank].mask)) continue;
    share += 1.0 / static_cast<double>(
                       std::count_if(ranks.begin(), ranks.end(), [&](const RankProcessors& other) {
                         return other.host == ranks[rank].host && CPU_ISSET(processor, &other.mask);
                       }));
  }
  constexpr double rounding = 1e-6;  // of the sum: 1/3 + 1/3 + 1/3 is one thread
  return std::clamp(static_cast<int>(share + rounding), 1, max_threads);
}

std::string share_processors(Ranks& ranks, int threads) {
  const std::vector<RankProcessors> all =
      all_gather(ranks, "processors of each rank", own_processors());
  if (threads > 0) {
    set_thread_count(threads);
  } else if (!std::getenv("OMP_NUM_THREADS")) {
    set_thread_count(threads_of(static_cast<std::size_t>(ranks.rank()), all));
  }
  return line(all, all_gather(ranks, "threads of each rank", thread_count()));
}

Device gpu_of_rank(Ranks& ranks) {
  const std::vector<Host> hosts = all_gather(ranks, "hosts of each rank's GPU", own_host());
  const auto before = std::count(hosts.begin(), hosts.begin() + ranks.rank(),
                                 hosts[static_cast<std::size_t>(ranks.rank())]);
  return {DeviceKind::cuda, static_cast<int>(before % std::ssize(cuda_runtime().devices()))};
}

}  // namespace sotto
