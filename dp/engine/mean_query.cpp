#include "dp/engine/mean_query.h"

#include <algorithm>

#include "core/ranks/collectives.h"

namespace sotto {

void check_same_query(Ranks& ranks, const MeanQuery& query) {
  std::string own = fmt::format("noise multiplier {}, sampling rate {}", query.noise_multiplier,
                                query.sampling_rate);
  for (const auto& [low, high] : query.ranges) own += fmt::format(", {} to {}", low, high);
  const auto all = gather(ranks, "release_means: query", own);
  on_rank_0(ranks, "release_means: agreement", [&] {
    for (std::size_t rank = 1; rank < all.size(); ++rank)
      check(all[rank] == own, "release_means: {} on rank {} and {} on rank 0", all[rank], rank,
            own);
  });
}

void add_values(StatisticSum& sum, const MeanQuery& query, const UnitBatches& batches,
                const std::vector<std::int64_t>& drawn) {
  std::vector<std::int64_t> with_rows;
  for (const std::int64_t unit : drawn) {
    if (batches.rows_of_unit(unit).empty()) {
      sum.add_unit_without_data();
    } else {
      with_rows.push_back(unit);
    }
  }
  const auto at_once =
      static_cast<std::size_t>(batches.rows().value_or(memory::usual_physical_batch));
  for (std::span<const std::int64_t> units = with_rows; !units.empty();) {
    const auto next = units.first(std::min(units.size(), at_once));
    const auto values = query.values(next);
    check(values.size() == next.size(), "release_means: values of {} units for {}", values.size(),
          next.size());
    for (const std::vector<double>& of_unit : values) sum.add(of_unit);
    units = units.subspan(next.size());
  }
}

}  // namespace sotto
