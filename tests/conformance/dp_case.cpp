#include "tests/conformance/dp_case.h"

#include <algorithm>
#include <numeric>

#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto::conformance {

namespace {

bool is_mean(const std::string& reduce) {
  if (reduce != "mean" && reduce != "sum") throw Malformed("reduce is " + reduce);
  return reduce == "mean";
}

}  // namespace

ClipRule read_rule(const Json& dp) {
  const auto name = field<std::string>(dp, "rule");
  if (name == "min") return {.kind = ClipRule::Kind::minimum};
  if (name == "opacus") return {.kind = ClipRule::Kind::opacus};
  if (name == "normalise") return {.kind = ClipRule::Kind::normalize};
  if (name != "automatic") throw Malformed("rule is " + name);
  return {.kind = ClipRule::Kind::auto_s, .gamma = field<double>(dp, "gamma")};
}

Var token_loss(const Var& logits, const Tensor& targets, const CrossEntropyOptions& options,
               const std::string& reduce) {
  return is_mean(reduce) ? cross_entropy(logits, targets, options)
                         : sum_per_sample(cross_entropy_elements(logits, targets, options));
}

DpModel::DpModel(const Case& c, Dtype dtype)
    : c(c), dtype(dtype), dp(field<Json>(c.body, "dp")), rule(read_rule(dp)) {
  make_parameters(c, dtype, parameters);
  for (const Json& entry : field<std::vector<Json>>(field<Json>(c.body, "model"), "params")) {
    const auto found = parameters.find(field<std::string>(entry, "name"));
    if (found == parameters.end()) throw Malformed("no tensor for a parameter of the model");
    found->second.trainable = field<bool>(entry, "trainable");
  }
  read_groups();
}

DpCase::DpCase(const Case& c, Dtype dtype) : DpModel(c, dtype) { read_units(); }

void DpModel::read_groups() {
  for (const Json& entry : field<std::vector<Json>>(dp, "groups")) {
    ClipGroup group{{}, field<double>(entry, "max_norm")};
    for (const auto& name : field<std::vector<std::string>>(entry, "params")) {
      const auto found = parameters.find(name);
      if (found == parameters.end()) throw Malformed("no parameter " + name);
      group.parameters.push_back(&found->second);
    }
    groups.push_back(std::move(group));
  }
}

void DpCase::read_units() {
  rows = field<std::int64_t>(dp, "rows");
  units = field<std::int64_t>(dp, "units");
  mean = is_mean(field<std::string>(dp, "unit_reduce"));
  unit_of_row.resize(static_cast<std::size_t>(rows));
  std::iota(unit_of_row.begin(), unit_of_row.end(), 0);
  const auto augmentations = field<std::int64_t>(dp, "augmentations");
  if (augmentations < 1) throw Malformed("augmentations below 1");
  for (std::int64_t& unit : unit_of_row) unit /= augmentations;
  const bool user_level = field<bool>(dp, "user_level");
  if (user_level) unit_of_row = c.tensor("in.unit_ids").value.to_vector<std::int64_t>();
  plain = augmentations == 1 && !user_level;
  for (const std::int64_t unit : unit_of_row) {
    if (unit < 0 || unit >= units) throw Malformed("a row's unit is out of range");
  }
  if (static_cast<std::int64_t>(unit_of_row.size()) != rows) throw Malformed("unit_ids do not fit");
  if (!c.has("in.row_weight")) return;
  const auto weights = c.tensor("in.row_weight").value.to_vector<float>();
  if (weights.size() != unit_of_row.size()) throw Malformed("row_weight does not fit");
  for (std::size_t row = 0; row < weights.size(); ++row) {
    if (weights[row] != 0 && weights[row] != 1) throw Malformed("a row weight is neither 0 nor 1");
    if (weights[row] == 0) unit_of_row[row] = -1;
    plain = plain && weights[row] == 1;
  }
}

