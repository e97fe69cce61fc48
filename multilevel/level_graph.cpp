#include "multilevel/level_graph.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/error.h"
#include "core/join.h"

namespace sotto::multilevel {

namespace {

using Faults = std::vector<std::string>;

template <class... Args>
void require(bool ok, Faults& faults, fmt::format_string<Args...> text, Args&&... args) {
  if (!ok) faults.push_back(fmt::format(text, std::forward<Args>(args)...));
}

void check_numbers(const Problem& p, Faults& faults) {
  require(p.unroll_steps >= 1, faults, "{}: unroll_steps is {}", p.name, p.unroll_steps);
  require(p.warmup_steps >= 0, faults, "{}: warmup_steps is {}", p.name, p.warmup_steps);
  require(p.steps_per_turn >= 1, faults, "{}: steps_per_turn is {}", p.name, p.steps_per_turn);
  require(p.steps_per_update >= 1, faults, "{}: steps_per_update is {}", p.name,
          p.steps_per_update);
  require(p.max_norm >= 0 && std::isfinite(p.max_norm), faults, "{}: max_norm is {}", p.name,
          p.max_norm);
  for (const std::string& text : p.policy.problems())
    faults.push_back(fmt::format("{}: {}", p.name, text));
  require(!p.policy.checkpoint || p.variables.module, faults,
          "{}: activation checkpoints need a module", p.name);
}

void check_problem(const Problem& p, std::map<const Parameter*, std::string>& owners,
                   Faults& faults) {
  require(!p.name.empty() && p.name.find('/') == std::string::npos, faults,
          "the name {:?} is empty or has a slash", p.name);
  require(p.loss != nullptr, faults, "{}: no loss", p.name);
  require(p.batches != nullptr, faults, "{}: no batches", p.name);
  require(!p.response.needs_weights || p.weights, faults,
          "{}: its response needs the weights of rows, and it has none", p.name);
  const std::string fault = p.response.fault ? p.response.fault(p) : "";
  require(fault.empty(), faults, "{}: {}", p.name, fault);
  std::set<const Parameter*> own;
  for (const auto& [name, parameter] : p.variables.parameters) {
    const auto [owner, first] = owners.emplace(parameter, p.name);
    require(first || owner->second == p.name, faults, "{}: {} is a variable of {}, too", p.name,
            name, owner->second);
    own.insert(parameter);
  }
  for (const Parameter* parameter : p.optimizer.parameters()) {
    require(own.contains(parameter), faults,
            "{}: its optimizer holds a parameter {} that is no variable of it", p.name,
            parameter->value.shape());
  }
  require(!p.optimizer.parameters().empty(), faults, "{}: its optimizer holds nothing", p.name);
  check_numbers(p, faults);
}

// Edges by number; those with unknown names are reported and left out.
std::vector<std::pair<std::size_t, std::size_t>> numbered(const std::vector<Problem>& problems,
                                                          const std::vector<Edge>& edges,
                                                          const char* list, Faults& faults) {
  const auto place = [&](const std::string& name) {
    const auto found = std::find_if(problems.begin(), problems.end(),
                                    [&](const Problem& p) { return p.name == name; });
    return static_cast<std::size_t>(found - problems.begin());
  };
  std::vector<std::pair<std::size_t, std::size_t>> numbers;
  for (const Edge& edge : edges) {
    const std::pair ends{place(edge.from), place(edge.to)};
    const bool known = std::max(ends.first, ends.second) < problems.size();
    const bool twice = std::find(numbers.begin(), numbers.end(), ends) != numbers.end();
    require(known, faults, "{}: {} -> {} names no problem", list, edge.from, edge.to);
    require(!known || ends.first != ends.second, faults, "{}: {} -> itself", list, edge.from);
    require(!known || !twice, faults, "{}: {} -> {} twice", list, edge.from, edge.to);
    if (known && !twice && ends.first != ends.second) numbers.push_back(ends);
  }
  return numbers;
}

// Appends all chains along `above` that begin with `path` and end below `to`.
void find_paths(const LevelPlan& plan, std::size_t to, std::vector<std::size_t>& path,
                std::vector<std::vector<std::size_t>>& paths) {
  for (const std::size_t next : plan.nodes[path.back()].above) {
    if (next == to) {
      paths.push_back(path);
      continue;
    }
    path.push_back(next);
    find_paths(plan, to, path, paths);
    path.pop_back();
  }
}

// Makes `path` a chain along `above` that ends where it began, if one leads from its last problem
// back to one on it. Returns whether it did.
bool find_cycle(const LevelPlan& plan, std::vector<std::size_t>& path,
                std::set<std::size_t>& done) {
  if (done.contains(path.back())) return false;
  for (const std::size_t next : plan.nodes[path.back()].above) {
    const auto before = std::find(path.begin(), path.end(), next);
    const bool closed = before != path.end();
    if (closed) path.erase(path.begin(), before);
    path.push_back(next);
    if (closed || find_cycle(plan, path, done)) return true;
    path.pop_back();
  }
  done.insert(path.back());
  return false;
}

// The names along a cycle, "a -> b -> a"; empty if there is none.
std::string cycle_in(const LevelPlan& plan, const std::vector<Problem>& problems) {
  std::set<std::size_t> done;
  for (std::size_t p = 0; p < plan.nodes.size(); ++p) {
    std::vector<std::size_t> path{p};
    if (!find_cycle(plan, path, done)) continue;
    std::vector<std::string> names;
    for (const std::size_t k : path) names.push_back(problems[k].name);
    return join(names, " -> ");
  }
  return {};
}

void add_turns(const LevelPlan& plan, const Turn& turn, std::vector<Turn>& turns) {
  const std::size_t place = turns.size();
  turns.push_back(turn);
  for (const std::size_t above : plan.nodes[turn.problem].above)
    add_turns(plan, {above, place}, turns);
}

// Adds the plan's paths for the edges along which problems act; reports their faults.
void add_paths(const std::vector<Problem>& problems,
               const std::vector<std::pair<std::size_t, std::size_t>>& acting, LevelPlan& plan,
               Faults& faults) {
  std::set<std::size_t> without_response;
  for (const auto& [upper, lower] : acting) {
    std::vector<std::size_t> path{lower};
    std::vector<std::vector<std::size_t>> paths;
    find_paths(plan, upper, path, paths);
    require(!paths.empty(), faults, "{} acts on {}, but no edges of lower_to_upper lead back",
            problems[upper].name, problems[lower].name);
    for (const auto& found : paths) {
      for (const std::size_t r : found) {
        if (!problems[r].response.apply) without_response.insert(r);
      }
      plan.nodes[upper].paths.push_back(found);
    }
  }
  for (const std::size_t r : without_response)
    faults.push_back(
        fmt::format("{}: a problem above acts on it, and it has no response", problems[r].name));
}

void check_ranks(const std::vector<Problem>& problems, Faults& faults) {
  for (const Problem& p : problems) {
    require(p.policy.limit == 0 || p.policy.precision, faults,
            "{}: ranks with a memory limit need a precision, as each might plan another", p.name);
  }
}

// Rows are kept within one step of the graph, and their gradients are not scaled.
void check_kept_rows(const std::vector<Problem>& problems, const LevelPlan& plan, Faults& faults) {
  for (std::size_t p = 0; p < problems.size(); ++p) {
    if (!problems[p].response.keeps_rows) continue;
    require(problems[p].policy.precision != Dtype::f16 && problems[p].policy.limit == 0, faults,
            "{}: a response that keeps rows goes neither with f16 nor with a memory limit",
            problems[p].name);
    std::vector<std::size_t> reached{p};
    for (std::size_t k = 0; k < reached.size(); ++k) {
      for (const std::size_t above : plan.nodes[reached[k]].above) reached.push_back(above);
      require(k == 0 || plan.nodes[reached[k]].below.size() == 1, faults,
              "{}: a response that keeps rows, and {} waits for other problems, too",
              problems[p].name, problems[reached[k]].name);
    }
  }
}

void check_roll_back(const std::vector<Problem>& problems, const LevelPlan& plan, Faults& faults) {
  for (std::size_t p = 0; p < problems.size(); ++p) {
    require(plan.nodes[p].above.empty() || problems[p].steps_per_update == 1, faults,
            "{}: roll_back with steps_per_update {}", problems[p].name,
            problems[p].steps_per_update);
  }
}

}  // namespace

LevelPlan plan_levels(const std::vector<Problem>& problems, const LevelOptions& options) {
  Faults faults;
  std::set<std::string> names;
  std::map<const Parameter*, std::string> owners;
  require(!problems.empty(), faults, "no problems");
  for (const Problem& p : problems) {
    require(names.insert(p.name).second, faults, "two problems are called {}", p.name);
    check_problem(p, owners, faults);
  }
  LevelPlan plan{.passes = {}, .nodes = std::vector<LevelPlan::Node>(problems.size())};
  for (const auto& [lower, upper] :
       numbered(problems, options.lower_to_upper, "lower_to_upper", faults)) {
    plan.nodes[lower].above.push_back(upper);
    plan.nodes[upper].below.push_back(lower);
  }
  const auto acting = numbered(problems, options.upper_to_lower, "upper_to_lower", faults);
  const std::string cycle = cycle_in(plan, problems);
  require(cycle.empty(), faults, "lower_to_upper: {} is a cycle", cycle);
  if (cycle.empty()) {
    add_paths(problems, acting, plan, faults);
    check_kept_rows(problems, plan, faults);
  }
  if (options.roll_back) check_roll_back(problems, plan, faults);
  if (options.ranks) check_ranks(problems, faults);
  check(faults.empty(), "Levels: {}", join(faults, "; "));
  for (std::size_t p = 0; p < problems.size(); ++p) {
    if (!plan.nodes[p].below.empty()) continue;
    add_turns(plan, {p, std::nullopt}, plan.passes.emplace_back());
  }
  return plan;
}

}  // namespace sotto::multilevel
