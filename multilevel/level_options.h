// The options of Levels: the edges between problems, and how their updates are made.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace sotto {
class Ranks;
}

namespace sotto::multilevel {

struct Edge {
  std::string from, to;  // names of problems
};

struct LevelOptions {
  // The parameters of `from` act on the solution of `to`; the gradient of `from` includes this
  // path.
  std::vector<Edge> upper_to_lower = {};
  // The loss of `to` reads the solution of `from`, and `to` waits for it.
  std::vector<Edge> lower_to_upper = {};
  // A cycle ends when the upper problems step. If true, the lower problems' weights then return to
  // the cycle's start (the first cycle starts before the warm-up), and make one update with the
  // cycle's last batch under the new upper parameters (Shu et al. 2019, Meta-Weight-Net). Without
  // it, the updates stay, and one gradient is saved.
  bool roll_back = false;
  // Data parallelism: the ranks of a distributed run; null: one process. Each rank computes about
  // as many rows of every batch, and all make the updates of one process but for rounding, with
  // equal bits on all ranks. Functions of the problems, but for losses and weights, are called for
  // the whole batch on every rank, and must return the same there.
  std::shared_ptr<Ranks> ranks = {};
};

}  // namespace sotto::multilevel
