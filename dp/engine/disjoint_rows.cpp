#include "dp/engine/disjoint_rows.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/error.h"

namespace sotto {

void check_rows_apart(std::span<const std::int64_t> units, std::span<const std::int64_t> rows,
                      std::span<const std::int64_t> starts) {
  std::vector<std::pair<std::int64_t, std::int64_t>> owners;  // a row, and its unit
  owners.reserve(rows.size());
  for (std::size_t k = 0; k < units.size(); ++k) {
    for (std::int64_t at = starts[k]; at < starts[k + 1]; ++at)
      owners.emplace_back(rows[static_cast<std::size_t>(at)], units[k]);
  }
  std::sort(owners.begin(), owners.end());
  const auto shared = std::adjacent_find(
      owners.begin(), owners.end(),
      [](const auto& a, const auto& b) { return a.first == b.first && a.second != b.second; });
  if (shared == owners.end()) return;
  fail(
      fmt::format("rows_of_unit: row {} is of unit {} and of unit {}, so that both would change "
                  "what it adds: a row belongs to one unit",
                  shared->first, shared->second, std::next(shared)->second));
}

}  // namespace sotto
