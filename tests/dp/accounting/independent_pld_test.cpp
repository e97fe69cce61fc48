// The accountants against a composition that is written from the definitions alone, and shares no
// code with them: losses of a dense grid of outcomes, rounded to a lattice, are added by direct
// convolution.
//
// Rounding to the nearest point of a lattice that is shifted to keep the mean moves each of n
// losses by an independent amount of mean 0 within h / 2 of it. The sum moves by more than t = h
// sqrt(n / 2 ln(1 / missed)) to one side with a probability of `missed` at most (Hoeffding 1963),
// so that
//
//   estimate(delta + missed) - t <= epsilon <= estimate(delta - missed) + t.
// File tags: [optimised][sanitized]
#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "dp/accounting/pld/pld_accountant.h"
#include "dp/accounting/pld/prv_accountant.h"
#include "dp/accounting/rdp/rdp_accountant.h"
#include "tests/support/catch.h"

namespace sotto {
namespace {

constexpr auto replace_one = NeighboringRelation::replace_one;

// Releases of one kind.
struct Releases {
  double noise = 1, rate = 1;
  int count = 1;
};

struct Setting {
  NeighboringRelation relation;
  std::vector<Releases> all;
  double delta;
};

// Probabilities of the losses first + spacing k.
struct Losses {
  double first = 0;
  std::vector<double> masses{1};
};

// The outputs of a release with a record and without it, or with the other one: the sum of the
// others is 0, and a record adds 1, or the other one -1, if it is in the batch.
double density(double x, double mean, double noise) {
  const double z = (x - mean) / noise;
  return std::exp(-0.5 * z * z) / (noise * 2.5066282746310002);
}

// Calls visit(mass of P, loss ln p / q) over a grid of outcomes; mirrored: P and Q exchanged.
template <class Visit>
void visit_losses(const Releases& of, NeighboringRelation relation, bool mirrored,
                  const Visit& visit) {
  constexpr double reach = 14;
  constexpr int points_per_deviation = 500;
  const double step = of.noise / points_per_deviation, other = relation == replace_one ? -1 : 0;
  for (double x = other - reach * of.noise; x < 1 + reach * of.noise; x += step) {
    const double rest = (1 - of.rate) * density(x, 0, of.noise);
    double p = rest + of.rate * density(x, 1, of.noise);
    double q = rest + of.rate * density(x, other, of.noise);
    if (mirrored) std::swap(p, q);
    if (p > 1e-280 && q > 1e-280) visit(p * step, std::log(p / q));
  }
}

// Leaves out the ends while they hold less than `mass` each.
Losses trimmed(Losses losses, double spacing, double mass) {
  std::vector<double>& m = losses.masses;
  double low = 0, high = 0;
  std::size_t begin = 0, end = m.size();
  while (begin < end && low + m[begin] < mass) low += m[begin++];
  while (end > begin && high + m[end - 1] < mass) high += m[--end];
  losses.first += spacing * static_cast<double>(begin);
  m = {m.begin() + static_cast<std::ptrdiff_t>(begin),
       m.begin() + static_cast<std::ptrdiff_t>(end)};
  return losses;
}

Losses one_release(const Releases& of, const Setting& setting, bool mirrored, double spacing) {
  double lowest = 1e300, highest = -1e300, total = 0, moved = 0;
  const auto each = [&](const auto& visit) { visit_losses(of, setting.relation, mirrored, visit); };
  each([&](double, double loss) {
    lowest = std::min(lowest, loss);
    highest = std::max(highest, loss);
  });
  Losses losses{
      lowest, std::vector<double>(static_cast<std::size_t>((highest - lowest) / spacing + 2), 0.0)};
  each([&](double mass, double loss) {
    const double place = std::round((loss - lowest) / spacing);
    losses.masses[static_cast<std::size_t>(place)] += mass;
    total += mass;
    moved += mass * (loss - lowest - spacing * place);
  });
  losses.first += moved / total;
  return losses;
}

Losses sum(const Losses& a, const Losses& b) {
  Losses y{a.first + b.first, std::vector<double>(a.masses.size() + b.masses.size() - 1, 0.0)};
  for (std::size_t i = 0; i < a.masses.size(); ++i) {
    const double mass = a.masses[i];
    double* const to = y.masses.data() + i;
    for (std::size_t j = 0; j < b.masses.size(); ++j) to[j] += mass * b.masses[j];
  }
  return y;
}

// The sum's losses, without so much mass at each end of each of some 20 sums.
Losses composed(const Setting& setting, bool mirrored, double spacing, double mass) {
  Losses all;
  for (const Releases& of : setting.all) {
    Losses power = trimmed(one_release(of, setting, mirrored, spacing), spacing, mass / of.count);
    for (int left = of.count; left > 0; left /= 2) {
      if (left % 2 == 1) all = trimmed(sum(all, power), spacing, mass);
      if (left > 1) power = trimmed(sum(power, power), spacing, mass * 2 / left);
    }
  }
  return all;
}

double delta_of(const Losses& losses, double spacing, double epsilon) {
  double delta = 0;
  for (std::size_t k = 0; k < losses.masses.size(); ++k) {
    const double loss = losses.first + spacing * static_cast<double>(k);
    if (loss > epsilon) delta -= losses.masses[k] * std::expm1(epsilon - loss);
  }
  return delta;
}

double epsilon_of(const Losses& losses, double spacing, double delta) {
  double low = 0, high = losses.first + spacing * static_cast<double>(losses.masses.size());
  if (high <= 0 || delta_of(losses, spacing, 0) <= delta) return 0;
  for (int step = 0; step < 60; ++step) {
    const double middle = (low + high) / 2;
    (delta_of(losses, spacing, middle) > delta ? low : high) = middle;
  }
  return high;
}

struct Interval {
  double low = 0, high = 0;
};

// Contains the true epsilon; `near` is about it.
Interval truth(const Setting& setting, double near) {
  constexpr double part = 1e-3, accuracy = 4e-3;
  double count = 0;
  for (const Releases& of : setting.all) count += of.count;
  const double missed = part / 4 * setting.delta;
  const double moves = std::sqrt(count / 2 * -std::log(missed));
  const double spacing = accuracy * near / moves;
  Interval found;
  for (const bool mirrored : {false, true}) {
    const Losses losses = composed(setting, mirrored, spacing, missed / 50);
    const double above = epsilon_of(losses, spacing, (1 + part) * setting.delta),
                 below = epsilon_of(losses, spacing, (1 - part) * setting.delta);
    found.low = std::max(found.low, above - spacing * moves);
    found.high = std::max(found.high, below + spacing * moves);
    if (setting.relation == replace_one) break;  // the pair is its own mirror image
  }
  return found;
}

template <class A>
A with(A accountant, const Setting& setting) {
  for (const auto& [noise, rate, count] : setting.all)
    accountant.compose({noise, Sampling::poisson, rate}, count);
  return accountant;
}

void check_setting(const Setting& setting) {
  constexpr double close = 1.005;
  const PldAccountant pld = with(PldAccountant(setting.relation), setting);
  const double epsilon = pld.epsilon(setting.delta);
  CAPTURE(setting.relation, setting.delta, epsilon);
  for (const auto& [noise, rate, count] : setting.all)
    UNSCOPED_INFO(noise << ' ' << rate << ' ' << count);
  const auto [low, high] = truth(setting, epsilon);
  CAPTURE(low, high);
  REQUIRE(low < high);
  CHECK(high < 1.02 * low);
  CHECK(epsilon >= low);
  CHECK(epsilon <= close * high);
  CHECK(pld.epsilon(setting.delta, Bound::lower) <= high);
  CHECK(pld.epsilon(setting.delta, Bound::lower) >= low / close);
  const PrvAccountant prv = with(PrvAccountant(setting.relation), setting);
  CHECK(prv.epsilon(setting.delta) >= low);
  CHECK(prv.epsilon(setting.delta) <= close * high + 0.02);
  const RdpAccountant rdp = with(RdpAccountant(default_orders(), setting.relation), setting);
  CHECK(rdp.epsilon(setting.delta) >= low);
}

// Settings from all over the range in which the convolution is exact enough.
class Settings {
 public:
  explicit Settings(std::uint64_t seed) : random_(seed) {}

