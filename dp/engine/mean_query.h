// The values that a query for means (Engine::release_means) adds up.
#pragma once

#include <cstdint>
#include <vector>

#include "core/ranks/ranks.h"
#include "dp/engine/engine.h"
#include "dp/engine/unit_batches.h"
#include "dp/noise/bounded_statistics.h"

namespace sotto {

// Throws std::invalid_argument on every rank if a rank's query differs from rank 0's. Collective.
void check_same_query(Ranks& ranks, const MeanQuery& query);
// Adds the values of the units that have rows, one physical batch at a time, and 0 for the others.
void add_values(StatisticSum& sum, const MeanQuery& query, const UnitBatches& batches,
                const std::vector<std::int64_t>& drawn);

}  // namespace sotto
