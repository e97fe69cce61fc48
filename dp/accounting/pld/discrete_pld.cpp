#include "dp/accounting/pld/discrete_pld.h"

#include <bit>
#include <limits>

namespace sotto {

namespace {

using Atom = DiscretePld::Atom;

// The distance, in spacings, from the point `index` spacings off the centre to the next one
// outwards.
std::int64_t stride(std::int64_t index, std::int64_t dense) {
  const std::int64_t ratio = std::abs(index) / dense;
  return ratio < 2 ? 1
                   : static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(ratio)));
}

// Lattice points in increasing order, from one not above `lowest` to one not below `highest`.
std::vector<Atom> lattice_points(double lowest, double highest, const LossLattice& lattice) {
  std::vector<Atom> points;
  const auto beyond = [&](std::int64_t index, double end) {
    return static_cast<double>(index) * lattice.spacing >= end;
  };
  std::int64_t index = 0;
  for (; !beyond(index, -lowest); index += stride(index, lattice.dense)) {
    points.push_back({-index});
  }
  points.push_back({-index});
  std::reverse(points.begin(), points.end());
  for (index = 0; !beyond(index, highest);) {
    index += stride(index, lattice.dense);
    points.push_back({index});
  }
  return points;
}

// e^t - 1, by a short series for t as small as cells usually are.
double change(double t) {
  constexpr double small = 5e-3;  // t^6 / 7! is below the rounding
  if (std::abs(t) > small) return std::expm1(t);
  return t * (1 + t / 2 * (1 + t / 3 * (1 + t / 4 * (1 + t / 5 * (1 + t / 6)))));
}

// Divides mass of P at distance t above the lower end of a cell of width h: the fraction (1 -
// e^{-t}) / (1 - e^{-h}) goes to the upper end, and (e^{h-t} - 1) / (e^h - 1) to the lower.
DiscretePld connect_dots(const DominatingPair& pair, const LossLattice& lattice) {
  DiscretePld result{.offset = pair.centre(), .spacing = lattice.spacing};
  result.infinity_mass = pair.infinity_mass();
  result.atoms = lattice_points(pair.loss(pair.lowest()) - result.offset,
                                pair.loss(pair.highest()) - result.offset, lattice);
  std::vector<Atom>& atoms = result.atoms;
  std::vector<double> masses(atoms.size());
  double from = pair.lowest();
  for (std::size_t i = 0; i + 1 < atoms.size(); ++i) {
    const double low = result.loss(atoms[i]), high = result.loss(atoms[i + 1]);
    const double up = -1 / std::expm1(low - high), down = 1 / std::expm1(high - low);
    const bool last = i + 2 == atoms.size();
    const double to = last ? pair.highest() : std::clamp(pair.position(high), from, pair.highest());
    pair.integrate(from, to, [&](double mass, double loss) {
      masses[i] += mass * std::max(down * change(high - loss), 0.0);
      masses[i + 1] -= mass * std::min(up * change(low - loss), 0.0);
    });
    from = to;
  }
  for (std::size_t i = 0; i < atoms.size(); ++i) {
    if (atoms[i].index == 0)
      masses[i] += pair.without_loss();  // if there is such mass, the centre is 0
    atoms[i].log_mass = std::log(masses[i]);
  }
  std::erase_if(atoms, [](const Atom& atom) { return std::isinf(atom.log_mass); });
  return result;
}

// Merges outcomes into runs, from the lowest loss upwards. If a run's joint loss is not quite a
// lattice point, the loss of (P, Q), or mirrored that of (Q, P), is rounded down.
class Merger {
 public:
  Merger(const DominatingPair& pair, const LossLattice& lattice, bool mirrored)
      : pair_(pair), lattice_(lattice), side_(mirrored ? -1 : 1), centre_(pair.centre()) {}

  DiscretePld merge() {
    result_.spacing = lattice_.spacing;
    double from = first_run();
    while (from < pair_.highest()) from = next_run(from);
    return std::move(result_);
  }

 private:
  static constexpr double slack = 1e-12;  // relative, above the rounding of an integral

  // Outcomes between two positions: their P, and their P - e^goal Q.
  struct Run {
    double mass = 0, excess = 0;
  };
  Run run(double from, double to, double goal) const {
    Run run;
    pair_.integrate(from, to, [&](double mass, double loss) {
      run.mass += mass;
      run.excess -= mass * std::expm1(goal - loss);
    });
    return run;
  }

  // Adds the lowest run, whose loss becomes the offset. It ends where the density of the loss falls
  // slowly enough for the next run to have a loss on the lattice. Returns its end.
  double first_run() {
    constexpr double growth = 1.5;
    const double start = pair_.lowest(), lowest = pair_.loss(start);
    double end = start;
    for (double width = lattice_.spacing;; width *= growth) {
      end = std::clamp(pair_.position(lowest + width), end, pair_.highest());
      const Run first = run(start, end, lowest);
      result_.offset = lowest - std::log1p(-first.excess / first.mass);
      if (end == pair_.highest()) break;
      if (end_of_run(end, point(target(pair_.loss(end)))) < pair_.highest()) break;
    }
    double margin = slack * (std::abs(result_.offset - lowest) + std::abs(lowest));
    Run first = run(start, end, result_.offset);
    for (; !(side_ * first.excess >= 0); margin *= 2) {
      result_.offset -= side_ * margin;
      first = run(start, end, result_.offset);
    }
    add(0, first);
    return end;
  }

