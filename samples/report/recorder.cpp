#include "samples/report/recorder.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/io/atomic_file.h"
#include "core/ranks/collectives.h"
#include "samples/cli/model_file.h"

namespace sotto::samples {

namespace {

constexpr int bars = 40;
// Norms differ by orders of magnitude: the bars are equally wide in their logarithm. At most this
// share of the norms lies below the bars, and above them.
constexpr double tail = 0.005;
constexpr double around_bound = 1.5;  // the axis covers the clip bound by this factor, both ways
constexpr double max_ratio = 1e6;     // of the ends of the axis

double root_of_squares(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

using nlohmann::json;

constexpr std::size_t max_statistics_bytes = std::size_t{1} << 28;

json or_null(const std::optional<double>& value) { return value ? json(*value) : json(nullptr); }
std::optional<double> number_or_nothing(const json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<double>();
}

TrainingReport::NormHistogram norms_from_json(const json& object) {
  return {.step = object.at("step").get<std::int64_t>(),
          .steps = object.at("steps").get<std::int64_t>(),
          .edges = object.at("edges").get<std::vector<double>>(),
          .counts = object.at("counts").get<std::vector<std::int64_t>>(),
          .below = object.at("below").get<std::int64_t>(),
          .above = object.at("above").get<std::int64_t>(),
          .clip_bound = object.at("clip_bound").get<double>(),
          .clipped_fraction = object.at("clipped_fraction").get<double>()};
}

Statistics parse_statistics(const json& object, std::int64_t last_step) {
  Statistics statistics;
  object.at("seconds").get_to(statistics.seconds);
  for (const json& entry : object.at("points")) {
    Statistics::Point point{.step = entry.at(0).get<std::int64_t>(),
                            .loss = entry.at(1).get<double>(),
                            .clipped_fraction = number_or_nothing(entry.at(2))};
    if (point.step <= last_step) statistics.points.push_back(point);
  }
  for (const json& entry : object.at("norms")) {
    auto norms = norms_from_json(entry);
    if (norms.step <= last_step) statistics.norms.push_back(std::move(norms));
  }
  return statistics;
}

}  // namespace

void save_statistics(const std::string& path, const Statistics& statistics) {
  json points = json::array(), norms = json::array();
  for (const auto& [step, loss, clipped] : statistics.points) {
    points.push_back({step, loss, or_null(clipped)});
  }
  for (const auto& histogram : statistics.norms) norms.push_back(to_json(histogram));
  const json object = {{"NOT PRIVATE", "exact functions of the training data"},
                       {"private", false},
                       {"seconds", statistics.seconds},
                       {"points", points},
                       {"norms", norms}};
  const auto write = [&](FileWriter& writer) { writer.write(object.dump() + "\n"); };
  write_file_atomically(path, write, FileKind::other, Readers::owner);
}

Statistics load_statistics(const std::string& path, std::int64_t step) {
  if (!std::filesystem::exists(path)) return {};
  return parsed(path, "a statistics file of this program", [&] {
    return parse_statistics(json::parse(read_file(path, max_statistics_bytes)), step);
  });
}

void Recorder::add(const StepReport& report) {
  const ClipStatistics& step = *report.statistics;
  ++steps_;
  loss_sum_ += step.loss_sum;
  rows_ += step.rows;
  units_ += step.units;
  const auto& norms = step.norms;
  if (norms.empty()) return;  // ordinary training
  clipping_ = true;
  clip_bound_ = root_of_squares(report.bounds);
  for (std::size_t n = 0; n < norms[0].size(); ++n) {
    std::vector<double> of_sample;
    bool beyond = false;
    for (std::size_t group = 0; group < norms.size(); ++group) {
      of_sample.push_back(norms[group][n]);
      beyond = beyond || norms[group][n] > report.bounds[group];
    }
    const double norm = root_of_squares(of_sample);
    if (!std::isfinite(norm)) continue;
    norms_.push_back(norm);
    if (beyond) ++clipped_;
  }
}

void Recorder::close(std::int64_t step) {
  if (rows_ > 0) {
    Statistics::Point point{.step = step, .loss = loss_sum_ / static_cast<double>(rows_)};
    if (clipping_) {
      const double fraction = static_cast<double>(clipped_) / static_cast<double>(units_);
      point.clipped_fraction = fraction;
      close_norms(step, fraction);
    }
    statistics_.points.push_back(point);
  }
  clear();
}

void Recorder::clear() {
  steps_ = 0;
  loss_sum_ = 0;
  rows_ = 0;
  units_ = 0;
  clipped_ = 0;
  norms_.clear();
}

void Recorder::gather(Ranks& ranks) {
  std::vector<double> own{loss_sum_, static_cast<double>(rows_), static_cast<double>(units_),
                          static_cast<double>(clipped_)};
  const std::size_t sums = own.size();
  own.insert(own.end(), norms_.begin(), norms_.end());
  const auto all = sotto::gather(ranks, "programs: losses and norms", own);
  if (ranks.rank() != 0) return clear();
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const std::vector<double>& other = all[rank];
    loss_sum_ += other.at(0);
    rows_ += static_cast<std::int64_t>(other.at(1));
    units_ += static_cast<std::int64_t>(other.at(2));
    clipped_ += static_cast<std::int64_t>(other.at(3));
    norms_.insert(norms_.end(), other.begin() + static_cast<std::ptrdiff_t>(sums), other.end());
  }
}

void Recorder::close_norms(std::int64_t step, double clipped_fraction) {
  if (norms_.empty()) return;
  std::sort(norms_.begin(), norms_.end());
  const auto quantile = [&](double share) {
    return norms_[static_cast<std::size_t>(static_cast<double>(norms_.size() - 1) * share)];
  };
  const double high = std::max(quantile(1 - tail), around_bound * clip_bound_);
  const double low =
      std::max(std::min(quantile(tail), clip_bound_ / around_bound), high / max_ratio);
  const double bars_per_unit = bars / std::log(high / low);
  TrainingReport::NormHistogram histogram{.step = step,
                                          .steps = steps_,
                                          .counts = std::vector<std::int64_t>(bars),
                                          .clip_bound = clip_bound_,
                                          .clipped_fraction = clipped_fraction};
  for (int k = 0; k <= bars; ++k) histogram.edges.push_back(low * std::exp(k / bars_per_unit));
  const auto first = std::lower_bound(norms_.begin(), norms_.end(), low);
  const auto last = std::upper_bound(first, norms_.end(), high);
  histogram.below = first - norms_.begin();
  histogram.above = norms_.end() - last;
  for (auto norm = first; norm != last; ++norm) {
    const double bar = std::floor(std::log(*norm / low) * bars_per_unit);
    ++histogram.counts[static_cast<std::size_t>(std::clamp<double>(bar, 0, bars - 1))];
  }
  statistics_.norms.push_back(std::move(histogram));
}

}  // namespace sotto::samples
