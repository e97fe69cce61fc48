#include "samples/training/recorder.h"

#include <algorithm>
#include <cmath>

namespace sotto::samples {

namespace {

constexpr int bars = 40;
// Norms have long tails: the axis ends at this quantile, and the last bar counts all above.
constexpr double last_quantile = 0.995;
constexpr double min_bounds = 1.5;  // clip bounds that the axis covers at least

double root_of_squares(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

}  // namespace

void Recorder::add(const StepFacts& facts) {
  loss_sum_ += facts.loss_sum;
  samples_ += facts.samples;
  if (facts.clipping == nullptr) return;
  clipping_ = true;
  const auto& norms = facts.clipping->norms;
  clip_bound_ = root_of_squares(facts.bounds);
  for (std::size_t n = 0; n < norms[0].size(); ++n) {
    std::vector<double> of_sample;
    bool beyond = false;
    for (std::size_t group = 0; group < norms.size(); ++group) {
      of_sample.push_back(norms[group][n]);
      beyond = beyond || norms[group][n] > facts.bounds[group];
    }
    const double norm = root_of_squares(of_sample);
    if (!std::isfinite(norm)) continue;
    norms_.push_back(norm);
    if (beyond) ++clipped_;
  }
}

void Recorder::close(std::int64_t step) {
  if (samples_ > 0) {
    Statistics::Point point{.step = step, .loss = loss_sum_ / static_cast<double>(samples_)};
    if (clipping_) {
      const double fraction = static_cast<double>(clipped_) / static_cast<double>(samples_);
      point.clipped_fraction = fraction;
      close_norms(step, fraction);
    }
    statistics_.points.push_back(point);
  }
  loss_sum_ = 0;
  samples_ = 0;
  clipped_ = 0;
  norms_.clear();
}

void Recorder::close_norms(std::int64_t step, double clipped_fraction) {
  if (norms_.empty()) return;
  const auto place =
      static_cast<std::ptrdiff_t>(static_cast<double>(norms_.size() - 1) * last_quantile);
  std::nth_element(norms_.begin(), norms_.begin() + place, norms_.end());
  const double end = std::max(norms_[static_cast<std::size_t>(place)], min_bounds * clip_bound_);
  TrainingReport::NormHistogram histogram{.step = step,
                                          .counts = std::vector<std::int64_t>(bars),
                                          .clip_bound = clip_bound_,
                                          .clipped_fraction = clipped_fraction};
  for (int k = 0; k <= bars; ++k) histogram.edges.push_back(end * k / bars);
  for (const double norm : norms_) {
    const int bar = std::min(bars - 1, static_cast<int>(std::min(1.0, norm / end) * bars));
    ++histogram.counts[static_cast<std::size_t>(bar)];
  }
  statistics_.norms.push_back(std::move(histogram));
}

}  // namespace sotto::samples