// A unit's rows stay together: physical batches that would share one are run as one.
std::vector<Part> DpCase::parts() const {
  std::vector<std::int64_t> last(static_cast<std::size_t>(units), -1);  // row of each unit
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t unit = unit_of_row[static_cast<std::size_t>(row)];
    if (unit >= 0) last[static_cast<std::size_t>(unit)] = row;
  }
  std::vector<Part> parts;
  std::int64_t begin = 0, end = 0, reach = 0;
  for (const auto size : field<std::vector<std::int64_t>>(dp, "physical_batches")) {
    if (size < 0 || end + size > rows) throw Malformed("physical_batches do not add up to rows");
    for (const std::int64_t stop = end + size; end < stop; ++end) {
      const std::int64_t unit = unit_of_row[static_cast<std::size_t>(end)];
      if (unit >= 0) reach = std::max(reach, last[static_cast<std::size_t>(unit)] + 1);
    }
    if (reach > end) continue;
    parts.push_back({.begin = begin, .end = end});
    begin = end;
  }
  if (end != rows) throw Malformed("physical_batches do not add up to rows");
  if (parts.empty()) parts.push_back({.begin = 0, .end = 0});
  for (Part& part : parts) assign_units(part, last, &part == &parts.back());
  return parts;
}

void DpCase::assign_units(Part& part, const std::vector<std::int64_t>& last, bool final) const {
  std::vector<std::int64_t> place(last.size());
  for (std::size_t unit = 0; unit < last.size(); ++unit) {
    // Units without rows go with the last physical batch.
    const bool here = last[unit] < 0 ? final : last[unit] >= part.begin && last[unit] < part.end;
    if (!here) continue;
    place[unit] = static_cast<std::int64_t>(part.units.size());
    part.units.push_back(static_cast<std::int64_t>(unit));
  }
  part.grouping = {.units = static_cast<std::int64_t>(part.units.size()), .mean = mean};
  for (std::int64_t row = part.begin; row < part.end; ++row) {
    const std::int64_t unit = unit_of_row[static_cast<std::size_t>(row)];
    part.grouping.unit_of_row.push_back(unit < 0 ? -1 : place[static_cast<std::size_t>(unit)]);
  }
}

Var DpCase::loss(Tape& tape, std::int64_t begin, std::int64_t end) {
  return DpModel::loss(tape,
                       [&](const Tensor& all, int axis) { return all.slice(axis, begin, end); });
}

Var DpModel::loss(Tape& tape, const Rows& rows) {
  Values values;
  for (const std::string& name : c.names_after("in.")) {
    if (name == "target" || name == "row_weight" || name == "unit_ids") continue;
    const Described& operand = c.tensor("in." + name);
    const Tensor value = in_dtype(operand.value, dtype);
    values.emplace(name, operand.batch_dim
                             ? tape.input(rows(value, *operand.batch_dim), *operand.batch_dim)
                             : tape.constant(value));
  }
  for (auto& [name, parameter] : parameters) values.emplace(name, tape.use(parameter));
  const Json model = field<Json>(c.body, "model");
  values = run_program(field<Json>(model, "program"), std::move(values), tape);
  const auto output = field<std::string>(model, "output");
  if (!values.count(output)) throw Malformed("the program has no value " + output);
  const Var& logits = values.at(output);
  const Tensor targets = rows(c.tensor("in.target").value, 0);
  const Json loss = field<Json>(c.body, "loss");
  if (field<std::string>(loss, "type") != "cross_entropy")
    throw Malformed("loss is not cross_entropy");
  const CrossEntropyOptions options{.class_axis = -1,
                                    .label_smoothing = field<double>(loss, "label_smoothing"),
                                    .ignore_index = field<std::int64_t>(loss, "ignore_index")};
  return token_loss(logits, targets, options, field<std::string>(loss, "token_reduce"));
}

}  // namespace sotto::conformance
