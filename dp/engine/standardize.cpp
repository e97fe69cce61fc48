#include "dp/engine/standardize.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "dp/sampling/sampler.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/data/tables/table_schema.h"

namespace sotto {

namespace {

// Both moments of each column, scaled to [-1, 1], over samples begin, ..., end - 1.
std::vector<double> moments_of(const Tensor& inputs, std::int64_t begin, std::int64_t end,
                               const StandardizeOptions& options) {
  const std::int64_t places = inputs.slice(0, 0, 1).select(1, 0).numel();
  const std::vector<double> x =
      to_dtype(inputs.slice(0, begin, end), Dtype::f64).to_vector<double>();
  const auto count = static_cast<double>((end - begin) * places);
  std::vector<double> moments;
  for (const auto& [column, range] : options.ranges) {
    double first = 0, second = 0;
    for (std::int64_t sample = 0; sample < end - begin; ++sample) {
      const std::int64_t at = (sample * inputs.size(1) + column) * places;
      for (std::int64_t k = at; k < at + places; ++k) {
        const double unit = range.to_unit(x[static_cast<std::size_t>(k)]);
        first += unit;
        second += unit * unit;
      }
    }
    moments.insert(moments.end(), {first / count, second / count});
  }
  return moments;
}

// The units are the engine's: of another division of the samples, a unit would add more than is
// charged.
MeanQuery query_of(const Engine& engine, const Dataset& data, const StandardizeOptions& options) {
  const PlannedMeans planned = planned_means(options);
  MeanQuery query{.noise_multiplier = planned.noise_multiplier,
                  .sampling_rate = planned.sampling_rate};
  for (std::size_t k = 0; k < options.ranges.size(); ++k)
    query.ranges.insert(query.ranges.end(), {{-1, 1}, {0, 1}});
  query.values = [&](std::span<const std::int64_t> units) {
    std::vector<std::int64_t> all, ends;
    for (const std::int64_t unit : units) {
      const auto& rows_of_unit = engine.options().rows_of_unit;
      const auto rows = rows_of_unit ? rows_of_unit(unit) : std::vector<std::int64_t>{unit};
      all.insert(all.end(), rows.begin(), rows.end());
      ends.push_back(std::ssize(all));
    }
    const Tensor inputs = data.batch(all).inputs;
    std::vector<std::vector<double>> values;
    std::int64_t begin = 0;
    for (const std::int64_t end : ends)
      values.push_back(moments_of(inputs, std::exchange(begin, end), end, options));
    return values;
  };
  return query;
}

void check_fits(const Engine& engine, const Dataset& data, const StandardizeOptions& options) {
  const Tensor& inputs = data.inputs;
  const std::int64_t population = engine.sampler().population();
  const bool own_units = data.units.empty() && engine.options().rows_of_unit;
  check(own_units || data.unit_count() == population,
        "standardize: data of {} units and an engine of {}", data.unit_count(), population);
  check(inputs.rank() >= 2 && inputs.size(1) == options.layer->mean->value.numel(),
        "standardize: inputs {} and a layer of {} columns", inputs.shape(),
        options.layer->mean->value.numel());
  for (const auto& [column, range] : options.ranges)
    check(column >= 0 && column < inputs.size(1), "standardize: column {} of {}", column,
          inputs.size(1));
}

void set(Parameter& parameter, const std::vector<double>& values) {
  const Tensor& old = parameter.value;
  parameter.value = to_dtype(Tensor::from(values, old.shape()), old.dtype()).to(old.device());
}

}  // namespace

PlannedMeans planned_means(const StandardizeOptions& options) {
  check(options.layer != nullptr, "standardize: no layer");
  check(!options.ranges.empty(), "standardize: no column has a range");
  for (const auto& [column, range] : options.ranges)
    check(range.low < range.high && std::isfinite(range.high - range.low),
          "standardize: column {} has a range from {} to {}", column, range.low, range.high);
  return {.noise_multiplier = options.noise_multiplier};
}

void standardize(Engine& engine, const Dataset& data, const StandardizeOptions& options) {
  const MeanQuery query = query_of(engine, data, options);
  check_fits(engine, data, options);
  const std::vector<double> moments = engine.release_means(query);
  // The standard deviation of the noise on a first moment: that on the variance is of this size.
  const double noise = options.noise_multiplier *
                       std::sqrt(static_cast<double>(query.ranges.size())) /
                       static_cast<double>(engine.sampler().population());
  const auto columns = static_cast<std::size_t>(data.inputs.size(1));
  std::vector<double> means(columns, 0), deviations(columns, 1);
  std::size_t next = 0;
  for (const auto& [column, range] : options.ranges) {
    const double first = std::clamp(moments[next], -1.0, 1.0), second = moments[next + 1];
    const double variance = std::max(second - first * first, noise);
    const auto at = static_cast<std::size_t>(column);
    means[at] = range.from_unit(first);
    deviations[at] = (range.high - range.low) / 2 * std::sqrt(variance);
    next += 2;
  }
  set(*options.layer->mean, means);
  set(*options.layer->deviation, deviations);
}

std::map<std::int64_t, StatisticRange> number_ranges(const TableSchema& schema) {
  schema.validate();
  std::map<std::int64_t, StatisticRange> ranges;
  std::int64_t input = 0;
  for (const TableColumn& column : schema.columns) {
    if (column.kind == ColumnKind::category) input += column.category_count();
    if (column.kind != ColumnKind::number) continue;
    if (!column.standardization) ranges[input] = {0, 1};
    ++input;
  }
  return ranges;
}

}  // namespace sotto
