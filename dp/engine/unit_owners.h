// The owners of privacy units, which decide the rank that computes a unit. An owner is a function
// of the unit's number alone: a unit that leaves a batch or the population moves no other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "dp/engine/engine_options.h"
#include "dp/ledger/ledger.h"
#include "dp/sampling/sampler.h"

namespace sotto {

// One of several ranks.
struct RankOf {
  int rank = 0, ranks = 1;
  // Owner k's units are computed by rank k, modulo the number of ranks.
  bool is(std::int64_t owner) const { return owner % ranks == rank; }
};
// The ranks that were given: the options', or else the ledger's; null: neither has any.
std::shared_ptr<Ranks> given_ranks(const EngineOptions& options, const Ledger& ledger);
// This process among options.ranks.
RankOf rank_of(const EngineOptions& options);

// Returns EngineOptions::owner_of_unit, or 0 without it. Throws std::invalid_argument, with the
// unit, for a negative number.
std::int64_t owner_of(const EngineOptions& options, std::int64_t unit);

// Units of a batch in the order of their owners, and in rising order for each.
struct OwnedUnits {
  std::vector<std::int64_t> units, owners;
};

class UnitOwners {
 public:
  // The options must outlive this object.
  explicit UnitOwners(const EngineOptions& options) : options_(options) {}
  // Splits the population into runs of consecutive units with at most about `units` per batch. Run
  // k has owner k unless owner_of_unit is set.
  void set_pieces(const Sampler& sampler, std::int64_t units);
  std::int64_t owner(std::int64_t unit) const;
  // Those of the units that this rank computes.
  OwnedUnits of(RankOf rank, std::span<const std::int64_t> units) const;
  // Those that each rank computes, in rising order, of units in rising order.
  std::vector<std::vector<std::int64_t>> by_rank(int ranks,
                                                 std::span<const std::int64_t> units) const;

 private:
  const EngineOptions& options_;
  std::int64_t piece_ = 1;  // units in it
};

// A bit for each unit of the population: whether this rank owns it. Empty without owner_of_unit.
std::vector<std::byte> owned_units(std::int64_t population, const EngineOptions& options);
// Returns the first unit that several ranks own, or none, or another than rank 0's options say, in
// words; empty if there is none. owned[k] are rank k's owned_units().
std::string owner_problem(std::int64_t population, const EngineOptions& options,
                          const std::vector<std::vector<std::byte>>& owned);

}  // namespace sotto
