// Random graphs of the tape's operations, in every precision and memory order. Whatever the other
// samples hold, a sample's values and gradients keep their bits, and what samples share keeps its
// own; they are those of the sample alone; and a sample moves the clipped sum by no more than the
// sensitivity. SOTTO_GRAPHS sets the number of graphs, SOTTO_GRAPH_SEED the first seed.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "autograd/check/op_run.h"
#include "autograd/op.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/fuzzed_graph.h"

using namespace sotto;
using namespace sotto::testing;

namespace {

std::vector<double> doubles(const Tensor& x) { return to_dtype(x, Dtype::f64).to_vector<double>(); }

// True for equal values, signs of zeros included; NaN equals NaN.
bool alike(const Tensor& a, const Tensor& b) {
  if (a.shape() != b.shape()) return false;
  const std::vector<double> x = doubles(a), y = doubles(b);
  return std::equal(x.begin(), x.end(), y.begin(), [](double p, double q) {
    if (std::isnan(p) || std::isnan(q)) return std::isnan(p) && std::isnan(q);
    return p == q && std::signbit(p) == std::signbit(q);
  });
}

// Something that was computed: shared, or with the samples along an axis.
struct Result {
  std::string what;
  Tensor value;
  SampleAxis samples;
  Tensor of(std::int64_t row) const {
    return samples.batched() ? value.slice(samples.axis(), row, row + 1) : value;
  }
};

struct Run {
  std::vector<std::string> outcomes;
  std::vector<Result> results;
};

Run run(FuzzedGraph& graph, const GraphBatch& batch) {
  Tape tape(graph.tape_options(batch));
  const Var loss = graph.loss(tape, batch);
  Run all{graph.outcomes(), {}};
  for (const auto& [op, value] : graph.values())
    all.results.push_back({op, clone(value.value()), value.samples()});
  all.results.push_back({"loss", clone(loss.value()), 0});
  CollectSink sink;
  tape.backward(loss, sink);
  for (const Var& x : graph.inputs())
    all.results.push_back({"gradient of an input", tape.grad(x), x.samples()});
  for (const Parameter& parameter : graph.parameters()) {
    const std::vector<PerSampleGrad> uses = sink.uses(parameter);
    if (!uses.empty())
      all.results.push_back({fmt::format("gradient of a parameter {}", parameter.value.shape()),
                             rows_of_uses(uses), 0});
  }
  return all;
}

// The first result of a sample, row i of `a` and row j of `b`, that differs; empty if none does.
std::string difference(const Run& a, std::int64_t i, const Run& b, std::int64_t j) {
  for (std::size_t k = 0; k < a.outcomes.size(); ++k) {
    if (a.outcomes[k] != b.outcomes[k]) return "outcome of " + a.outcomes[k];
  }
  if (a.results.size() != b.results.size()) return "number of results";
  for (std::size_t k = 0; k < a.results.size(); ++k) {
    const Result &x = a.results[k], &y = b.results[k];
    if (!(x.samples == y.samples) || !alike(x.of(i), y.of(j)))
      return fmt::format("{} ({}, {})", x.what, name(x.value.dtype()), x.value.shape());
  }
  return "";
}

std::vector<std::int64_t> numbers(std::int64_t n) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < n; ++i) all.push_back(i);
  return all;
}

std::vector<std::int64_t> without(std::vector<std::int64_t> all, std::int64_t one) {
  std::erase(all, one);
  return all;
}

constexpr std::pair<Held, const char*> changes[] = {{Held::other, "others"},
                                                    {Held::nan, "NaN"},
                                                    {Held::infinite, "infinity"},
                                                    {Held::huge, "1e30"}};

std::string fault_beside(FuzzedGraph& graph, const Run& own, std::int64_t kept) {
  const std::vector<std::int64_t> all = numbers(graph.plan().samples);
  for (const auto& [held, what] : changes) {
    const Run changed = run(graph, {all, without(all, kept), held});
    const std::string found = difference(own, kept, changed, kept);
    if (!found.empty()) return fmt::format("{} with neighbours of {}", found, what);
  }
  std::vector<std::int64_t> turned = all;
  std::rotate(turned.begin(), turned.begin() + 1, turned.end());
  const std::string found =
      difference(own, kept, run(graph, {turned, {}, Held::own}),
                 std::find(turned.begin(), turned.end(), kept) - turned.begin());
  return found.empty() ? "" : found + " at another place of the batch";
}

std::string fault_alone(FuzzedGraph& graph, const Run& own, std::int64_t kept) {
  const std::string found = difference(own, kept, run(graph, {{kept}, {}, Held::own}), 0);
  return found.empty() ? "" : found + " alone";
}

// A batch without samples is a step like any other. (Where an operation was refused for what the
// samples hold, ids outside of an empty axis for instance, it is another graph.)
std::string fault_empty(FuzzedGraph& graph, const Run& own) {
  const bool all_ran = std::none_of(own.outcomes.begin(), own.outcomes.end(),
                                    [](const auto& what) { return what.ends_with("refused"); });
  const Run empty = all_ran ? run(graph, {}) : own;
  return own.outcomes == empty.outcomes ? "" : "refused without samples";
}

