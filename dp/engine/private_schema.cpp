#include "dp/engine/private_schema.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "dp/accounting/budget.h"
#include "dp/engine/frequent_texts.h"
#include "dp/noise/bounded_statistics.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/numerics/directed_rounding.h"
#include "dp/sampling/sampler.h"
#include "nn/data/tables/table_reader.h"

namespace sotto {

namespace {

// Values below 2^min_exponent count as 0, others with the power of two below them.
constexpr int min_exponent = -20, max_exponent = 40;
constexpr std::int64_t one_sign = max_exponent - min_exponent + 1, bins = 2 * one_sign + 1;
// Stands for a missing value while the table is read.
constexpr double missing = 0x1p60;

// 0 .. bins - 1 in the order of the values, or -1 for a missing one.
std::int64_t bin_of(double x) {
  if (x >= missing) return -1;
  if (std::abs(x) < std::ldexp(1, min_exponent)) return one_sign;
  const int exponent = std::min(std::ilogb(x), max_exponent);
  const std::int64_t from_zero = exponent - min_exponent + 1;
  return x > 0 ? one_sign + from_zero : one_sign - from_zero;
}

// The least value of bin k >= 0, and for k = bins the end of the last one.
double begin_of(std::int64_t bin) {
  const auto power = [](std::int64_t k) {
    return std::ldexp(1, static_cast<int>(k) + min_exponent);
  };
  if (bin > one_sign) return power(bin - one_sign - 1);
  return bin == one_sign ? 0 : -power(one_sign - bin);
}

// The table's rows as numbers: the columns of the draft that lack a range. A text of a column
// without categories is an unknown one.
class Numbers {
 public:
  Numbers(std::string path, const TableSchema& draft) : path_(std::move(path)), schema_(draft) {
    std::int64_t input = 0;
    for (TableColumn& column : schema_.columns) {
      const bool is_input = column.kind == ColumnKind::number;
      if (column.lacks_range()) {
        places_.push_back(is_input ? input : label);
        column.range = {-missing, missing};
        column.standardization = {0, 1};
        column.logarithmic = false;
        if (is_input) column.missing_value = missing;
      }
      if (column.lacks_categories()) {
        column.categories = {{draft.missing + "."}};
        column.other = true;
      }
      if (is_input) ++input;
    }
  }

  std::int64_t columns() const { return std::ssize(places_); }

  // Calls f with the first row of each unit, and returns the number of units.
  std::int64_t each(const std::function<void(std::span<const double>)>& f) const {
    constexpr std::int64_t rows_at_a_time = 4096;
    TableReader reader(path_, schema_, {.category_indices = true});
    std::int64_t units = 0;
    std::vector<double> values(places_.size());
    for (Dataset rows = reader.next(rows_at_a_time); rows.size() > 0;
         rows = reader.next(rows_at_a_time)) {
      const auto* const inputs = rows.inputs.view().as<const float>();
      for (std::int64_t row = 0; row < rows.size(); ++row) {
        // Units are numbered in the order of their first rows.
        if (!rows.units.empty() && rows.units[static_cast<std::size_t>(row)] != units) continue;
        ++units;
        for (std::size_t k = 0; k < values.size(); ++k) {
          values[k] = static_cast<double>(places_[k] == label
                                              ? rows.targets.view().as<const float>()[row]
                                              : inputs[row * rows.inputs.size(1) + places_[k]]);
        }
        f(values);
      }
    }
    if (units == 0) throw SystemFailure(fmt::format("table: {}: no rows", path_));
    return units;
  }

 private:
  static constexpr std::int64_t label = -1;
  std::string path_;
  TableSchema schema_;
  std::vector<std::int64_t> places_;  // among the inputs, or `label`
};

// The releases, which have the same event and are planned together.
class Releases {
 public:
  Releases(Ledger& ledger, std::int64_t units, std::int64_t count, const SchemaBudget& budget)
      : ledger_(ledger),
        count_(count),
        sampler_(units),
        mechanism_(calibrate_noise_multiplier({.epsilon = budget.epsilon,
                                               .delta = budget.delta,
                                               .batch = sampler_.event(),
                                               .steps = count},
                                              factory())),
        budget_(ledger, factory(), budget.delta, budget.epsilon) {}

