#include "dp/accounting/pld/tilted_sum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "dp/accounting/pld/pld_planner.h"
#include "dp/numerics/fourier.h"

namespace sotto {

namespace {

using Complex = std::complex<double>;

constexpr double unit = std::numeric_limits<double>::epsilon() / 2;  // unit roundoff
constexpr double negligible_log = 80;  // smaller spectral values are set to 0

// A bound on the relative rounding error per halving of a transform: a product by a rounded root of
// unity and two additions, doubled for the split into even and odd.
constexpr double rounding_per_level = 16 * unit;

// A bound on the rounding error of a factor of size <= 1 in the product.
constexpr double rounding_per_factor = 16 * unit;
constexpr double few_factors = 8;  // up to here, powers are computed by multiplication

// (origin + rest)^n for a base of size <= 1, and 0 below e^-80; n may be any positive number. The
// error is proportional to the rest.
Complex power(double log_origin, const Complex& ratio, double n) {
  constexpr double cancels = -0.5;  // half of the square of origin and more
  const double x = ratio.real(), y = ratio.imag();
  const double change = x * (2 + x) + y * y;
  const double log_size =
      log_origin + (change > cancels ? 0.5 * std::log1p(change) : std::log(std::hypot(1 + x, y)));
  if (!(n * log_size > -negligible_log)) return 0;
  return std::polar(std::exp(n * log_size), n * std::atan2(y, 1 + x));
}

Complex power(Complex z, int n) {
  Complex result = 1;
  for (; n > 0; n /= 2, z *= z) {
    if (n % 2 == 1) result *= z;
  }
  return result;
}

std::size_t wrap(std::int64_t index, std::int64_t size) {
  const std::int64_t rest = index % size;
  return static_cast<std::size_t>(rest < 0 ? rest + size : rest);
}

}  // namespace

std::int64_t transform_size(double count) {
  const auto power = static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::max(std::ceil(count), 16.0))));
  const std::int64_t less = power / 4 * 3;
  return static_cast<double>(less) >= count ? less : power;
}

TiltedSum::TiltedSum(double tilt, double spacing, std::int64_t size)
    : tilt_(tilt),
      spacing_(spacing),
      size_(size),
      product_(static_cast<std::size_t>(size) / 2 + 1, 1) {}

TiltedLoss TiltedSum::tilted(const DiscretePld& pair) const {
  TiltedLoss loss{.log_moment = sotto::log_moment(pair, tilt_),
                  .infinity_mass = pair.infinity_mass};
  const auto log_mass = [&](const auto& atom) { return atom.log_mass + tilt_ * pair.loss(atom); };
  const auto origin = std::ranges::max_element(pair.atoms, {}, log_mass);
  loss.offset = pair.loss(*origin);
  std::vector<double> density(static_cast<std::size_t>(size_));
  for (auto atom = pair.atoms.begin(); atom != pair.atoms.end(); ++atom) {
    if (atom == origin) continue;
    const double mass = std::exp(log_mass(*atom) - loss.log_moment);
    density[wrap(atom->index - origin->index, size_)] += mass;
    loss.rest += mass;
  }
  loss.log_origin = loss.rest < 0.5 ? std::log1p(-loss.rest) : log_mass(*origin) - loss.log_moment;
  loss.spectrum = fourier_transform(size_).forward(density);
  return loss;
}

void TiltedSum::add(const TiltedLoss& loss, double count) {
  static const double min = std::exp(-2 * negligible_log);
  const double origin = std::exp(loss.log_origin), scale = 1 / origin;
  const bool few = count <= few_factors && count == std::floor(count);
  for (std::size_t k = 0; k < product_.size(); ++k) {
    Complex& product = product_[k];
    if (product == 0.0) continue;
    product *= few ? power(origin + loss.spectrum[k], static_cast<int>(count))
                   : power(loss.log_origin, scale * loss.spectrum[k], count);
    if (std::norm(product) < min) product = 0;
  }
  factors_ += few ? count : 1;
  offset_ += count * loss.offset;
  count_ += count;
  spread_ += count * loss.rest;
  log_moment_ += count * loss.log_moment;
  log_kept_ += count * std::log1p(-loss.infinity_mass);
}

std::vector<double> TiltedSum::folded() const { return fourier_transform(size_).inverse(product_); }

double TiltedSum::rounding() const {
  double sum = 0;
  for (const Complex& z : product_) sum += std::abs(z);
  const double mean = 2 * sum / static_cast<double>(size_);
  const double error = rounding_per_level * std::log2(static_cast<double>(size_));
  return error * ((2 * spread_ + 1) * mean + 1) + rounding_per_factor * (2 * factors_ * mean + 1) +
         std::exp(-negligible_log);
}

