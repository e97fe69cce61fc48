#include "dp/accounting/pld/loss_cache.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "core/threads/parallel.h"

namespace sotto {

namespace {

// The losses of one kind of release.
struct Kind {
  Kind(const SampledGaussian& release, double tail_mass_truncation)
      : pair(release, tail_mass_truncation), samples(pair) {}

  DominatingPair pair;
  LossSamples samples;
  std::map<PldSide, DiscretePld> discrete;
};

// A sum of losses, the releases it contains, and the loss added last.
struct Sum {
  TiltedSum sum;
  ReleaseCounts counts;
  std::optional<std::pair<SampledGaussian, TiltedLoss>> last;
};

struct SumKey {
  PldSide side;
  double tilt = 0;
  std::int64_t size = 0;

  auto operator<=>(const SumKey&) const = default;
};

// Adds many kinds in order, as many at a time as have transforms of a few points together.
void add(LossCache& cache, TiltedSum& sum, const PldSide& side,
         const std::vector<std::pair<SampledGaussian, double>>& kinds) {
  constexpr std::int64_t few_points = 1 << 19;
  const std::int64_t together = std::max<std::int64_t>(1, few_points / sum.size());
  std::vector<TiltedLoss> losses(static_cast<std::size_t>(together));
  for (std::int64_t first = 0; first < std::ssize(kinds); first += together) {
    const std::int64_t here = std::min(together, std::ssize(kinds) - first);
    const auto* const kind = kinds.data() + first;
    parallel_for(here, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i)
        losses[static_cast<std::size_t>(i)] = sum.tilted(cache.discrete(kind[i].first, side));
    });
    for (std::int64_t i = 0; i < here; ++i)
      sum.add(losses[static_cast<std::size_t>(i)], kind[i].second);
  }
}

}  // namespace

struct LossCache::Entries {
  std::map<SampledGaussian, Kind> kinds;
  std::map<SumKey, Sum> sums;
};

LossCache::LossCache(Discretization rounding)
    : rounding_(rounding), entries_(std::make_unique<Entries>()) {}

LossCache::~LossCache() = default;

void LossCache::truncate_tails(double log_mass) {
  constexpr double step = 8, min = -680;
  const double mass = std::exp(std::max(std::floor(log_mass / step) * step, min));
  if (mass == tail_mass_truncation_) return;
  tail_mass_truncation_ = mass;
  entries_->kinds.clear();
  entries_->sums.clear();
}

std::vector<SampledReleases> LossCache::sampled(const ReleaseCounts& counts) {
  std::vector<SampledReleases> releases;
  for (const auto& [key, count] : counts) {
    const auto kind = entries_->kinds.try_emplace(key, key, tail_mass_truncation_).first;
    releases.push_back({&kind->second.samples, count});
  }
  return releases;
}

const DominatingPair& LossCache::pair(const SampledGaussian& kind) const {
  return entries_->kinds.at(kind).pair;
}

const DiscretePld& LossCache::discrete(const SampledGaussian& kind, PldSide side) {
  constexpr std::size_t max_kept = 8;
  const bool matched = rounding_ == Discretization::mean_matched;
  if (matched) side.bound = Bound::upper;  // one serves both bounds
  Kind& losses = entries_->kinds.at(kind);
  const auto known = losses.discrete.find(side);
  if (known != losses.discrete.end()) return known->second;
  if (losses.discrete.size() >= max_kept) losses.discrete.clear();
  DiscretePld pair = matched ? mean_matched(losses.pair, side.lattice.spacing, side.mirrored)
                             : discretise(losses.pair, side.lattice, side.bound, side.mirrored);
  return losses.discrete.emplace(side, std::move(pair)).first->second;
}

double LossCache::log_moment(const ReleaseCounts& counts, const PldSide& side, double tilt) {
  constexpr std::int64_t grain = 8;
  const std::vector<std::pair<SampledGaussian, double>> kinds(counts.begin(), counts.end());
  std::vector<double> moments(kinds.size());
  parallel_for(std::ssize(kinds), grain, [&](std::int64_t begin, std::int64_t end) {
    for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i)
      moments[i] = kinds[i].second * sotto::log_moment(discrete(kinds[i].first, side), tilt);
  });
  return std::accumulate(moments.begin(), moments.end(), 0.0);
}

// The sum leaves the cache while it changes, so that an exception leaves no counts without their
// terms.
const TiltedSum& LossCache::sum(const ReleaseCounts& counts, const PldSide& side, double tilt,
                                std::int64_t size) {
  constexpr std::size_t max_kept = 8;
  const auto empty = [&] { return Sum{TiltedSum(tilt, side.lattice.spacing, size), {}, {}}; };
  auto& sums = entries_->sums;
  const SumKey key{side, tilt, size};
  auto place = sums.extract(key);
  if (place.empty() && sums.size() >= max_kept) sums.clear();
  Sum known = place.empty() ? empty() : std::move(place.mapped());
  const bool grows = std::ranges::all_of(known.counts, [&](const auto& added) {
    const auto kind = counts.find(added.first);
    return kind != counts.end() && kind->second >= added.second;
  });
  if (!grows) known = empty();
  std::vector<std::pair<SampledGaussian, double>> more;
  for (const auto& [kind, count] : counts) {
    double& added = known.counts[kind];
    if (count > added) more.emplace_back(kind, count - added);
    added = count;
  }
  if (more.size() == 1) {
    const auto& [kind, count] = more.front();
    if (!known.last || known.last->first != kind)
      known.last = {kind, known.sum.tilted(discrete(kind, side))};
    known.sum.add(known.last->second, count);
  } else {
    add(*this, known.sum, side, more);
  }
  return sums.emplace(key, std::move(known)).first->second.sum;
}

}  // namespace sotto
