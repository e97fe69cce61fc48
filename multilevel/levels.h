// Multi-level optimisation: problems whose variables are settings of one another, solved together
// with gradients through the solutions of the lower ones (Choe et al. 2022, Betty).
#pragma once

#include <deque>
#include <functional>
#include <set>

#include "multilevel/level.h"
#include "multilevel/level_graph.h"
#include "multilevel/responses.h"

namespace sotto::multilevel {

// Solves problems in the order of their graph:
//
//   multilevel::Levels levels({classifier, weigher},
//                             {.upper_to_lower = {{"weigher", "classifier"}},
//                              .lower_to_upper = {{"classifier", "weigher"}}});
//   levels.run(1000);
//
// Modules and optimizers must outlive it.
class Levels {
 public:
  // Throws std::invalid_argument with everything that is wrong with the problems and edges.
  Levels(std::vector<Problem> problems, const LevelOptions& options);

  // Steps every problem that has none below it, and then each upper problem whose lower problems
  // have all completed a cycle.
  void step();
  // Makes `iterations` steps, or fewer: stops after a step for which `go_on` is false.
  void run(std::int64_t iterations, const std::function<bool()>& go_on = {});

  // Calls of step() so far, those before a loaded state included.
  std::int64_t iterations() const { return iterations_; }
  // The steps that a problem has made. Throws std::invalid_argument for a name without a problem.
  std::int64_t steps(const std::string& problem) const { return level(problem).steps(); }
  // The mean loss of a problem's last step. Throws as steps() does.
  double loss(const std::string& problem) const { return level(problem).mean_loss(); }

  // The state of training, for save_safetensors(): variables, optimizers, counters and the values
  // for the roll-back. The tensors are copies.
  NamedTensors state() const;
  // Continues from a state. Throws std::invalid_argument, with the entry's name, for one that is
  // missing, of no problem, or of another shape or dtype; problems before it have then changed.
  void load_state(const NamedTensors& state);

 private:
  const Level& level(const std::string& problem) const;
  bool walk(const std::vector<Turn>& turns, const std::function<bool(std::size_t)>& act);
  bool advance(std::size_t p);
  void descend(std::size_t p, bool keep_rows = false);
  Gradients gradient(std::size_t p, bool keep_rows);
  Gradients through_path(std::size_t p, const std::vector<std::size_t>& path, Gradients v);
  void redo(std::size_t p);

  LevelOptions options_;
  LevelPlan plan_;
  std::deque<Level> levels_;  // which stay at their addresses
  // For each problem, those below it whose cycle has ended since its last turn.
  std::vector<std::set<std::size_t>> ready_;
  std::vector<bool> cycle_begins_;
  std::int64_t iterations_ = 0;
};

}  // namespace sotto::multilevel
