// The time of a step on a network that there is not: what the ranks computed is measured by the
// processor time of their threads, so that other work on the machine does not count; what the
// messages need follows from a latency and a bandwidth.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <vector>

#include "core/error.h"
#include "tests/support/metered_ranks.h"

namespace sotto {

struct PlantedNetwork {
  double latency = 0;           // seconds of each message
  double bytes_per_second = 0;  // of what one rank sends; 0: no limit
  bool orders_at_once = false;  // what rank 0 deals arrives when it leaves
};

// The seconds until the last rank has made its events, of ranks that make the same operations in
// the same order (MeteredRanks::events). A rank's bytes leave one operation after the other; what
// others send arrives `latency` after it left.
class PlantedRun {
 public:
  PlantedRun(const PlantedNetwork& network, const std::vector<std::vector<RankEvent>>& ranks)
      : network_(network), ranks_(ranks), states_(ranks.size()) {}

  double seconds() {
    for (bool moved = true; moved;) {
      moved = false;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
        while (states_[rank].next < ranks_[rank].size() && advance(rank)) moved = true;
    }
    double last = 0;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      check(states_[rank].next == ranks_[rank].size(), "planted network: rank {} waits for ever",
            rank);
      last = std::max(last, states_[rank].now);
    }
    return last;
  }

 private:
  struct State {
    double now = 0, computed = 0, free = 0;  // `free`: when what was sent before has left
    std::size_t next = 0;
    std::map<std::int64_t, double> arrival;  // at the others, by operation
  };

  // Makes the rank's next event; false if it waits for one that was not made yet.
  bool advance(std::size_t rank) {
    State& state = states_[rank];
    const RankEvent& event = ranks_[rank][state.next];
    double now = state.now + (event.resumes ? 0 : event.computed - state.computed);
    if (event.waits) {
      const std::optional<double> arrival = arrival_at(rank, event);
      if (!arrival) return false;
      now = std::max(now, *arrival);
    } else if (event.sends) {
      state.free = std::max(state.free, now);
      if (network_.bytes_per_second > 0)
        state.free += static_cast<double>(event.bytes) / network_.bytes_per_second;
      const bool at_once = network_.orders_at_once && event.deals;
      state.arrival[event.operation] = at_once ? now : state.free + network_.latency;
    }
    state.now = now;
    state.computed = event.computed;
    ++state.next;
    return true;
  }

  std::optional<double> arrival_at(std::size_t rank, const RankEvent& event) const {
    double last = 0;
    for (std::size_t from = 0; from < ranks_.size(); ++from) {
      if (from == rank || (event.from_rank_0 && from != 0)) continue;
      const auto found = states_[from].arrival.find(event.operation);
      if (found == states_[from].arrival.end()) return std::nullopt;
      last = std::max(last, found->second);
    }
    return last;
  }

  PlantedNetwork network_;
  const std::vector<std::vector<RankEvent>>& ranks_;
  std::vector<State> states_;
};

}  // namespace sotto
