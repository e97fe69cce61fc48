#include "samples/training/summary.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/devices.h"
#include "core/threads/parallel.h"
#include "dp/numerics/directed_rounding.h"
#include "samples/cli/progress.h"

namespace sotto::samples {

namespace {

std::vector<TrainingReport::Point> points(const Outcome& outcome, const Statistics& statistics) {
  std::map<std::int64_t, TrainingReport::Point> by_step;
  if (outcome.first_on_ledger) by_step[0].epsilon = 0;
  for (const auto& [step, measure, epsilon] : outcome.history) {
    by_step[step].measure = measure;
    if (epsilon) by_step[step].epsilon = *epsilon;
  }
  for (const auto& [step, loss, clipped] : statistics.points) {
    by_step[step].loss = loss;
    if (clipped) by_step[step].clipped_fraction = *clipped;
  }
  std::vector<TrainingReport::Point> all;
  for (auto& [step, point] : by_step) {
    point.step = step;
    all.push_back(point);
  }
  return all;
}

std::string shown(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::vector<TrainingReport::Setting> setting_rows(const TrainedModel& model,
                                                  const TrainingRun& run) {
  std::vector<TrainingReport::Setting> rows;
  const Settings& settings = model.settings();
  rows.push_back({"data", data_text(model.task().facts())});
  const nlohmann::json values = all_settings(settings, model.task());
  for (const auto& [name, value] : values.items()) {
    if (!value.is_null()) rows.push_back({name, shown(value)});
  }
  rows.push_back({"planned steps", fmt::to_string(planned_steps(settings))});
  rows.push_back({"device", name(settings.device)});
  if (settings.capture) rows.push_back({"captured", run.captured()});
  rows.push_back({"threads", fmt::to_string(thread_count())});
  return rows;
}

std::vector<TrainingReport::Phase> phase_rows(const TrainingRun& run) {
  std::vector<TrainingReport::Phase> rows;
  for (const memory::PhaseTotal& total : run.phases()) {
    rows.push_back({total.name, total.seconds, total.peak_bytes[0]});
  }
  return rows;
}

// Adds to the statement which of the run's files may be published.
void tell_files(const Outcome& outcome, PrivacyStatement& privacy) {
  if (outcome.save.empty()) return;
  const std::filesystem::path model = std::filesystem::path(outcome.save).filename();
  privacy.covered.push_back(
      fmt::format("The file {}: the weights, and this statement", model.string()));
  privacy.not_covered.push_back(fmt::format(
      "The file {}, to resume from: it may hold batches, past and to come, and is SECRET",
      state_path(model)));
  privacy.not_covered.push_back(
      fmt::format("The file {}: it says how many units there are",
                  std::filesystem::path(outcome.ledger).filename().string()));
  if (!outcome.saved_statistics) return;
  privacy.not_covered.push_back(
      fmt::format("The file {}: losses and norms of the training data", statistics_path(model)));
}

PrivacyStatement statement(const Outcome& outcome, const TrainedModel& model,
                           const Engine& engine) {
  PrivacyStatement privacy = model.statement(engine);
  privacy.not_covered.insert(
      privacy.not_covered.begin(),
      "The test data: what is measured on them may be published only if they may");
  tell_files(outcome, privacy);
  if (outcome.lost_releases > 0) {
    privacy.notes.push_back(
        fmt::format("Up to {} releases were made after a checkpoint and lost in a crash. They are "
                    "charged.",
                    outcome.lost_releases));
  }
  return privacy;
}

bool measured_on_private_data(const TrainedModel& model) {
  return tests_on_private_data(model.task().facts().source) || model.settings().validation > 0;
}

}  // namespace

bool secret_measure(const TrainedModel& model) {
  return model.settings().privacy && measured_on_private_data(model);
}

std::string closing_line(const Outcome& outcome, const TrainedModel& model) {
  const std::optional<double>& epsilon = outcome.epsilon;
  const std::string privacy =
      epsilon ? fmt::format("(ε = {}, δ = {})", epsilon_text(*epsilon, digits_of_epsilon),
                            delta_text(model.settings().delta))
              : "(no privacy)";
  const Measure measure = model.task().facts().measure;
  return fmt::format("{} {} {}{}   {}   {} epochs in {}", held_out(model.settings()), measure.name,
                     text_of(measure, outcome.measure),
                     secret_measure(model) ? ", which is NOT PRIVATE" : "", privacy,
                     epochs_text(outcome.epochs), seconds_text(outcome.seconds));
}

TrainingReport::Communication communication(const std::string& processors, CountedRanks& ranks,
                                            const Outcome& outcome) {
  const CountedRanks::Count total = ranks.total();
  const auto steps = static_cast<double>(std::max<std::int64_t>(1, outcome.steps_here));
  TrainingReport::Communication all{.ranks = ranks.size()};
  all.lines = {processors,
               fmt::format("rank 0 sent {:.4g} kB and received {:.4g} kB for each step, and waited "
                           "for other ranks {:.1f} % of the time",
                           1e-3 * static_cast<double>(total.bytes_sent) / steps,
                           1e-3 * static_cast<double>(total.bytes_received) / steps,
                           100 * total.seconds_waited / outcome.seconds_here)};
  if (const std::string& gpus = ranks.gpus().text; !gpus.empty()) all.lines.push_back(gpus);
  for (const auto& [place, count] : ranks.counts())
    all.places.push_back(
        {place, count.operations, count.bytes_sent, count.bytes_received, count.seconds_waited});
  return all;
}

TrainingReport make_report(const Outcome& outcome, TrainedModel& model, const TrainingRun& run,
                           const Statistics& statistics) {
  TrainingReport report;
  const Settings& settings = model.settings();
  report.title = model.task().facts().title;
  report.measure = model.task().facts().measure.name;
  report.measure_in_percent = model.task().facts().measure.percent;
  report.settings = setting_rows(model, run);
  report.points = points(outcome, statistics);
  report.norms = statistics.norms;
  report.phases = phase_rows(run);
  if (const Engine* const engine = run.engine()) {
    if (run.ranks()->rank() == 0) report.privacy = statement(outcome, model, *engine);
  } else {
    report.no_privacy_reason = "It was asked for with --no-privacy.";
  }
  report.held_out = held_out(settings);
  report.measured_on_private_data = measured_on_private_data(model);
  report.test_measure = outcome.measure;
  if (outcome.ordinary_measure) report.ordinary_measure = *outcome.ordinary_measure;
  report.provenance = provenance(settings.device);
  report.epochs = outcome.epochs;
  report.seconds = outcome.seconds;
  model.describe(report);
  return report;
}

}  // namespace sotto::samples
