#include "dp/noise/bounded_statistics.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/ranks/collectives.h"
#include "core/ranks/one_rank.h"
#include "dp/noise/mechanism.h"
#include "dp/sampling/sampler.h"

namespace sotto {

double StatisticRange::to_unit(double value) const {
  if (std::isnan(value)) return 0;
  const double part = (std::clamp(value, low, high) - low) / (high - low);
  return std::clamp(2 * part - 1, -1.0, 1.0);
}

double StatisticRange::from_unit(double value) const {
  return std::midpoint(low, high) + (high - low) / 2 * value;
}

struct BoundedSums {
  std::vector<StatisticRange> ranges;
  std::vector<double> values;  // mapped to [-1, 1]: a unit changes each sum by at most 1
  double sensitivity;          // of all sums together
  SampledBatch draw;
  std::shared_ptr<Ranks> ranks = ranks_or_one(nullptr);  // rank 0 has the sums
};

namespace {

const BoundedSums& present(const std::unique_ptr<BoundedSums>& sums) {
  check(sums != nullptr, "bounded statistics: they were moved from");
  return *sums;
}

void check_all_added(const char* name, const SampledBatch& draw, std::int64_t added) {
  const std::int64_t drawn = std::ssize(draw.units());
  check(added == drawn, "{}: {} units were drawn and {} added", name, drawn, added);
}

// Of the sums, so that doubles hold the sums of max_units units exactly.
constexpr int fraction_bits = 26;
constexpr std::int64_t max_units = std::int64_t{1} << 27;

// One rank's units and their sums.
struct RankSums {
  static auto fields(auto& self) { return std::tie(self.units, self.sums); }
  std::int64_t units;
  std::vector<std::int64_t> sums;
};

}  // namespace

BoundedStatistics::BoundedStatistics(std::unique_ptr<BoundedSums> sums) : sums_(std::move(sums)) {}
BoundedStatistics::BoundedStatistics(BoundedStatistics&&) noexcept = default;
BoundedStatistics& BoundedStatistics::operator=(BoundedStatistics&&) noexcept = default;
BoundedStatistics::~BoundedStatistics() = default;

const SampledBatch& BoundedStatistics::draw() const { return present(sums_).draw; }

StatisticSum::StatisticSum(std::vector<StatisticRange> ranges)
    : ranges_(std::move(ranges)), sums_(ranges_.size()) {
  check(!ranges_.empty(), "StatisticSum: no statistics");
  for (const auto& [low, high] : ranges_)
    check(low < high && std::isfinite(high - low), "StatisticSum: a range from {} to {}", low,
          high);
}

void StatisticSum::add(std::span<const double> values) {
  check(values.size() == ranges_.size(), "StatisticSum: {} values of {} statistics", values.size(),
        ranges_.size());
  for (std::size_t k = 0; k < values.size(); ++k)
    sums_[k] += std::llrint(std::ldexp(ranges_[k].to_unit(values[k]), fraction_bits));
  ++units_;
}

BoundedStatistics StatisticSum::finish(SampledBatch draw, std::shared_ptr<Ranks> ranks) {
  ranks = ranks_or_one(std::move(ranks));
  const RankSums own{std::exchange(units_, 0),
                     std::exchange(sums_, std::vector<std::int64_t>(ranges_.size()))};
  const std::vector<RankSums> all = gather(*ranks, "statistics", own);
  std::vector<std::int64_t> sums(ranges_.size());
  on_rank_0(*ranks, "statistics: units", [&] {
    std::int64_t units = 0;
    for (const RankSums& one : all) {
      check(one.sums.size() == sums.size(),
            "StatisticSum: {} statistics on a rank and {} on rank 0", one.sums.size(), sums.size());
      std::transform(sums.begin(), sums.end(), one.sums.begin(), sums.begin(), std::plus<>());
      units += one.units;
    }
    check_all_added("StatisticSum", draw, units);
    check(units <= max_units, "StatisticSum: {} units, of at most {}", units, max_units);
  });
  std::vector<double> values;
  for (const std::int64_t sum : sums)
    values.push_back(std::ldexp(static_cast<double>(sum), -fraction_bits));
  const double sensitivity = std::sqrt(static_cast<double>(ranges_.size()));
  return BoundedStatistics(std::unique_ptr<BoundedSums>(
      new BoundedSums{ranges_, std::move(values), sensitivity, std::move(draw), std::move(ranks)}));
}

HistogramSum::HistogramSum(std::int64_t histograms, std::int64_t bins)
    : histograms_(histograms), bins_(bins) {
  check(histograms >= 1 && bins >= 1, "HistogramSum: {} histograms of {} bins", histograms, bins);
  counts_.resize(static_cast<std::size_t>(histograms * bins));
}

void HistogramSum::add(std::span<const std::int64_t> bins) {
  check(std::ssize(bins) == histograms_, "HistogramSum: {} bins of {} histograms", bins.size(),
        histograms_);
  for (const std::int64_t bin : bins)
    check(bin >= -1 && bin < bins_, "HistogramSum: bin {} of {}", bin, bins_);
  for (std::size_t k = 0; k < bins.size(); ++k)
    if (bins[k] >= 0)
      counts_[k * static_cast<std::size_t>(bins_) + static_cast<std::size_t>(bins[k])] += 1;
  ++units_;
}

BoundedStatistics HistogramSum::finish(SampledBatch draw) {
  check_all_added("HistogramSum", draw, units_);
  units_ = 0;
  std::vector<double> counts = std::exchange(counts_, std::vector<double>(counts_.size(), 0.0));
  const std::vector<StatisticRange> as_they_are(counts.size(), StatisticRange{-1, 1});
  return BoundedStatistics(std::unique_ptr<BoundedSums>(
      new BoundedSums{as_they_are, std::move(counts), std::sqrt(static_cast<double>(histograms_)),
                      std::move(draw)}));
}

std::vector<double> Mechanism::release(BoundedStatistics statistics, Ledger& ledger,
                                       const Ledger::BudgetCheck& budget_check) {
  check_independent();
  const auto& [ranges, sums, sensitivity, draw, ranks] = present(statistics.sums_);
  const NoiseScale scale{event(draw.event()).noise_multiplier, sensitivity,
                         draw.expected_batch_size()};
  check_scale(scale, std::ssize(sums));
  record(draw, *ranks, ledger, budget_check);
  auto means =
      broadcast(*ranks, "noisy statistics", [&, &sums = sums] { return noisy(sums, scale); });
  for (std::size_t k = 0; k < means.size(); ++k) means[k] = ranges[k].from_unit(means[k]);
  return means;
}

}  // namespace sotto
