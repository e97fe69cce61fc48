#include "dp/accounting/calibration.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "dp/numerics/root_search.h"

namespace sotto {

namespace {

// integers are exact in a double up to here
constexpr std::int64_t step_limit = std::int64_t{1} << 53;
// Adding the steps up one by one rounds differently, by far less than the margin.
constexpr double margin = 1e-9, tolerance = 1e-7;
// A probability may change by a factor e^epsilon. For larger targets a search for steps takes long.
constexpr double max_epsilon = 1e4;

// A target, with an accountant to evaluate it.
class Search {
 public:
  Search(const char* op, const PrivacyTarget& target, const AccountantFactory& accountant)
      : op_(op), target_(target), accountant_(accountant) {
    check(target.epsilon > 0 && std::isfinite(target.epsilon),
          "{}: epsilon {} is not a finite number > 0", op, target.epsilon);
    check(target.epsilon <= max_epsilon, "{}: epsilon {} is above {} and promises nothing", op,
          target.epsilon, max_epsilon);
    check(target.delta > 0 && target.delta < 1, "{}: delta {} is not in (0, 1)", op, target.delta);
    check(target.steps >= 0 && target.steps <= step_limit, "{}: {} steps", op, target.steps);
    check_event(op, target.batch);
    check(target.batch.sampling_rate > 0, "{}: sampling rate {}", op, target.batch.sampling_rate);
    check(!target.batch.paid, "{}: the batch is already charged with its epoch", op);
    check(accountant != nullptr, "{}: no accountant", op);
    check(!target.noise_at || target.batch.batches == 1,
          "{}: the noise may not change within an epoch", op);
    const auto asked = accountant();
    const std::string reason =
        unsupported_reason(asked->kind(), target.batch.sampling, asked->relation());
    check(reason.empty(), "{}: {}", op, reason);
  }

  std::int64_t epochs() const {
    const std::int64_t batches = target_.batch.batches;
    return target_.steps / batches + (target_.steps % batches > 0 ? 1 : 0);
  }

  // The epsilon of `epochs` epochs; a batch outside epochs counts as an epoch of one.
  double spent(const Event& batch, std::int64_t epochs) const {
    const auto accountant = accountant_();
    if (!target_.noise_at) accountant->compose(batch, epochs);
    Event event = batch;
    for (std::int64_t step = 0; target_.noise_at && step < epochs; ++step) {
      event.noise_multiplier = target_.noise_at(step, batch.noise_multiplier);
      accountant->compose(event);
    }
    return accountant->epsilon(target_.delta);
  }

  // ln of (epsilon spent / target epsilon), plus the margin.
  double excess(const Event& batch) const {
    return margin + std::log(spent(batch, epochs()) / target_.epsilon);
  }

  Event batch(double noise_multiplier) const {
    check(std::isfinite(noise_multiplier) && noise_multiplier >= 0,
          "{}: noise multiplier {} is not a finite number >= 0", op_, noise_multiplier);
    Event event = target_.batch;
    event.noise_multiplier = noise_multiplier;
    return event;
  }

  void check_reach(bool within) const {
    check(within, "{}: epsilon {} at delta {} is out of reach of the {} accountant", op_,
          target_.epsilon, target_.delta, accountant_()->name());
  }

 private:
  const char* op_;
  const PrivacyTarget& target_;
  const AccountantFactory& accountant_;
};

}  // namespace

double calibrate_noise_multiplier(const PrivacyTarget& target,
                                  const AccountantFactory& accountant) {
  const Search search("calibrate_noise_multiplier", target, accountant);
  if (target.steps == 0) return 0;
  constexpr double largest = 1e9;
  const auto excess = [&](double sigma) { return search.excess(search.batch(sigma)); };
  double low = 1, high = 1;
  while (excess(high) > 0) {
    low = high;
    high *= 2;
    search.check_reach(high < largest);
  }
  while (low == high || excess(low) <= 0) {
    high = low;
    low /= 2;
  }
  return safe_root(low, high, tolerance, excess);
}

std::int64_t max_steps(double noise_multiplier, const PrivacyTarget& target,
                       const AccountantFactory& accountant) {
  const Search search("max_steps", target, accountant);
  const Event batch = search.batch(noise_multiplier);
  const auto excess = [&](std::int64_t epochs) {
    return search.spent(batch, epochs) / target.epsilon - 1;
  };
  constexpr std::int64_t growth = 16;
  const std::int64_t max = step_limit / batch.batches;
  if (max == 0) return 0;
  std::int64_t low = 0, high = 1;
  double below = -1, above = excess(high);
  while (above <= 0 && high < max) {
    low = high;
    below = above;
    high = std::min(growth * high, max);
    above = excess(high);
  }
  if (above <= 0) return max * batch.batches;
  // False position, with bisection at every second step: a large number takes long to compose.
  for (int step = 1;
       static_cast<double>(high - low) > std::max(1.0, tolerance * static_cast<double>(low));
       ++step) {
    const double part = below / (below - above) * static_cast<double>(high - low);
    std::int64_t middle = low + (std::isfinite(part) ? static_cast<std::int64_t>(part) : 0);
    if (step % 2 == 0 || middle == low || middle == high) middle = std::midpoint(low, high);
    const double y = excess(middle);
    (y > 0 ? high : low) = middle;
    (y > 0 ? above : below) = y;
  }
  return low * batch.batches;
}

double max_sampling_rate(double noise_multiplier, const PrivacyTarget& target,
                         const AccountantFactory& accountant) {
  PrivacyTarget any_rate = target;
  any_rate.batch.sampling_rate = 1;
  const Search search("max_sampling_rate", any_rate, accountant);
  Event batch = search.batch(noise_multiplier);
  check(has_rate(batch.sampling), "max_sampling_rate: {} batches have no sampling rate",
        name(batch.sampling));
  const auto excess = [&](double rate) {
    batch.sampling_rate = rate;
    return search.excess(batch);
  };
  if (target.steps == 0 || excess(1) <= 0) return 1;
  constexpr double min = 1e-15, factor = 8;
  double high = 1, low = 1 / factor;
  while (excess(low) > 0) {
    high = low;
    low /= factor;
    search.check_reach(low >= min);
  }
  return safe_root(high, low, tolerance, excess);
}

double joint_noise_multiplier(double one, double other) {
  check(one >= 0 && other >= 0, "joint_noise_multiplier: {} and {}", one, other);
  const double less = std::min(one, other), ratio = less / std::max(one, other);
  return less == 0 || std::isinf(less) ? less : less / std::hypot(1, ratio);
}

double other_noise_multiplier(double joint, double one) {
  check(joint >= 0 && joint < one, "other_noise_multiplier: {} of a joint {}", one, joint);
  const double ratio = joint / one;
  return joint / std::sqrt((1 - ratio) * (1 + ratio));
}

// A unit changes each centered count by 1/2, so the counts' noise multiplier is 2 / sqrt(groups)
// times their standard deviation.
double calibrate_count_noise(double noise_multiplier, std::int64_t groups,
                             const PrivacyTarget& target, const AccountantFactory& accountant) {
  check(groups >= 1, "calibrate_count_noise: counts of {} groups", groups);
  const double joint = calibrate_noise_multiplier(target, accountant);
  check(joint < noise_multiplier,
        "calibrate_count_noise: the gradients' noise multiplier {} is not above {}, which the "
        "target requires of both together",
        noise_multiplier, joint);
  return 0.5 * std::sqrt(static_cast<double>(groups)) *
         other_noise_multiplier(joint, noise_multiplier);
}

}  // namespace sotto
