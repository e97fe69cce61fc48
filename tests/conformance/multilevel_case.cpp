#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "kernels/tensor_ops/tensor_ops.h"
#include "multilevel/levels.h"
#include "tests/conformance/kinds.h"

namespace sotto::conformance {

namespace {

using multilevel::Edge;
using multilevel::Levels;
using multilevel::Pass;
using multilevel::Problem;
using multilevel::Response;

// Products with the Hessian are differences of gradients here. The format allows them so much of a
// tensor's largest magnitude in f64, and no more than all in f32.
constexpr double allowed_in_f64 = 1e-6;
// Whole runs are differences of losses, whose rounding is divided by the step.
constexpr double allowed_of_whole_runs = 1e-9;

// A case's problems, ready to be solved from their start values.
class Optimisation {
 public:
  Optimisation(const Case& c, Dtype dtype);
  Optimisation(const Optimisation&) = delete;
  Optimisation& operator=(const Optimisation&) = delete;

  std::vector<Problem>& problems() { return problems_; }
  Parameter& parameter(const std::string& name) {
    const auto found = parameters_.find(name);
    if (found == parameters_.end()) throw Malformed("no parameter " + name);
    return found->second;
  }
  std::vector<std::string> names_of(const std::string& problem) const;

 private:
  void add(const Json& problem);
  Var loss(const Json& problem, Pass& pass);

