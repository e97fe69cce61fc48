// The graph of problems: the plan computed from its edges, and everything wrong with it. For the
// sources of this folder.
#pragma once

#include <optional>
#include <vector>

#include "multilevel/level_options.h"
#include "multilevel/problem.h"

namespace sotto::multilevel {

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
