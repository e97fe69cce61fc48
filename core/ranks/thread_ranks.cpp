#include "core/ranks/thread_ranks.h"

#include <exception>
#include <thread>

#include "core/error.h"
#include "core/ranks/message_ranks.h"
#include "core/ranks/rank_failure.h"
#include "core/ranks/thread_link.h"

namespace sotto {

std::vector<std::unique_ptr<Ranks>> make_thread_ranks(int size, const ThreadRanksOptions& options) {
  check(size > 0, "make_thread_ranks: {} ranks", size);
  const std::vector<double>& latency = options.rank_latency_seconds;
  check(latency.empty() || latency.size() == static_cast<std::size_t>(size),
        "make_thread_ranks: {} latencies for {} ranks", latency.size(), size);
  const auto hub = make_thread_hub(size, options);
  std::vector<std::unique_ptr<Ranks>> ranks;
  for (int k = 0; k < size; ++k) {
    const auto make = [&hub, k] { return make_thread_link(hub, k); };
    ranks.push_back(std::make_unique<MessageRanks>(make, options.limits));
  }
  return ranks;
}

void on_thread_ranks(int size, const std::function<void(Ranks&)>& body,
                     const ThreadRanksOptions& options) {
  const auto ranks = make_thread_ranks(size, options);
  // Those of the ranks that failed; and of those that failed with them.
  std::vector<std::exception_ptr> own(ranks.size()), others(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t k = 0; k < ranks.size(); ++k) {
    threads.emplace_back([&, k] {
      try {
        body(*ranks[k]);
      } catch (const RankFailure&) {
        others[k] = std::current_exception();
      } catch (const std::exception& exception) {
        own[k] = std::current_exception();
        ranks[k]->fail(exception.what());
      } catch (...) {
        own[k] = std::current_exception();
        ranks[k]->fail("threw something that is no std::exception");
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto* found : {&own, &others})
    for (const std::exception_ptr& exception : *found)
      if (exception) std::rethrow_exception(exception);
}

}  // namespace sotto
