#include "autograd/per_sample/grouping.h"

#include <algorithm>

#include "autograd/per_sample/forms.h"
#include "autograd/per_sample/inner_products.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/per_sample/rounding_bounds.h"
#include "kernels/host_device/gemm_blocking.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

// The rows of the units, one unit after the other, each padded to `width` rows: a padding row has
// id -1, consists of zeros and adds nothing.
struct UnitRows {
  Tensor ids;      // [units * width]; undefined: all rows of the batch, as they are
  Tensor weights;  // [units * width], of each row in its unit; undefined: 1
  Tensor counts;   // [units], the numbers of rows; undefined: all `width`
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
  std::vector<double> weights, counts;
  for (const auto& rows : rows_of) {
    const bool divided = grouping.mean && !rows.empty();
    const double weight = divided ? 1.0 / static_cast<double>(rows.size()) : 1.0;
    for (std::size_t k = 0; k < width; ++k) ids.push_back(k < rows.size() ? rows[k] : -1);
    weights.insert(weights.end(), width, weight);
    counts.push_back(static_cast<double>(rows.size()));
  }
  const auto count = static_cast<std::int64_t>(ids.size());
  return {Tensor::from(ids, {count}), Tensor::from(weights, {count}),
          Tensor::from(counts, {grouping.units}), static_cast<std::int64_t>(width)};
}

// unit_rows() of a grouping with this number of rows_each(). Nothing is brought from the host.
UnitRows rows_in_order(const Grouping& grouping, std::int64_t each, Device device) {
  UnitRows y{.ids = {}, .weights = {}, .counts = {}, .width = each};
  if (!grouping.mean) return y;
  y.weights = full({grouping.units * each}, 1 / static_cast<double>(each), Dtype::f64, device);
  return y;
}

// The rounding bounds of units of several rows, from those of their rows: unfolded images are added
// in one sum over all positions of a unit, as products are. A unit of one row has that row's
// bounds, whether or not it is materialized, and so have those of which each is.
class UnitBounds {
 public:
  UnitBounds(const NormEstimate& rows, const UnitRows& unit_rows, const PerSampleGrad& joined)
      : rows_(rows),
        unit_rows_(unit_rows),
        units_(joined.samples()),
        chain_(detail::longest_chain(joined.form_data())) {}
  NormEstimate operator()() const {
    const Tensor lost = summed(detail::square_root(rows_.lost));
    return {.squares = {},
            .error_bounds = grown(summed(rows_.error_bounds)),
            .term_norms = summed(rows_.term_norms),
            .needs_f64 = {},
            .lost = mul(lost, lost)};
  }

 private:
  Tensor summed(const Tensor& x) const {
    const Tensor selected = unit_rows_.ids.defined() ? gather(x, unit_rows_.ids, 0) : x;
    const Tensor weighted =
        unit_rows_.weights.defined() ? mul(selected, unit_rows_.weights) : selected;
    return sum(reshape(weighted, {units_, unit_rows_.width}), {1});
  }
  // The error bounds of sums over the positions of several rows, from the sums of theirs.
  Tensor grown(const Tensor& errors) const {
    if (!unit_rows_.counts.defined())
      return scale(errors, growth(static_cast<double>(unit_rows_.width)));
    std::vector<double> factors = unit_rows_.counts.to_vector<double>();
    for (double& factor : factors) factor = growth(factor);
    return mul(errors, Tensor::from(factors, {units_}).to(errors.device()));
  }
  double growth(double rows) const {
    if (rows_.chain == 0) return 1;
    const double fewest = std::min(rows_.chain, static_cast<double>(product_chain)),
                 of_unit = roundings(rows * rows_.positions, chain_ > 0 ? chain_ : fewest);
    return std::max(1.0, (of_unit + 1) / (roundings(rows_.positions, rows_.chain) + 1));
  }

  const NormEstimate& rows_;
  const UnitRows& unit_rows_;
  std::int64_t units_;
  double chain_;  // of the joined rows; 0: materialized rows are added
};

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

// Joins the rows of one unit after the other, so that those of all units are never there at once.
PerSampleGrad join_derived(const PerSampleGrad& rows, const UnitRows& unit_rows,
                           const Grouping& grouping) {
  const std::int64_t width = unit_rows.width;
  Shape shape = rows.shape();
  shape.insert(0, grouping.units);
  const Tensor y = zeros(shape, rows.dtype(), rows.device());
  for (std::int64_t unit = 0; unit < grouping.units; ++unit) {
    const std::int64_t begin = unit * width, end = begin + width;
    const auto own = [&](const Tensor& x) { return x.slice(0, begin, end); };
    const Form& form = rows.form_data();
    const Form some = unit_rows.ids.defined()
                          ? form.select(own(unit_rows.ids))
                          : Dense{form.slice(begin, end).materialize(rows.shape())};
    const PerSampleGrad alone(grouping.mean ? some.scale(own(unit_rows.weights)) : some,
                              rows.shape());
    copy_into(join_rows(alone, 1, width).materialize(), y.slice(0, unit, unit + 1));
  }
  return PerSampleGrad::materialized(y);
}

PerSampleGrad join_units(const PerSampleGrad& rows, const UnitRows& unit_rows,
                         const Grouping& grouping) {
  if (rows.form_data().as<Derived>()) return join_derived(rows, unit_rows, grouping);
  const auto* images = rows.form_data().as<Patches>();
  if (images || rows.inherited().error_bounds.defined()) {
    const PerSampleGrad plain = images && images->window.groups == 1
                                    ? PerSampleGrad(images->unfolded(0), rows.shape())
                                    : PerSampleGrad::materialized(rows.materialize());
    const PerSampleGrad y = join_units(plain, unit_rows, grouping);
    const NormEstimate of_rows = rounding_bounds(rows, true);
    return {y.form_data(), y.shape(), UnitBounds(of_rows, unit_rows, y)()};
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
