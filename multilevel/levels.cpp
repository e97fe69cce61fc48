#include "multilevel/levels.h"

#include <algorithm>
#include <deque>
#include <set>

#include "core/error.h"
#include "core/ranks/one_rank.h"
#include "multilevel/level.h"
#include "multilevel/level_graph.h"
#include "nn/optim/rank_sink.h"

namespace sotto::multilevel {

namespace {

std::vector<Parameter*> all_parameters(const std::vector<Problem>& problems) {
  std::vector<Parameter*> all;
  for (const Problem& problem : problems) {
    for (const auto& [name, parameter] : problem.variables.parameters) all.push_back(parameter);
  }
  return all;
}

}  // namespace

struct Levels::Solver {
  Solver(const std::vector<Problem>& problems, const LevelOptions& options);
  void step();
  NamedTensors state() const;
  void load_state(const NamedTensors& state);
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

Levels::Solver::Solver(const std::vector<Problem>& problems, const LevelOptions& options)
    : options_(options),
      plan_(plan_levels(problems, options)),
      ready_(problems.size()),
      cycle_begins_(problems.size(), true) {
  const std::vector<Parameter*> all = all_parameters(problems);
  options_.ranks = ranks_or_one(options.ranks);
  nn::broadcast_values(*options_.ranks, all);
  for (const Problem& problem : problems) levels_.emplace_back(problem, all, *options_.ranks);
}

void Levels::Solver::step() {
  for (const std::vector<Turn>& turns : plan_.passes) {
    const bool ended = walk(turns, [&](std::size_t p) { return advance(p); });
    if (ended && options_.roll_back) {
      walk(turns, [&](std::size_t p) {
        redo(p);
        return true;
      });
    }
  }
  for (Level& level : levels_) level.drop_kept_rows();
  ++iterations_;
}

// Calls act for the problems of a pass that are due; act returns whether the problems above are
// called. Returns that of the leaf.
bool Levels::Solver::walk(const std::vector<Turn>& turns,
                          const std::function<bool(std::size_t)>& act) {
  std::vector<bool> calls(turns.size());
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const Turn& turn = turns[i];
    std::set<std::size_t>& ready = ready_[turn.problem];
    if (turn.called_by) {
      if (!calls[*turn.called_by]) continue;
      ready.insert(turns[*turn.called_by].problem);
    }
    if (ready.size() < plan_.nodes[turn.problem].below.size()) continue;
    ready.clear();
    calls[i] = act(turn.problem);
  }
  return calls[0];
}

// Makes a problem's turn; returns whether a cycle has ended.
bool Levels::Solver::advance(std::size_t p) {
  Level& level = levels_[p];
  const Problem& problem = level.problem();
  if (options_.roll_back && cycle_begins_[p] && !plan_.nodes[p].above.empty()) level.keep();
  const std::int64_t cycle = problem.unroll_steps * problem.steps_per_update;
  const std::int64_t after = level.steps() + problem.steps_per_turn;
  const bool ends = after / cycle > level.steps() / cycle && after > problem.warmup_steps;
  const bool keeps_rows = problem.response.keeps_rows && !plan_.nodes[p].above.empty();
  while (level.steps() < after) {
    level.next_batch();
    descend(p, keeps_rows && ends && level.steps() == after);
  }
  return cycle_begins_[p] = ends;
}

void Levels::Solver::redo(std::size_t p) {
  if (plan_.nodes[p].above.empty()) return;
  levels_[p].drop_kept_rows();
  levels_[p].restore();
  descend(p);
}

// One step of descent on the batch that the problem has.
void Levels::Solver::descend(std::size_t p, bool keep_rows) {
  std::optional<Gradients> total;
  try {
    total = gradient(p, keep_rows);
  } catch (const GradientOverflow&) {
  }
  levels_[p].add(std::move(total));
}

// The direct gradient, and that through every path of solutions.
Gradients Levels::Solver::gradient(std::size_t p, bool keep_rows) {
  Level& level = levels_[p];
  std::vector<Parameter*> wanted = level.parameters();
  std::set<std::size_t> read;
  for (const auto& path : plan_.nodes[p].paths) {
    if (!read.insert(path.back()).second) continue;
    const std::vector<Parameter*>& theirs = levels_[path.back()].parameters();
    wanted.insert(wanted.end(), theirs.begin(), theirs.end());
  }
  const Gradients all = keep_rows ? level.gradient_keeping_rows(wanted) : level.gradient(wanted);
  Gradients total = ordered(all, level.parameters());
  for (const auto& path : plan_.nodes[p].paths) {
    const Gradients v = ordered(all, levels_[path.back()].parameters());
    add_scaled(1, through_path(p, path, v), total);
  }
  return total;
}

// R(r_1, p) R(r_2, r_1) ... R(r_m, r_{m-1}) v for the path r_1, ..., r_m.
Gradients Levels::Solver::through_path(std::size_t p, const std::vector<std::size_t>& path,
                                       Gradients v) {
  for (std::size_t k = path.size(); k-- > 0;) {
    Level& lower = levels_[path[k]];
    const Level& next = levels_[k == 0 ? p : path[k - 1]];
    v = lower.problem().response.apply(lower, v, next.parameters());
  }
  return v;
}

const Level& Levels::Solver::level(const std::string& problem) const {
  const auto found = std::find_if(levels_.begin(), levels_.end(), [&](const Level& level) {
    return level.problem().name == problem;
  });
  check(found != levels_.end(), "Levels: no problem {}", problem);
  return *found;
}

NamedTensors Levels::Solver::state() const {
  std::vector<std::int64_t> numbers{iterations_};
  for (std::size_t p = 0; p < levels_.size(); ++p) {
    numbers.push_back(cycle_begins_[p]);
    for (const std::size_t below : plan_.nodes[p].below)
      numbers.push_back(ready_[p].contains(below));
  }
  NamedTensors state;
  state.emplace("levels", Tensor::from(numbers, {std::ssize(numbers)}));
  for (const Level& level : levels_) {
    for (const auto& [name, tensor] : level.state())
      state.emplace(level.problem().name + "/" + name, tensor);
  }
  return state;
}

void Levels::Solver::load_state(const NamedTensors& state) {
  const NamedTensors own = this->state();
  const auto at = state.find("levels");
  check(at != state.end() && at->second.dtype() == Dtype::i64 &&
            at->second.shape() == own.at("levels").shape(),
        "Levels: the state is not one of these problems");
  std::vector<NamedTensors> parts(levels_.size());
  for (const auto& [name, tensor] : state) {
    if (name == "levels") continue;
    const std::size_t slash = name.find('/');
    const std::string problem = name.substr(0, slash);
    const auto found = std::find_if(levels_.begin(), levels_.end(), [&](const Level& level) {
      return level.problem().name == problem;
    });
    check(found != levels_.end(), "Levels: the state has {}, of no problem", name);
    parts[static_cast<std::size_t>(found - levels_.begin())].emplace(name.substr(slash + 1),
                                                                     tensor);
  }
  for (std::size_t p = 0; p < levels_.size(); ++p) levels_[p].load_state(parts[p]);
  const auto numbers = at->second.to_vector<std::int64_t>();
  auto next = numbers.begin();
  iterations_ = *next++;
  for (std::size_t p = 0; p < levels_.size(); ++p) {
    cycle_begins_[p] = *next++ != 0;
    ready_[p].clear();
    for (const std::size_t below : plan_.nodes[p].below) {
      if (*next++ != 0) ready_[p].insert(below);
    }
  }
}

Levels::Levels(std::vector<Problem> problems, const LevelOptions& options)
    : solver_(new Solver(problems, options)) {}
Levels::~Levels() = default;

void Levels::step() { solver_->step(); }

void Levels::run(std::int64_t iterations, const std::function<bool()>& go_on) {
  for (std::int64_t k = 0; k < iterations; ++k) {
    step();
    if (go_on && !go_on()) return;
  }
}

std::int64_t Levels::iterations() const { return solver_->iterations_; }
std::int64_t Levels::steps(const std::string& problem) const {
  return solver_->level(problem).steps();
}
double Levels::loss(const std::string& problem) const {
  return solver_->level(problem).mean_loss();
}
NamedTensors Levels::state() const { return solver_->state(); }
void Levels::load_state(const NamedTensors& state) { solver_->load_state(state); }

}  // namespace sotto::multilevel