double DeltaTable::delta(std::int64_t index, double epsilon) const {
  const double value = scaled[static_cast<std::size_t>(index)];
  const double finite = value == 0 ? 0 : std::exp(std::log(value) + log_scale - tilt * epsilon);
  return std::min(finite + infinity_mass, 1.0);
}

DeltaCurve::DeltaCurve(const TiltedSum& sum, const LossWindow& window, Bound bound)
    : bound_(bound),
      table_{.spacing = sum.spacing(),
             .tilt = sum.tilt(),
             .log_scale = sum.log_moment(),
             .infinity_mass = bound == Bound::upper ? sum.infinity_mass() : 0,
             .scaled = std::vector<double>(static_cast<std::size_t>(sum.size()))} {
  auto& [first, spacing, tilt, log_scale, infinity_mass, values] = table_;
  // The relative rounding error of the recursions below: 13/2 units for each of 2^21 points.
  constexpr double sums = 2e-9;
  const double side = bound == Bound::upper ? 1 : -1;
  log_scale += side * (sums + mass_tolerance * sum.count() + 8 * unit * std::abs(log_scale));
  const auto start = static_cast<std::int64_t>(std::floor((window.low - sum.offset()) / spacing));
  first = sum.offset() + static_cast<double>(start) * spacing;
  const double outside = side * std::exp(log_largest_weight(tilt)) * window.outside_mass;
  const double error = side * sum.rounding();
  const std::vector<double> density = sum.folded();
  // mass = sum_{k >= i} f_k e^{-tilt d (k - i)},
  // scaled = sum_{k > i} f_k (1 - e^{-d (k - i)}) e^{-tilt d (k - i)}
  const double decay = std::exp(-tilt * spacing), rise = -std::expm1(-spacing);
  // A lower bound at epsilon also holds at every smaller one, where the subtraction may leave less.
  const double kept = bound == Bound::lower ? decay : 0;
  double mass = 0, scaled = 0, last = 0;
  std::size_t place = wrap(start + sum.size() - 1, sum.size());
  for (std::int64_t i = sum.size() - 1; i >= 0; --i) {
    scaled = decay * ((1 - rise) * scaled + rise * mass);
    mass = decay * mass + std::max(density[place] + error, 0.0);
    place = place == 0 ? density.size() - 1 : place - 1;
    last = std::max(scaled + outside, kept * last);
    values[static_cast<std::size_t>(i)] = last;
  }
}

double DeltaCurve::delta(double epsilon) const {
  const double place = (epsilon - table_.first) / table_.spacing;
  const auto last = std::ssize(table_.scaled) - 1;
  if (place >= static_cast<double>(last))  // only mass outside the window is above
    return bound_ == Bound::upper ? table_.delta(last, epsilon) : 0;
  if (place < 0) {  // delta is convex in e^epsilon, 1 at epsilon = -infinity
    const double low = table_.delta(0);
    const double below = epsilon - table_.first;
    return bound_ == Bound::upper ? low * std::exp(below) - std::expm1(below) : low;
  }
  const auto index = static_cast<std::int64_t>(place);
  const double below = table_.delta(index), above = table_.delta(index + 1);
  const double part = std::expm1(epsilon - table_.point(index)) / std::expm1(table_.spacing);
  return below + std::clamp(part, 0.0, 1.0) * (above - below);
}

double DeltaCurve::epsilon(double delta) const {
  std::int64_t above = -1, below = std::ssize(table_.scaled) - 1;
  if (table_.delta(below) > delta) {
    return bound_ == Bound::upper ? std::numeric_limits<double>::infinity()
                                  : std::max(table_.point(below), 0.0);
  }
  while (below - above > 1) {  // the table's delta at `above` is > delta, and at `below` <= delta
    const std::int64_t middle = above + (below - above) / 2;
    (table_.delta(middle) > delta ? above : below) = middle;
  }
  if (above < 0) {
    if (bound_ == Bound::lower) return 0;
    const double low = table_.delta(0);
    return std::max(table_.first + std::log1p((low - delta) / (1 - low)), 0.0);
  }
  const double more = table_.delta(above), less = table_.delta(below);
  const double part = (more - delta) / (more - less);
  return std::max(table_.point(above) + std::log1p(part * std::expm1(table_.spacing)), 0.0);
}

}  // namespace sotto
