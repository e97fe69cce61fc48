// The graph of problems: its edges, the plan computed from them, and everything wrong with it. For
// the sources of this folder, but for the edges.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/ranks/ranks.h"
#include "multilevel/problem.h"

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

// A problem's turn in the pass of a leaf.
struct Turn {
  std::size_t problem;  // its index
  // The turn, in the same pass, of the problem below that calls this one; none for the leaf.
  std::optional<std::size_t> called_by;
};

// The order of turns, and the paths of hypergradients.
struct LevelPlan {
  // For each problem without one below it, the turns of its pass in order.
  std::vector<std::vector<Turn>> passes;
  // For each problem those next above and below it, and the chains r_1, ..., r_m from each problem
  // that it acts on up to one that its loss reads.
  struct Node {
    std::vector<std::size_t> above;               // next above
    std::vector<std::size_t> below;               // next below
    std::vector<std::vector<std::size_t>> paths;  // the chains
  };
  std::vector<Node> nodes;  // one for each problem
};

// Throws std::invalid_argument with everything that is wrong with problems and edges.
LevelPlan plan_levels(const std::vector<Problem>& problems, const LevelOptions& options);

}  // namespace sotto::multilevel
