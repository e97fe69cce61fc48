// Multi-level optimisation: problems whose variables are settings of one another, solved together
// with gradients through the solutions of the lower ones (Choe et al. 2022, Betty).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "multilevel/level_options.h"
#include "multilevel/lower_problem.h"
#include "multilevel/problem.h"
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
  ~Levels();

  // Steps every problem that has none below it, and then each upper problem whose lower problems
  // have all completed a cycle.
  void step();
  // Makes `iterations` steps, or fewer: stops after a step for which `go_on` is false.
  void run(std::int64_t iterations, const std::function<bool()>& go_on = {});

  // Calls of step() so far, those before a loaded state included.
  std::int64_t iterations() const;
  // The steps that a problem has made. Throws std::invalid_argument for a name without a problem.
  std::int64_t steps(const std::string& problem) const;
  // The mean loss of a problem's last step. Throws as steps() does.
  double loss(const std::string& problem) const;

  // The state of training, for save_safetensors(): variables, optimizers, counters and the values
  // for the roll-back. The tensors are copies.
  NamedTensors state() const;
  // Continues from a state. Throws std::invalid_argument, with the entry's name, for one that is
  // missing, of no problem, or of another shape or dtype; problems before it have then changed.
  void load_state(const NamedTensors& state);

 private:
  struct Solver;
  std::unique_ptr<Solver> solver_;
};

}  // namespace sotto::multilevel
