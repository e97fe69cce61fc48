#include "dp/engine/unit_owners.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "core/join.h"
#include "core/ranks/one_rank.h"

namespace sotto {

namespace {

bool has_bit(const std::vector<std::byte>& bits, std::int64_t k) {
  const std::byte eight = bits.at(static_cast<std::size_t>(k / 8));
  return (eight >> static_cast<int>(k % 8) & std::byte{1}) != std::byte{0};
}

std::vector<std::string> texts(const std::vector<std::size_t>& ranks) {
  std::vector<std::string> all;
  for (const std::size_t rank : ranks) all.push_back(fmt::format("{}", rank));
  return all;
}

}  // namespace

std::shared_ptr<Ranks> given_ranks(const EngineOptions& options, const Ledger& ledger) {
  return options.ranks ? options.ranks : ledger.ranks();
}

RankOf rank_of(const EngineOptions& options) {
  const auto ranks = ranks_or_one(options.ranks);
  return {ranks->rank(), ranks->size()};
}

std::int64_t owner_of(const EngineOptions& options, std::int64_t unit) {
  if (!options.owner_of_unit) return 0;
  const std::int64_t owner = options.owner_of_unit(unit);
  check(owner >= 0, "owner_of_unit: the owner of unit {} is {}", unit, owner);
  return owner;
}

void UnitOwners::set_pieces(const Sampler& sampler, std::int64_t units) {
  // Planned batches are of consecutive units, others are spread over the population.
  const std::int64_t population = sampler.population();
  const double in_one_batch = sampler.sampling() == Sampling::planned
                                  ? static_cast<double>(population)
                                  : sampler.expected_batch_size();
  const double pieces = std::max(1.0, std::ceil(in_one_batch / static_cast<double>(units)));
  const auto count = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(pieces)));
  piece_ = (population + count - 1) / count;
}

std::int64_t UnitOwners::owner(std::int64_t unit) const {
  return options_.owner_of_unit ? owner_of(options_, unit) : unit / piece_;
}

OwnedUnits UnitOwners::of(RankOf rank, std::span<const std::int64_t> units) const {
  std::vector<std::pair<std::int64_t, std::int64_t>> own;  // an owner and its unit
  for (const std::int64_t unit : units)
    if (const std::int64_t its_owner = owner(unit); rank.is(its_owner))
      own.emplace_back(its_owner, unit);
  std::sort(own.begin(), own.end());
  OwnedUnits all;
  for (const auto& [its_owner, unit] : own) {
    all.owners.push_back(its_owner);
    all.units.push_back(unit);
  }
  return all;
}

std::vector<std::vector<std::int64_t>> UnitOwners::by_rank(
    int ranks, std::span<const std::int64_t> units) const {
  std::vector<std::vector<std::int64_t>> own(static_cast<std::size_t>(ranks));
  for (const std::int64_t unit : units)
    own[static_cast<std::size_t>(owner(unit) % ranks)].push_back(unit);
  return own;
}

std::vector<std::byte> owned_units(std::int64_t population, const EngineOptions& options) {
  if (!options.owner_of_unit) return {};
  const RankOf own = rank_of(options);
  std::vector<std::byte> bits(static_cast<std::size_t>(population + 7) / 8);
  for (std::int64_t unit = 0; unit < population; ++unit)
    if (own.is(owner_of(options, unit)))
      bits[static_cast<std::size_t>(unit / 8)] |= std::byte{1} << static_cast<int>(unit % 8);
  return bits;
}

std::string owner_problem(std::int64_t population, const EngineOptions& options,
                          const std::vector<std::vector<std::byte>>& owned) {
  for (std::int64_t unit = 0; unit < population; ++unit) {
    std::vector<std::size_t> ranks;
    for (std::size_t rank = 0; rank < owned.size(); ++rank)
      if (has_bit(owned[rank], unit)) ranks.push_back(rank);
    if (ranks.size() != 1)
      return fmt::format("owner_of_unit: unit {} is owned by {}", unit,
                         ranks.empty() ? "no rank" : "ranks " + join(texts(ranks), " and "));
    const auto expected = static_cast<std::size_t>(owner_of(options, unit) % std::ssize(owned));
    if (expected != ranks[0])
      return fmt::format("owner_of_unit: unit {} is owned by rank {}, and by rank {} for rank 0",
                         unit, ranks[0], expected);
  }
  return "";
}

}  // namespace sotto
