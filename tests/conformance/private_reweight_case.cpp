#include <cmath>
#include <limits>
#include <numeric>

#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"
#include "dp/clipping/clipper.h"
#include "dp/clipping/sample_values.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/conformance/kinds.h"

namespace sotto::conformance {

namespace {

// One private step of two parts: the lower parameters learn the rows, the upper ones their weights.
class Reweight {
 public:
  Reweight(const Case& c, Dtype dtype);
  void run(ClipPasses passes, Comparison& comparison);
  void check_units(Comparison& comparison);

 private:
  Var loss(Tape& tape, Comparison* comparison);
  void expect_statistics(const ClipStatistics& statistics, Comparison& comparison) const;
  std::vector<Parameter*> side(const char* name);

  const Case& c_;
  Dtype dtype_;
  Json dp_;
  Parameters parameters_;
  Grouping grouping_;
  std::vector<ClipGroup> groups_;  // lower, upper
  Gradients direction_;
  bool after_clipping_;
};

Reweight::Reweight(const Case& c, Dtype dtype)
    : c_(c),
      dtype_(dtype),
      dp_(field<Json>(c.body, "dp")),
      after_clipping_(field<std::string>(dp_, "weights") == "after_clipping") {
  make_parameters(c, dtype, parameters_);
  groups_ = {{side("lower"), field<double>(dp_, "lower_norm")},
             {side("upper"), field<double>(dp_, "upper_norm")}};
  for (auto& [name, parameter] : parameters_) {
    if (!groups_[0].find(parameter)) continue;
    direction_.emplace_back(&parameter, in_dtype(c.tensor("in.direction." + name).value, dtype));
  }
  const auto rows = static_cast<std::size_t>(field<std::int64_t>(dp_, "rows"));
  grouping_.units = field<std::int64_t>(dp_, "units");
  grouping_.unit_of_row.resize(rows);
  std::iota(grouping_.unit_of_row.begin(), grouping_.unit_of_row.end(), 0);
  if (field<bool>(dp_, "user_level"))
    grouping_.unit_of_row = c.tensor("in.unit_ids").value.to_vector<std::int64_t>();
  if (!c.has("in.row_weight")) return;
  const auto weights = c.tensor("in.row_weight").value.to_vector<float>();
  for (std::size_t row = 0; row < rows; ++row) {
    if (weights.at(row) == 0) grouping_.unit_of_row.at(row) = -1;
  }
}

std::vector<Parameter*> Reweight::side(const char* name) {
  std::vector<Parameter*> parameters;
  for (const auto& parameter : field<std::vector<std::string>>(c_.body, name)) {
    const auto found = parameters_.find(parameter);
    if (found == parameters_.end()) throw Malformed("no parameter " + parameter);
    parameters.push_back(&found->second);
  }
  return parameters;
}

// The loss whose gradient has both sides: that of the rows, and -s_i w_i.
Var Reweight::loss(Tape& tape, Comparison* comparison) {
  Values values{{"x", tape.input(in_dtype(c_.tensor("in.x").value, dtype_))},
                {"target", tape.input(in_dtype(c_.tensor("in.target").value, dtype_))}};
  for (auto& [name, parameter] : parameters_) values.emplace(name, tape.use(parameter));
  values = run_program(field<Json>(c_.body, "program"), std::move(values), tape);
  if (!values.count("losses") || !values.count("weights")) throw Malformed("no losses or weights");
  const Var &losses = values.at("losses"), &weights = values.at("weights");
  const Var products = gradient_products(losses, direction_);
  if (comparison) {
    comparison->expect("loss", losses.value());
    comparison->expect("weight", weights.value());
    comparison->expect("dot", products.value());
  }
  if (!after_clipping_) return detach(weights) * losses - products * weights;
  const Var factors = clip_factors(losses, groups_[0]);
  if (tape.options().private_data) {
    tape.set_sample_weights(detach(weights),
                            {groups_[0].parameters.begin(), groups_[0].parameters.end()});
  }
  return losses - factors * products * weights;
}

void Reweight::expect_statistics(const ClipStatistics& statistics, Comparison& comparison) const {
  constexpr const char* sides[] = {".lower", ".upper"};
  for (std::size_t group = 0; group < 2; ++group) {
    const auto &norms = statistics.norms[group], &factors = statistics.factors[group];
    comparison.expect(std::string("norm") + sides[group], Tensor::from(norms, {grouping_.units}));
    comparison.expect(std::string("clip_factor") + sides[group],
                      Tensor::from(factors, {grouping_.units}));
  }
}

void Reweight::run(ClipPasses passes, Comparison& comparison) {
  Clipper clipper(groups_, {}, passes);
  Tape tape(tape_options(dtype_, true));
  const Var total = loss(tape, &comparison);
  clipper.add(tape, total, &grouping_);
  expect_statistics(clipper.statistics(), comparison);
  for (const auto& [name, parameter] : parameters_) {
    for (const auto& [owner, sum] : clipper.clipped_sums()) {
      if (owner == &parameter) comparison.expect("sum." + name, sum);
    }
  }
}

// What units add to the upper gradient, from the rows of an ordinary tape.
void Reweight::check_units(Comparison& comparison) {
  Tape tape(tape_options(dtype_));
  PerSampleGradSink sink;
  tape.backward(loss(tape, nullptr), sink);
  for (const auto& [name, parameter] : parameters_) {
    if (!groups_[1].find(parameter)) continue;
    const PerSampleGrad rows = PerSampleGrad::materialized(sink.rows(parameter));
    comparison.expect("unit." + name, rows.group(grouping_).materialize());
  }
}

}  // namespace

void run_private_reweight(const Case& c, Dtype dtype, Comparison& comparison) {
  Reweight reweight(c, dtype);
  for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two})
    reweight.run(passes, comparison);
  reweight.check_units(comparison);
}

}  // namespace sotto::conformance