  Setting next() {
    while (true) {
      Setting setting{below(2) == 0 ? NeighboringRelation::add_or_remove_one : replace_one,
                      {},
                      logarithmic(1e-9, 1e-2)};
      for (int kinds = 1 + below(2); kinds > 0; --kinds)
        setting.all.push_back({.noise = logarithmic(0.6, 8),
                               .rate = below(5) == 0 ? 1 : logarithmic(2e-3, 1),
                               .count = static_cast<int>(logarithmic(1, 200))});
      const double epsilon = with(PldAccountant(setting.relation), setting).epsilon(setting.delta);
      if (epsilon > 0.1 && epsilon < 30) return setting;
    }
  }

 private:
  int below(int end) { return static_cast<int>(random_() % static_cast<std::uint64_t>(end)); }
  double logarithmic(double low, double high) {
    return std::exp(std::uniform_real_distribution(std::log(low), std::log(high))(random_));
  }
  std::mt19937_64 random_;
};

}  // namespace

TEST_CASE("no epsilon is below that of a composition from the definitions, and none is far above",
          "[gate]") {
  Settings settings(1);
  for (int k = 0; k < 5; ++k) check_setting(settings.next());
}

TEST_CASE("hundreds of settings agree with a composition from the definitions", "[nightly]") {
  Settings settings(2);
  for (int k = 0; k < 400; ++k) check_setting(settings.next());
}

}  // namespace sotto