  // Adds the run from a position on, and returns its end.
  double next_run(double from) {
    std::int64_t index = target(pair_.loss(from));
    double to = end_of_run(from, point(index));
    Run next;
    if (to < pair_.highest()) next = run(from, to, point(index));
    if (to == pair_.highest() || !(side_ * next.excess >= 0)) {
      // The density falls too fast for so wide a run: take one whose loss is rounded.
      constexpr double rounding = 1e-6;  // spacings
      to = std::min(pair_.position(2 * point(index) - pair_.loss(from)), pair_.highest());
      next = run(from, to, point(index));
      const double loss = point(index) - std::log1p(-next.excess / next.mass);
      const double steps = (loss - result_.offset) / lattice_.spacing - side_ * rounding;
      index = static_cast<std::int64_t>(side_ > 0 ? std::floor(steps) : std::ceil(steps));
      next = run(from, to, point(index));
    }
    add(index, next);
    return to;
  }

  double point(std::int64_t index) const {
    return result_.offset + static_cast<double>(index) * lattice_.spacing;
  }

  // The lattice point to be the loss of the run that begins at `loss`. Runs are at least two
  // spacings wide, so that one exists.
  std::int64_t target(double loss) const {
    const double relative = std::abs(loss - centre_) / (2 * static_cast<double>(lattice_.dense));
    const double half_width = std::max(lattice_.spacing, relative);
    return static_cast<std::int64_t>(
        std::ceil((loss + half_width - result_.offset) / lattice_.spacing));
  }

  // The position where a run must end for its joint loss to be `goal`, by Newton's method for the
  // excess, whose derivative is the integrand at the end; highest() if the run would be too long.
  double end_of_run(double from, double goal) const {
    constexpr int max_steps = 30;
    constexpr double precision = 1e-13, longest = 64;
    const double rise = goal - pair_.loss(from), start = pair_.position(goal);
    const double limit = std::min(pair_.position(goal + longest * rise), pair_.highest());
    double to = pair_.position(goal + rise);
    for (int step = 0; step < max_steps && to < limit; ++step) {
      const LossPoint end = pair_.at(to);
      const double slope = -end.density * std::expm1(goal - end.loss);
      const double change = run(from, to, goal).excess / slope;
      to = std::clamp(to - change, start, to + 2 * (to - start));
      if (!(std::abs(change) > precision * (to - from))) break;
    }
    to += side_ * slack * (to - from);
    return to < limit ? to : pair_.highest();
  }

  // Adds an atom that the run dominates: it has less of P at a loss that is not above the run's, or
  // mirrored, less of Q at a loss that is not below.
  void add(std::int64_t index, const Run& run) {
    const double mass = side_ > 0 ? run.mass - run.excess : run.mass;
    const bool fits = side_ * run.excess >= 0 && mass > 0;
    if (fits) result_.atoms.push_back({index, std::log(mass)});
  }

  const DominatingPair& pair_;
  LossLattice lattice_;
  double side_, centre_;
  DiscretePld result_;
};

// Exchanges P and Q.
DiscretePld mirror_image(const DiscretePld& pair) {
  DiscretePld result{
      .offset = -pair.offset, .spacing = pair.spacing, .infinity_mass = pair.infinity_mass};
  for (auto atom = pair.atoms.rbegin(); atom != pair.atoms.rend(); ++atom) {
    result.atoms.push_back({-atom->index, atom->log_mass - pair.loss(*atom)});
  }
  return result;
}

}  // namespace

DiscretePld discretise(const DominatingPair& pair, const LossLattice& lattice, Bound bound,
                       bool mirrored) {
  DiscretePld result =
      bound == Bound::upper ? connect_dots(pair, lattice) : Merger(pair, lattice, mirrored).merge();
  return mirrored ? mirror_image(result) : result;
}

// Cells are measured between the losses of their ends, which includes the rounding of position().
DiscretePld mean_matched(const DominatingPair& pair, double spacing, bool mirrored) {
  constexpr double evaluation = 1e-14;  // relative error of a loss
  DiscretePld result{
      .offset = pair.centre(), .spacing = spacing, .infinity_mass = pair.infinity_mass()};
  const double lowest = pair.loss(pair.lowest()), highest = pair.loss(pair.highest());
  double from = pair.lowest(), below = lowest, min = 0, max = 0, total = 0, moved = 0;
  auto index = static_cast<std::int64_t>(std::floor((lowest - result.offset) / spacing));
  for (; from < pair.highest(); ++index) {
    const double point = result.loss({index});
    const double to = std::clamp(pair.position(point + spacing / 2), from, pair.highest());
    double mass = index == 0 ? pair.without_loss() : 0;  // if there is such mass, the centre is 0
    pair.integrate(from, to, [&](double of_p, double loss) {
      const double part = mirrored ? of_p * std::exp(-loss) : of_p;
      mass += part;
      moved += part * (loss - point);
    });
    const double above = pair.loss(to);
    if (mass > 0) {
      min = std::min(min, below - point);
      max = std::max(max, above - point);
      total += mass;
      result.atoms.push_back({index, std::log(mass)});
    }
    from = to;
    below = above;
  }
  result.offset += moved / total;
  result.width = max - min;
  result.drift =
      mass_tolerance * result.width + evaluation * std::max(std::abs(lowest), std::abs(highest));
  if (!mirrored) return result;
  result.offset = -result.offset;
  std::ranges::reverse(result.atoms);
  for (Atom& atom : result.atoms) atom.index = -atom.index;
  return result;
}

double log_moment(const DiscretePld& pair, double tilt) {
  const auto exponent = [&](const Atom& atom) { return atom.log_mass + tilt * pair.loss(atom); };
  double largest = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const Atom& atom : pair.atoms) largest = std::max(largest, exponent(atom));
  for (const Atom& atom : pair.atoms) sum += std::exp(exponent(atom) - largest);
  return sum > 0 ? largest + std::log(sum) : largest;
}

}  // namespace sotto
