// Per-sample gradients of units of several rows, in the form that the rows' gradients have.
#include <algorithm>
#include <cmath>

#include "autograd/per_sample/per_sample.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// The rows of each unit one after the other, as many for each unit: what is missing is a row of
// zeros (id -1), which adds nothing.
struct UnitRows {
  Tensor ids;         // [units * width]
  Tensor term_norms;  // what each row counts for in its unit
  Tensor roots;       // [units], of how many rows a unit has
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
  std::size_t max = 1;
  for (const auto& rows : rows_of) max = std::max(max, rows.size());
  std::vector<std::int64_t> ids;
  std::vector<double> term_norms, roots;
  for (const auto& rows : rows_of) {
    const bool divided = grouping.mean && !rows.empty();
    const double share = divided ? 1.0 / static_cast<double>(rows.size()) : 1.0;
    for (std::size_t k = 0; k < max; ++k) ids.push_back(k < rows.size() ? rows[k] : -1);
    term_norms.insert(term_norms.end(), max, share);
    roots.push_back(std::sqrt(static_cast<double>(rows.size())));
  }
  const auto count = static_cast<std::int64_t>(ids.size());
  return {Tensor::from(ids, {count}), Tensor::from(term_norms, {count}),
          Tensor::from(roots, {grouping.units}), static_cast<std::int64_t>(max)};
}

// The errors and shares of units, by those of their rows: sums over R rows are sqrt(R) times as far
// from what they should be. Of units of one row they are that row's.
NormEstimate of_units(const NormEstimate& rows, const UnitRows& of, std::int64_t units) {
  const auto joined = [&](const Tensor& x) {
    const Tensor chosen = mul(gather(x, of.ids, 0), of.term_norms);
    return sum(reshape(chosen, {units, of.width}), {1});
  };
  NormEstimate y;
  y.error_bounds = mul(joined(rows.error_bounds), of.roots);
  y.term_norms = joined(rows.term_norms);
  return y;
}

}  // namespace

bool Grouping::first_rows() const {
  const auto rows = static_cast<std::int64_t>(unit_of_row.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    if (unit_of_row[static_cast<std::size_t>(row)] != (row < units ? row : -1)) return false;
  }
  return rows >= units;
}

PerSampleGrad PerSampleGrad::group(const Grouping& grouping) const {
  check(static_cast<std::int64_t>(grouping.unit_of_row.size()) == samples(),
        "PerSampleGrad::group: {} rows in the grouping, {} in the batch",
        grouping.unit_of_row.size(), samples());
  const UnitRows rows_of = unit_rows(grouping);
  const std::int64_t width = rows_of.width;
  const auto joined = [&](const Tensor& x) {
    return reshape(x, {grouping.units, width * x.size(1), x.size(2)});
  };
  const auto* images = std::get_if<Patches>(&form_);
  if (images || known_.error_bounds.defined()) {
    const bool one = images && images->window.groups == 1;
    const PerSampleGrad plain = one ? factors(*this, 0) : materialized(materialize());
    PerSampleGrad y = plain.group(grouping);
    y.known_ = of_units(rounding(true), rows_of, grouping.units);
    return y;
  }
  const PerSampleGrad chosen_rows = selected(rows_of.ids);
  const PerSampleGrad rows = grouping.mean ? chosen_rows.scaled(rows_of.term_norms) : chosen_rows;
  if (const auto* f = std::get_if<Outer>(&rows.form_))
    return outer(joined(f->b), joined(f->a), shape_);
  if (const auto* f = std::get_if<OneHot>(&rows.form_)) {
    const Shape every{f->ids.size(0), f->ids.size(1), f->b.size(2)};
    return onehot(reshape(f->ids, {grouping.units, width * every[1]}), joined(f->b.expand(every)),
                  shape_);
  }
  const Tensor& all = std::get<Dense>(rows.form_).rows;
  Shape grouped = shape_;
  grouped.insert(0, grouping.units);
  return materialized(
      reshape(sum_f32(reshape(all, {grouping.units, width, shape_.numel()}), {1}), grouped));
}

}  // namespace sotto
