#include "samples/mnist/recorder.h"

#include <algorithm>
#include <cmath>

namespace sotto::mnist {

namespace {

constexpr int bars = 40;
// Norms have long tails: the axis ends here, and the last bar holds what lies beyond.
constexpr double last_quantile = 0.995;
constexpr double least_bounds = 1.5;  // that are on the axis

}  // namespace

void Recorder::add(const StepFacts& facts) {
  loss_sum_ += facts.loss_sum;
  samples_ += facts.samples;
  if (facts.clipping == nullptr) return;
  clipping_ = true;
  for (const std::vector<double>& group : facts.clipping->norms) {
    for (const double norm : group) {
      if (std::isfinite(norm)) norms_.push_back(norm);
    }
  }
}

void Recorder::close(std::int64_t step) {
  if (samples_ > 0) {
    Statistics::Point point{.step = step, .loss = loss_sum_ / static_cast<double>(samples_)};
    if (clipping_) {
      const auto clipped = std::count_if(norms_.begin(), norms_.end(),
                                         [this](double norm) { return norm > clip_bound_; });
      const double fraction = static_cast<double>(clipped) / static_cast<double>(samples_);
      point.clipped_fraction = fraction;
      close_norms(step, fraction);
    }
    statistics_.points.push_back(point);
  }
  loss_sum_ = 0;
  samples_ = 0;
  norms_.clear();
}

void Recorder::close_norms(std::int64_t step, double clipped_fraction) {
  if (norms_.empty()) return;
  const auto place =
      static_cast<std::ptrdiff_t>(static_cast<double>(norms_.size() - 1) * last_quantile);
  std::nth_element(norms_.begin(), norms_.begin() + place, norms_.end());
  const double end = std::max(norms_[static_cast<std::size_t>(place)], least_bounds * clip_bound_);
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

}  // namespace sotto::mnist