std::vector<double> clipped_sum(FuzzedGraph& graph, const GraphBatch& batch, Clipper& clipper) {
  Tape tape(graph.tape_options(batch));
  clipper.add(tape, graph.loss(tape, batch));
  std::vector<double> all;
  for (const Parameter& parameter : graph.parameters()) {
    Tensor total = zeros(parameter.value.shape(), Dtype::f64);
    for (const auto& [known, sum] : clipper.clipped_sums()) {
      if (known == &parameter) total = sum;
    }
    for (const double v : doubles(total)) all.push_back(v);
  }
  return all;
}

std::string fault_clipped(FuzzedGraph& graph, std::int64_t sample, ClipPasses passes) {
  std::vector<Parameter*> trained;
  for (Parameter& p : graph.parameters()) trained.push_back(&p);
  const bool wide = size_of(graph.plan().dtype) >= size_of(Dtype::f32);
  if (trained.empty() || !wide || graph.plan().samples < 3) return "";
  const std::vector<std::int64_t> all = numbers(graph.plan().samples);
  using Kind = ClipRule::Kind;
  constexpr Kind kinds[] = {Kind::minimum, Kind::opacus, Kind::auto_s, Kind::psac, Kind::normalize};
  const ClipOptions options{.rule = {.kind = kinds[graph.plan().seed % std::size(kinds)]}};
  const auto clipper = [&] { return Clipper(flat_group(trained, 1), options, passes); };
  Clipper fewer = clipper();
  const auto without_it = clipped_sum(graph, {without(all, sample), {}, Held::own}, fewer);
  for (const Held held : {Held::own, Held::other, Held::nan, Held::infinite, Held::huge}) {
    Clipper more = clipper();
    const auto with_it = clipped_sum(graph, {all, {sample}, held}, more);
    double square = 0;
    for (std::size_t k = 0; k < with_it.size(); ++k)
      square += (with_it[k] - without_it[k]) * (with_it[k] - without_it[k]);
    if (!(std::sqrt(square) <= more.sensitivity()))
      return fmt::format("a sample moves the clipped sum by {}, sensitivity {}", std::sqrt(square),
                         more.sensitivity());
  }
  return "";
}

std::string fault(const GraphPlan& plan) {
  try {
    FuzzedGraph graph(plan);
    const std::int64_t kept = static_cast<std::int64_t>(plan.seed) % plan.samples;
    const Run own = run(graph, {numbers(plan.samples), {}, Held::own});
    if (!graph.accepted_wrongly().empty())
      return graph.accepted_wrongly()[0] + ", which a private tape must refuse";
    std::string found = fault_beside(graph, own, kept);
    if (found.empty()) found = fault_alone(graph, own, kept);
    if (found.empty()) found = fault_empty(graph, own);
    for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
      if (found.empty()) found = fault_clipped(graph, kept, passes);
    }
    return found;
  } catch (const std::exception& error) {
    return error.what();
  }
}

// The plan without the steps that the fault does not need.
GraphPlan shrunk(GraphPlan plan) {
  for (std::size_t i = plan.steps.size(); i-- > 0;) {
    GraphPlan smaller = plan;
    smaller.steps.erase(smaller.steps.begin() + static_cast<std::ptrdiff_t>(i));
    if (!fault(smaller).empty()) plan = smaller;
  }
  return plan;
}

std::string described(const GraphPlan& plan) {
  FuzzedGraph graph(plan);
  Tape tape(graph.tape_options({numbers(plan.samples)}));
  graph.loss(tape, {numbers(plan.samples)});
  std::string text = fmt::format("{} samples in {}, tape in {}:", plan.samples, name(plan.dtype),
                                 name(plan.precision));
  for (const std::string& outcome : graph.outcomes()) text += " " + outcome + ",";
  for (const auto& [op, value] : graph.values())
    text += fmt::format(
        "\n  {} {}{}", op, value.shape(),
        value.samples().batched() ? fmt::format(", samples along {}", value.samples().axis()) : "");
  return text;
}

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

}  // namespace

TEST_CASE("a sample of a random graph is independent of its neighbours",
          "[gate][random][engine][simd]") {
  const std::uint64_t first = setting("SOTTO_GRAPH_SEED", 0), count = setting("SOTTO_GRAPHS", 1000);
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    INFO("seed " << seed);
    const std::string what = fault(random_graph(seed));
    if (what.empty()) continue;
    const GraphPlan small = shrunk(random_graph(seed));
    FAIL_CHECK(what << "; shrunk: " << fault(small) << "\n" << described(small));
  }
  CHECK(count > 0);
}

// Otherwise the test above would say little of the operations that random arguments do not fit.
TEST_CASE("every operation of the table takes part in random graphs", "[gate]") {
  std::map<std::string, int> outcomes;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    FuzzedGraph graph(random_graph(seed));
    const GraphBatch batch{numbers(graph.plan().samples)};
    Tape tape(graph.tape_options(batch));
    graph.loss(tape, batch);
    for (const std::string& outcome : graph.outcomes()) ++outcomes[outcome];
  }
  for (const FuzzedOp& op : fuzzed_ops()) {
    INFO(op.name);
    CHECK(outcomes[op.refused ? op.name + std::string(" refused") : op.name] >= 3);
  }
}
