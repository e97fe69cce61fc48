#include "autograd/per_sample/grouping.h"

#include <algorithm>
#include <cmath>

#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/per_sample/rounding_bounds.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// The rows of the units, one unit after the other, each padded to `width` rows: a padding row has
// id -1, consists of zeros and adds nothing.
struct UnitRows {
  Tensor ids;      // [units * width]; undefined: all rows of the batch, as they are
  Tensor weights;  // [units * width], of each row in its unit; undefined: 1
  Tensor roots;    // [units], square roots of the numbers of rows; undefined: all sqrt(width)
  std::int64_t width;
};

UnitRows unit_rows(const Grouping& grouping) {
  std::vector<std::vector<std::int64_t>> rows_of(static_cast<std::size_t>(grouping.units));
  for (std::size_t row = 0; row < grouping.unit_of_row.size(); ++row) {
    const std::int64_t unit = grouping.unit_of_row[row];
    check(unit < grouping.units, "PerSampleGrad::group: unit {} of {}", unit, grouping.units);
    if (unit < 0) continue;
    rows_of[static_cast<std::size_t>(unit)].push_back(static_cast<std::int64_t>(row));
  }
  std::size_t largest = 1;
  for (const auto& rows : rows_of) largest = std::max(largest, rows.size());
  const std::size_t width =
      grouping.width == 0 ? largest : static_cast<std::size_t>(grouping.width);
  check(largest <= width, "PerSampleGrad::group: a unit of {} rows, padded to {}", largest,
        grouping.width);
  std::vector<std::int64_t> ids;
  std::vector<double> weights, roots;
  for (const auto& rows : rows_of) {
    const bool divided = grouping.mean && !rows.empty();
    const double weight = divided ? 1.0 / static_cast<double>(rows.size()) : 1.0;
    for (std::size_t k = 0; k < width; ++k) ids.push_back(k < rows.size() ? rows[k] : -1);
    weights.insert(weights.end(), width, weight);
    roots.push_back(std::sqrt(static_cast<double>(rows.size())));
  }
  const auto count = static_cast<std::int64_t>(ids.size());
  return {Tensor::from(ids, {count}), Tensor::from(weights, {count}),
          Tensor::from(roots, {grouping.units}), static_cast<std::int64_t>(width)};
}

// unit_rows() of a grouping with this number of rows_each(). Nothing is brought from the host.
UnitRows rows_in_order(const Grouping& grouping, std::int64_t each, Device device) {
  UnitRows y{.ids = {}, .weights = {}, .roots = {}, .width = each};
  if (!grouping.mean) return y;
  y.weights = full({grouping.units * each}, 1 / static_cast<double>(each), Dtype::f64, device);
  return y;
}

// The rounding bounds of units, from those of their rows: the error bound of a sum over R rows is
// sqrt(R) times the sum of theirs. A unit of one row has that row's bounds.
NormEstimate unit_bounds(const NormEstimate& rows, const UnitRows& unit_rows, std::int64_t units) {
  const auto summed = [&](const Tensor& x) {
    const Tensor selected = unit_rows.ids.defined() ? gather(x, unit_rows.ids, 0) : x;
    const Tensor weighted =
        unit_rows.weights.defined() ? mul(selected, unit_rows.weights) : selected;
    return sum(reshape(weighted, {units, unit_rows.width}), {1});
  };
  NormEstimate y;
  const Tensor errors = summed(rows.error_bounds);
  y.error_bounds = unit_rows.roots.defined()
                       ? mul(errors, unit_rows.roots)
                       : scale(errors, std::sqrt(static_cast<double>(unit_rows.width)));
  y.term_norms = summed(rows.term_norms);
  return y;
}

}  // namespace

std::int64_t Grouping::rows_each() const {
  const auto rows = static_cast<std::int64_t>(unit_of_row.size());
  const std::int64_t each = units > 0 ? std::count(unit_of_row.begin(), unit_of_row.end(), 0) : 1;
  const bool padded = units > 0 && width != 0 && width != each;
  if (units * each > rows || padded) return 0;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t unit = row < units * each ? row / each : -1;
    if (unit_of_row[static_cast<std::size_t>(row)] != unit) return 0;
  }
  return each;
}

namespace detail {

namespace {

PerSampleGrad join_rows(const PerSampleGrad& rows, std::int64_t units, std::int64_t width) {
  const Shape& shape = rows.shape();
  const auto joined = [&](const Tensor& x) {
    return reshape(x, {units, width * x.size(1), x.size(2)});
  };
  if (const auto* f = rows.form_data().as<Outer>())
    return {Outer{joined(f->b), joined(f->a)}, shape};
  if (const auto* f = rows.form_data().as<OneHot>()) {
    const Shape every{f->ids.size(0), f->ids.size(1), f->b.size(2)};
    return PerSampleGrad::onehot(reshape(f->ids, {units, width * every[1]}),
                                 joined(f->b.expand(every)), shape);
  }
  const Tensor& gradients = rows.form_data().as<Dense>()->gradients;
  Shape grouped = shape;
  grouped.insert(0, units);
  return PerSampleGrad::materialized(
      reshape(sum_f32(reshape(gradients, {units, width, shape.numel()}), {1}), grouped));
}

PerSampleGrad join_units(const PerSampleGrad& rows, const UnitRows& unit_rows,
                         const Grouping& grouping) {
  const auto* images = rows.form_data().as<Patches>();
  if (images || rows.inherited().error_bounds.defined()) {
    const PerSampleGrad plain = images && images->window.groups == 1
                                    ? PerSampleGrad(images->unfolded(0), rows.shape())
                                    : PerSampleGrad::materialized(rows.materialize());
    const PerSampleGrad y = join_units(plain, unit_rows, grouping);
    return {y.form_data(), y.shape(),
            unit_bounds(rounding_bounds(rows, true), unit_rows, grouping.units)};
  }
  const Form& form = rows.form_data();
  const Form selected = unit_rows.ids.defined() ? form.select(unit_rows.ids) : form;
  return join_rows({grouping.mean ? selected.scale(unit_rows.weights) : selected, rows.shape()},
                   grouping.units, unit_rows.width);
}

}  // namespace

PerSampleGrad group(const PerSampleGrad& rows, const Grouping& grouping) {
  check(static_cast<std::int64_t>(grouping.unit_of_row.size()) == rows.samples(),
        "PerSampleGrad::group: {} rows in the grouping, {} in the batch",
        grouping.unit_of_row.size(), rows.samples());
  const std::int64_t each = grouping.rows_each();
  if (each == 0) return join_units(rows, unit_rows(grouping), grouping);
  return join_units(rows.slice(0, grouping.units * each),
                    rows_in_order(grouping, each, rows.device()), grouping);
}

}  // namespace detail

}  // namespace sotto
