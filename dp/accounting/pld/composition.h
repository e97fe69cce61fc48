// Bounds, from both sides, on compositions of releases by their privacy loss distributions (PLD).
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "dp/accounting/pld/large_losses.h"
#include "dp/accounting/pld/pld_planner.h"
#include "dp/accounting/pld/tilted_sum.h"
#include "dp/event.h"

namespace sotto {

// Answers queries about growing histories. Results are reused: after one more release of a kind
// seen before, only the spectra are multiplied once more.
class PldComposition {
 public:
  // The smallest noise multiplier of upper bounds; for less noise, lower bounds use this one.
  static constexpr double min_noise = 0.01;

  explicit PldComposition(NeighboringRelation relation,
                          Discretization rounding = Discretization::connect_the_dots)
      : relation_(relation), rounding_(rounding) {}

  // A bound on the epsilon or delta asked for, for a history of full, Poisson and fixed-size
  // batches whose noise multipliers and sampling rates are positive. Lower bounds of fixed-size
  // batches use the worse of their two directions only.
  double answer(const std::map<Event, std::int64_t>& history, const PldQuery& question,
                Bound bound);

 private:
  using Key = SampledGaussian;
  using Counts = std::map<Key, double>;

  // The discretization of one direction, (P, Q) or mirrored, from one side, on a lattice.
  struct Side {
    Bound bound = Bound::upper;
    bool mirrored = false;
    LossLattice lattice;

    auto operator<=>(const Side&) const = default;
  };
  // Results that are kept for one kind of release.
  struct Kind {
    Kind(const Key& key, double tail_mass_truncation)
        : pair(key, tail_mass_truncation), samples(pair) {}

    DominatingPair pair;
    LossSamples samples;
    std::map<Side, DiscretePld> discrete;
  };
  // A sum of losses, the releases it contains, and the loss added last.
  struct Sum {
    TiltedSum sum;
    Counts counts;
    std::optional<std::pair<Key, TiltedLoss>> last;
  };
  struct SumKey {
    Side side;
    double tilt = 0;
    std::int64_t size = 0;

    auto operator<=>(const SumKey&) const = default;
  };

  // A plan for answers in which one loss above `limit` may decide; such losses are not in the sum.
  struct LargeLossPlan {
    double limit = 0;
    PldPlan at_answer, at_rest;
  };
  struct Rest;
  // The plans for both directions.
  struct Views {
    std::vector<PldPlan> plans;
    std::optional<LargeLossEstimate> jumps;  // for the first direction
  };

  Key key(const Event& event, Bound bound) const;
  Counts normalized(const std::map<Event, std::int64_t>& history, int bits, Bound bound) const;
  void truncate_tail(double log_mass);
  double refined(const Counts& counts, const PldQuery& question, Bound bound);
  std::vector<SampledReleases> sampled(const Counts& counts);
  std::vector<PldPlanner> planners(const Counts& counts, const PldQuery& question);
  const DiscretePld& discrete(const Key& key, Side side);
  double log_moment(const Counts& counts, const Side& side, double tilt);
  LossWindow window(const Counts& counts, const Side& side, const PldPlan& plan);
  double chernoff(const Counts& counts, const Side& side, double tilt, const PldQuery& question);
  const TiltedSum& sum(const Counts& counts, const SumKey& key);
  void add(TiltedSum& sum, const Side& side, const std::vector<std::pair<Key, double>>& kinds);
  std::optional<LossWindow> fit(const Counts& counts, Side& side, const PldPlan& plan);
  double composed(const Counts& counts, const Side& side, double tilt, const LossWindow& window,
                  const PldQuery& question);
  double answer(const Counts& counts, Side side, const PldPlan& plan, const PldQuery& question);
  std::vector<double> answers(const Counts& counts, const Views& views, const PldQuery& question,
                              Bound bound);
  double of_other(const Counts& counts, const PldPlan& plan, const PldQuery& question,
                  double enough);
  double with_large_losses(const Counts& counts, const PldQuery& question, Bound bound,
                           const LargeLossEstimate& estimate);
  double large_loss_answer(const Counts& counts, const Side& side, const LargeLossPlan& plan,
                           const PldQuery& question);
  std::optional<LargeLossCurve> large_loss_curve(const Counts& counts, const Side& side,
                                                 const LargeLossPlan& plan);
  std::optional<DeltaCurve> curve_of(const std::vector<Rest>& rests, const Side& side,
                                     const PldPlan& plan);
  double matched_spacing(const Counts& counts, const PldPlan& plan) const;
  double matched_answer(const Counts& counts, const Side& side, double tilt,
                        const LossWindow& window, const PldQuery& question);

  NeighboringRelation relation_;
  Discretization rounding_;
  double tail_mass_truncation_ = 0;  // at each end of every kind's distribution
  std::map<Key, Kind> kinds_;
  std::map<SumKey, Sum> sums_;
};

}  // namespace sotto