  std::int64_t units() const { return sampler_.population(); }
  // The standard deviation of the noise on a mean of statistics in [-1, 1] whose joint sensitivity
  // is the root of their number.
  double noise_of(std::int64_t statistics) const {
    return mechanism_.noise_multiplier() * std::sqrt(static_cast<double>(statistics)) /
           static_cast<double>(units());
  }
  // Throws std::invalid_argument for a fraction of the units, below which nothing is seen, that is
  // too large to be of use.
  void check_visible(double least) const {
    constexpr double enough = 0.125;
    check(
        least <= enough,
        "schema: the budget is too small for {} units: values that less than {:.0f} of them share "
        "would not be seen",
        units(), least * static_cast<double>(units()));
  }
  // Writes the releases into the ledger's plan.
  void plan() {
    ledger_.set_population(sampler_.population());
    ledger_.plan({{mechanism_.event(sampler_.event()), count_}});
  }
  template <class Sum>
  std::vector<double> release(Sum& sum) {
    return mechanism_.release(sum.finish(sampler_.draw()), ledger_, budget_.admission());
  }

 private:
  AccountantFactory factory() const {
    return accountant_factory(AccountantKind::pld, ledger_.header().relation);
  }

  Ledger& ledger_;
  std::int64_t count_;
  FullBatchSampler sampler_;
  GaussianMechanism mechanism_;
  Budget budget_;
};

// The range from the first to the last bin that more than `least` of the units are in; nullopt if
// there is none.
std::optional<NumberRange> range_of(std::span<const double> fractions, double least) {
  const auto above = [&](double fraction) { return fraction > least; };
  const auto first = std::find_if(fractions.begin(), fractions.end(), above);
  if (first == fractions.end()) return std::nullopt;
  const auto end = std::find_if(fractions.rbegin(), fractions.rend(), above).base();
  return NumberRange{begin_of(first - fractions.begin()), begin_of(end - fractions.begin())};
}

double rounded(double x) { return std::stod(fmt::format("{:.4g}", x)); }

// Sets range, mean and deviation from the released means over the units of x and x^2, scaled to
// [-1, 1] and 0 where x is missing, and from the fraction that has a value.
void complete(TableColumn& column, const NumberRange& range, std::span<const double> means,
              double noise) {
  const double half = (range.max - range.min) / 2;
  const double present = std::clamp(means[2], noise, 1.0);
  const double first = std::clamp(means[0] / present, -1.0, 1.0);
  const double least = std::min(noise / present, 1.0);  // below it the variance is noise
  const double variance = std::clamp(means[1] / present - first * first, least, 1.0);
  const double mean = std::clamp(rounded(range.min + half + half * first), range.min, range.max);
  column.range = range;
  if (!column.logarithmic) column.standardization = {mean, rounded(half * std::sqrt(variance))};
  if (column.kind == ColumnKind::number && !column.missing_value) column.missing_value = mean;
}

using Ranges = std::vector<std::optional<NumberRange>>;

// The fraction of the units above which a range counts a power of two: all counts without units are
// below it with a probability above 99.99 %.
double least_fraction(std::int64_t columns, const Releases& releases) {
  return releases.noise_of(columns) *
         std::sqrt(2 * std::log(1e4 * static_cast<double>(columns * bins)));
}

Ranges release_ranges(const Numbers& numbers, Releases& releases) {
  HistogramSum counts(numbers.columns(), bins);
  std::vector<std::int64_t> of_unit(static_cast<std::size_t>(numbers.columns()));
  numbers.each([&](std::span<const double> values) {
    std::transform(values.begin(), values.end(), of_unit.begin(), bin_of);
    counts.add(of_unit);
  });
  const double least = least_fraction(numbers.columns(), releases);
  const std::vector<double> fractions = releases.release(counts);
  Ranges ranges;
  for (std::int64_t k = 0; k < numbers.columns(); ++k)
    ranges.push_back(range_of(std::span(fractions).subspan(k * bins, bins), least));
  return ranges;
}

constexpr std::size_t moments = 3;  // of each column: of x, of x^2 and of 1 where there is an x

std::vector<double> release_moments(const Numbers& numbers, const Ranges& ranges,
                                    Releases& releases) {
  std::vector<StatisticRange> of_column{{-1, 1}, {0, 1}, {0, 1}}, all;
  for (std::size_t k = 0; k < ranges.size(); ++k)
    all.insert(all.end(), of_column.begin(), of_column.end());
  StatisticSum sum(all);
  std::vector<double> unit(all.size());
  numbers.each([&](std::span<const double> values) {
    for (std::size_t k = 0; k < values.size(); ++k) {
      const bool present = ranges[k] && values[k] < missing;
      const double x =
          present ? StatisticRange{ranges[k]->min, ranges[k]->max}.to_unit(values[k]) : 0;
      unit[moments * k] = x;
      unit[moments * k + 1] = x * x;
      unit[moments * k + 2] = present ? 1 : 0;
    }
    sum.add(unit);
  });
  return releases.release(sum);
}

// Completes the columns of numbers; one without frequent values is ignored.
void complete_numbers(const Numbers& numbers, SchemaGuess& found, Releases& releases) {
  const Ranges ranges = release_ranges(numbers, releases);
  const std::vector<double> means = release_moments(numbers, ranges, releases);
  const double noise = releases.noise_of(std::ssize(means));
  std::size_t k = 0;
  for (TableColumn& column : found.schema.columns) {
    if (!column.lacks_range()) continue;
    if (ranges[k])
      complete(column, *ranges[k], std::span(means).subspan(moments * k, moments), noise);
    else
      column = {.name = column.name};
    ++k;
  }
}

// Completes the columns without categories: those that are not found are others.
void complete_categories(const FrequentTexts& texts, const HistogramRelease& histograms,
                         SchemaGuess& found) {
  const std::vector<std::vector<std::string>> all = texts.find(histograms);
  std::size_t k = 0;
  for (TableColumn& column : found.schema.columns) {
    if (!column.lacks_categories()) continue;
    for (const std::string& text : all[k]) column.categories.push_back({text});
    column.other = true;
    if (all[k].empty()) column = {.name = column.name};
    ++k;
  }
}

void note(const TableSchema& draft, const SchemaBudget& budget, SchemaGuess& found) {
  for (std::size_t k = 0; k < draft.columns.size(); ++k) {
    const TableColumn& before = draft.columns[k];
    std::string& text = found.notes.emplace_back("as in the draft");
    if (!before.lacks_range() && !before.lacks_categories()) continue;
    text =
        found.schema.columns[k].kind == ColumnKind::ignore
            ? "ignored: no value is frequent enough to be seen"
            : fmt::format("released with noise: all that was released has epsilon {} and delta {}",
                          epsilon_text(budget.epsilon), delta_text(budget.delta));
  }
}

}  // namespace

SchemaGuess release_schema(const std::string& path, const TableSchema& draft, Ledger& ledger,
                           const SchemaBudget& budget) {
  check(ledger.releases() == 0, "schema: the ledger holds {} releases: a schema is paid for first",
        ledger.releases());
  const Numbers numbers(path, draft);
  const FrequentTexts texts(path, draft);
  const bool ranges = numbers.columns() > 0, categories = texts.columns() > 0;
  check(ranges || categories, "schema: {}: no number lacks a range, and no category its list",
        path);
  const std::int64_t units = numbers.each([](std::span<const double>) {});
  check(budget.delta * static_cast<double>(units) < 1, "schema: delta {} is not below 1 / {} units",
        budget.delta, units);
  constexpr std::int64_t of_numbers = 2;
  Releases releases(ledger, units,
                    (ranges ? of_numbers : 0) + (categories ? FrequentTexts::releases : 0), budget);
  const HistogramRelease histograms{
      .release = [&](HistogramSum& sum) { return releases.release(sum); },
      .noise_of = [&](std::int64_t count) { return releases.noise_of(count); }};
  if (ranges) releases.check_visible(least_fraction(numbers.columns(), releases));
  if (categories) releases.check_visible(texts.least_fraction(histograms));
  releases.plan();
  SchemaGuess found{.schema = draft};
  if (ranges) complete_numbers(numbers, found, releases);
  if (categories) complete_categories(texts, histograms, found);
  note(draft, budget, found);
  return found;
}

}  // namespace sotto
