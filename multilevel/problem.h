// A problem of multi-level optimisation: its variables, loss and rows, and the number of its steps.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "memory/planning/policy.h"
#include "multilevel/pass.h"
#include "nn/optim/optimizer.h"
#include "nn/optim/schedule.h"

namespace sotto::multilevel {

class LowerProblem;
struct Problem;

// The variables of a problem: the parameters of a module, or bare ones with their names.
struct Variables {
  // All parameters of a module, which must outlive this.
  Variables(nn::Module& module) : parameters(module.named_parameters()), module(&module) {}
  // Bare parameters, which must outlive this.
  Variables(nn::NamedParameters named) : parameters(std::move(named)) {}

  nn::NamedParameters parameters;  // with their names
  nn::Module* module = nullptr;    // null for bare parameters
};

// One loss for each row, [rows]. It may read the parameters of every problem; those without a path
// in the graph are constants.
using Loss = std::function<Var(Pass& pass)>;
// The weights of rows, [rows], from their losses, which are constants.
using Weights = std::function<Var(Pass& pass, const Var& losses)>;
// The rows of batch number 0, 1, ...; a function of the number alone, so that training can resume.
using Batches = std::function<std::vector<std::int64_t>(std::int64_t number)>;

// Batches of `batch` rows in an order that is drawn for each epoch (ShuffledBatches).
Batches shuffled_batches(std::int64_t rows, std::int64_t batch, std::uint64_t seed);

// The response of a lower problem's solution w to other parameters u: (dw/du)^T v or an
// approximation of it, in units of the lower gradient (without its learning rate). responses.h has
// several; a function of your own will do, too.
struct Response {
  // v has an entry for each parameter of the lower problem, the result one for each of `u`.
  using Apply = std::function<Gradients(LowerProblem& lower, const Gradients& v,
                                        const std::vector<Parameter*>& u)>;
  Apply apply = {};             // the map
  bool keeps_gradient = false;  // needs LowerProblem::last_gradient()
  bool needs_weights = false;   // needs Problem::weights
  bool keeps_rows = false;      // keeps the rows of the last step
  // Returns why the response does not suit the lower problem; empty if it does.
  std::function<std::string(const Problem& lower)> fault = {};
};

// Learns the variables of its optimizer; its other parameters are frozen. It minimises the mean
// over the rows of loss, or of weights(loss) loss.
struct Problem {
  std::string name;          // in edges, states and errors
  Variables variables;       // that it learns
  nn::Optimizer& optimizer;  // of some of the variables
  Loss loss;                 // of each row
  Weights weights = {};      // of rows; none: 1
  Batches batches;           // the rows of each step
  // Needed where a problem above acts on this one.
  Response response = {};
  // Steps between two turns of the problems above.
  std::int64_t unroll_steps = 1;
  // The number of first steps during which the problems above wait.
  std::int64_t warmup_steps = 0;
  // Steps at each turn, each with a batch of its own.
  std::int64_t steps_per_turn = 1;
  // Steps per update, which uses the mean of their gradients. The problems below may change between
  // these steps; policy.accumulation instead splits one batch, which affects only memory.
  std::int64_t steps_per_update = 1;
  // Bounds the norm over all variables of each update's gradient; 0: none.
  double max_norm = 0;
  std::optional<nn::Schedule> schedule = {};  // by the number of updates
  memory::Policy policy = {};                 // pieces, type and limit of a step
  std::uint64_t seed = 0;                     // of dropout
  // Receives each update's gradients before they are clipped, and may change them.
  std::function<void(Gradients& gradients)> before_update = {};
  // Called after each update, for example to project the parameters onto a set.
  std::function<void()> after_update = {};
};

}  // namespace sotto::multilevel
