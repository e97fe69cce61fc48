#include "dp/clipping/sum_blocks.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/error.h"

namespace sotto {

SumBlocks::SumBlocks(std::span<const std::int64_t> units, std::span<const std::int64_t> rows_of,
                     Limits limits, std::span<const std::int64_t> owners)
    : units_(units.begin(), units.end()), limits_(limits) {
  check(limits.units >= 1 && limits.rows >= 0, "SumBlocks: at most {} units and {} rows",
        limits.units, limits.rows);
  check(rows_of.empty() || rows_of.size() == units.size(), "SumBlocks: rows of {} units for {}",
        rows_of.size(), units.size());
  check(owners.empty() || owners.size() == units.size(), "SumBlocks: owners of {} units for {}",
        owners.size(), units.size());
  rows_before_.reserve(units.size() + 1);
  rows_before_.push_back(0);
  for (std::size_t k = 0; k < units.size(); ++k) {
    rows_before_.push_back(rows_before_.back() + (rows_of.empty() ? 1 : rows_of[k]));
    if (k == 0) continue;
    const bool other_owner = !owners.empty() && owners[k - 1] != owners[k];
    check(other_owner ? owners[k - 1] < owners[k] : units[k - 1] < units[k],
          "SumBlocks: units that are not in rising order");
    if (other_owner) roots_.push_back(static_cast<std::int64_t>(k));
  }
  if (!units.empty()) roots_.push_back(std::ssize(units));
}

bool SumBlocks::consist_of(std::span<const std::int64_t> units) const {
  std::vector<std::int64_t> own = units_;
  std::sort(own.begin(), own.end());
  return std::ranges::equal(own, units);
}

const std::vector<std::int64_t>& SumBlocks::ends(std::int64_t max_units) const& {
  max_units = std::min(max_units, limits_.units);
  const auto [found, is_new] = ends_.try_emplace(max_units);
  for (std::int64_t first = 0;
       const std::int64_t end : is_new ? roots_ : std::vector<std::int64_t>())
    split(std::exchange(first, end), end, max_units, found->second);
  return found->second;
}

void SumBlocks::split(std::int64_t first, std::int64_t end, std::int64_t max_units,
                      std::vector<std::int64_t>& ends) const {
  const auto rows = [&](std::int64_t k) { return rows_before_[static_cast<std::size_t>(k)]; };
  const bool fits = limits_.rows == 0 || rows(end) - rows(first) <= limits_.rows;
  if (end - first == 1 || (end - first <= max_units && fits)) return ends.push_back(end);
  // The units are split at the highest binary digit in which their numbers differ.
  const auto number = [&](std::int64_t k) {
    return static_cast<std::uint64_t>(units_[static_cast<std::size_t>(k)]);
  };
  const std::uint64_t digit = std::bit_floor(number(first) ^ number(end - 1));
  const auto begin = units_.begin() + first, last = units_.begin() + end;
  const auto middle = std::partition_point(begin, last, [&](std::int64_t unit) {
    return (static_cast<std::uint64_t>(unit) & digit) == 0;
  });
  split(first, middle - units_.begin(), max_units, ends);
  split(middle - units_.begin(), end, max_units, ends);
}

}  // namespace sotto