  const Case& c_;
  Dtype dtype_;
  Parameters parameters_;
  std::deque<std::unique_ptr<nn::Optimizer>> optimizers_;
  std::vector<Problem> problems_;
};

std::vector<Json> list(const Json& object, const char* name) {
  return field<std::vector<Json>>(object, name);
}

std::vector<Edge> edges(const Case& c, const char* name) {
  std::vector<Edge> edges;
  for (const auto& [from, to] :
       field<std::vector<std::pair<std::string, std::string>>>(c.body, name))
    edges.push_back({from, to});
  return edges;
}

Response sama(const Json& problem, const multilevel::Differences& differences) {
  const Json optimizer = field<Json>(problem, "optimizer");
  if (field<std::string>(optimizer, "type") != "Adam")
    return multilevel::finite_differences(differences);
  const Json options = field<Json>(optimizer, "options");
  nn::AdamRule<false> rule{.eps = field<double>(options, "eps")};
  std::tie(rule.beta1, rule.beta2) = field<std::pair<double, double>>(options, "betas");
  return multilevel::adam_derivative(rule, differences);
}

// darts and sama see other detached values at other parameters, as the format says.
Response response(const Json& problem) {
  const Json method = field<Json>(problem, "hypergradient");
  if (method.is_null()) return {};
  const auto name = field<std::string>(method, "method");
  if (name == "cg")
    return multilevel::conjugate_gradients({.iterations = field<int>(method, "iterations")});
  const auto alpha = field<double>(method, "alpha");
  if (name == "neumann")
    return multilevel::neumann({.iterations = field<int>(method, "iterations"), .rate = alpha});
  const multilevel::Differences moved{.step = alpha, .hold_detached = false};
  if (name == "darts") return multilevel::finite_differences(moved);
  if (name == "sama") return sama(problem, moved);
  throw Malformed("method is " + name);
}

Optimisation::Optimisation(const Case& c, Dtype dtype) : c_(c), dtype_(dtype) {
  make_parameters(c, dtype, parameters_);
  for (const Json& problem : list(c.body, "problems")) add(problem);
}

std::vector<std::string> Optimisation::names_of(const std::string& problem) const {
  std::vector<std::string> names;
  for (const auto& [name, parameter] : parameters_) {
    if (name.starts_with(problem + ".")) names.push_back(name);
  }
  return names;
}

void Optimisation::add(const Json& problem) {
  const auto name = field<std::string>(problem, "name");
  nn::NamedParameters named;
  std::vector<Parameter*> own;
  for (const Json& entry : list(problem, "params")) {
    const auto param = field<std::string>(entry, "name");
    named.emplace_back(param, &parameter(name + "." + param));
    own.push_back(named.back().second);
  }
  const Json optimizer = field<Json>(problem, "optimizer");
  Json options = field<Json>(optimizer, "options");
  options.emplace("maximize", false);  // cases of this kind do not say
  optimizers_.push_back(make_optimizer(field<std::string>(optimizer, "type"), {{options, own}}));
  const auto batches = field<std::int64_t>(problem, "batches");
  problems_.push_back(
      {.name = name,
       .variables = named,
       .optimizer = *optimizers_.back(),
       .loss = [this, problem](Pass& pass) { return loss(problem, pass); },
       .batches = [batches](std::int64_t number) { return std::vector{number % batches}; },
       .response = response(problem),
       .unroll_steps = field<std::int64_t>(problem, "unroll_steps"),
       .warmup_steps = field<std::int64_t>(problem, "warmup_steps"),
       .steps_per_update = field<std::int64_t>(problem, "gradient_accumulation"),
       .max_norm = field<double>(problem, "gradient_clipping")});
}

// A batch is one row here: the program says itself how its rows are reduced.
Var Optimisation::loss(const Json& problem, Pass& pass) {
  const auto name = field<std::string>(problem, "name");
  Values values;
  for (const auto& data : field<std::vector<std::string>>(problem, "data")) {
    const Tensor all = in_dtype(c_.tensor("in." + name + "." + data).value, dtype_);
    values.emplace(
        data, pass.tape.constant(contiguous(all.select(0, pass.rows[0])), SampleAxis::mixed()));
  }
  for (auto& [known, parameter] : parameters_) values.emplace(known, pass.tape.use(parameter));
  for (const Json& step : list(problem, "program")) {
    if (field<std::string>(step, "op") == "detach") {
      const auto x = field<std::string>(field<Json>(step, "in"), "x");
      if (!values.count(x)) throw Malformed("program: no value " + x);
      values.emplace(field<std::string>(field<Json>(step, "out"), "y"), pass.detach(values.at(x)));
    } else {
      values = run_program(Json::array({step}), std::move(values), pass.tape);
    }
  }
  const auto output = field<std::string>(problem, "loss");
  if (!values.count(output)) throw Malformed("program: no value " + output);
  return reshape(values.at(output), {1});
}

// The loss of the top problem when it makes its first update.
double first_upper_loss(const Case& c, const std::string& name, std::int64_t element, double by) {
  Optimisation run(c, Dtype::f64);
  const std::string top = name.substr(0, name.find('.'));
  Tensor& value = run.parameter(name).value;
  const Tensor moved = clone(value.to(cpu));
  moved.data<double>()[element] += by;
  value = moved.to(value.device());
  std::optional<double> loss;
  const Levels* levels = nullptr;
  for (Problem& problem : run.problems()) {
    if (problem.name != top) continue;
    problem.before_update = [&](Gradients&) { loss = loss ? loss : levels->loss(top); };
  }
  Levels solver(run.problems(), {.lower_to_upper = edges(c, "lower_to_upper")});
  levels = &solver;
  solver.run(field<std::int64_t>(c.body, "iterations"), [&] { return !loss; });
  if (!loss) throw Malformed(top + " makes no update");
  return *loss;
}

// The derivative of that loss by an element, from differences of whole runs of the eighth order
// (Fornberg 1988).
double whole_run_slope(const Case& c, const std::string& name, std::int64_t element, double step) {
  constexpr double weights[] = {4.0 / 5, -1.0 / 5, 4.0 / 105, -1.0 / 280};
  double slope = 0;
  for (int k = 1; k <= 4; ++k) {
    slope += weights[k - 1] / step *
             (first_upper_loss(c, name, element, k * step) -
              first_upper_loss(c, name, element, -k * step));
  }
  return slope;
}

// The derivative of that loss by a parameter. A long step may cross a kink of a ReLU, and a short
// one leaves digits: each element is that of the step that agrees best with the next shorter one.
Tensor whole_run_gradient(const Case& c, const std::string& name) {
  const Tensor y = zeros(c.tensor("param." + name).value.shape(), Dtype::f64);
  for (std::int64_t i = 0; i < y.numel(); ++i) {
    double least = std::numeric_limits<double>::infinity(),
           before = whole_run_slope(c, name, i, 1e-3);
    for (const double step : {1e-4, 1e-5}) {
      const double now = whole_run_slope(c, name, i, step), difference = std::abs(now - before);
      if (difference < least) y.data<double>()[i] = before;
      least = std::min(least, difference);
      before = now;
    }
  }
  return y;
}

using Trace = std::map<std::string, std::vector<Tensor>>;

void record(Trace& trace, const std::string& name, const Tensor& value) {
  trace[name].push_back(clone(value).unsqueeze(0));
}

void compare(const Case& c, const Trace& trace, const std::string& prefix, Comparison& comparison) {
  for (const auto& [name, values] : trace) {
    comparison.expect(prefix + name, concat(values, 0));
    if (prefix != "grad.") continue;
    comparison.expect("closed." + name, values[0].squeeze(0));
  }
  // Last, since they are allowed more. Whole runs are in f64, whatever the steps were in.
  comparison.allow(allowed_of_whole_runs);
  for (const auto& [name, values] : trace) {
    if (prefix == "grad." && comparison.expects("exact." + name))
      comparison.expect("exact." + name, whole_run_gradient(c, name));
  }
}

void run_optimisation(const Case& c, Dtype dtype, Comparison& comparison) {
  Optimisation run(c, dtype);
  Trace gradients, parameters;
  const std::vector<Edge> acting = edges(c, "upper_to_lower");
  for (Problem& problem : run.problems()) {
    const bool upper = std::any_of(acting.begin(), acting.end(),
                                   [&](const Edge& edge) { return edge.from == problem.name; });
    if (!upper) continue;
    problem.before_update = [&gradients, &problem](const Gradients& all) {
      const nn::NamedParameters& named = problem.variables.parameters;
      for (std::size_t i = 0; i < all.size(); ++i)
        record(gradients, problem.name + "." + named[i].first, all[i].second);
    };
  }
  Levels levels(run.problems(), {.upper_to_lower = acting,
                                 .lower_to_upper = edges(c, "lower_to_upper"),
                                 .roll_back = field<bool>(c.body, "roll_back")});
  const auto recorded = field<std::vector<std::int64_t>>(c.body, "record");
  levels.run(field<std::int64_t>(c.body, "iterations"), [&] {
    if (std::find(recorded.begin(), recorded.end(), levels.iterations()) == recorded.end())
      return true;
    for (const Problem& problem : run.problems()) {
      for (const std::string& name : run.names_of(problem.name))
        record(parameters, name, run.parameter(name).value);
    }
    return true;
  });
  const std::string problems = field<Json>(c.body, "problems").dump();
  const bool products = problems.find("\"cg\"") != std::string::npos ||
                        problems.find("\"neumann\"") != std::string::npos;
  if (products && dtype == Dtype::f64) comparison.allow(allowed_in_f64);
  compare(c, parameters, "param.", comparison);
  compare(c, gradients, "grad.", comparison);
}

}  // namespace

void run_multilevel(const Case& c, Dtype dtype, Comparison& comparison) {
  if (c.type == "optimisation") return run_optimisation(c, dtype, comparison);
  if (c.type == "private_reweight") return run_private_reweight(c, dtype, comparison);
  throw Malformed("type is " + c.type);
}

}  // namespace sotto::conformance
