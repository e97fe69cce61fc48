// The end of a run: its closing line, and the report.
#pragma once

#include <optional>
#include <string>

#include "samples/report/counted_ranks.h"
#include "samples/report/recorder.h"
#include "samples/report/report.h"
#include "samples/training/saved_run.h"
#include "samples/training/trained_model.h"

namespace sotto::samples {

struct Outcome {
  double measure = 0;                        // the task's, on the test data
  std::optional<double> ordinary_measure{};  // that of training without privacy, if asked for
  std::optional<double> epsilon{};  // nullopt: ordinary training, and on other ranks than 0
  double epochs = 0;
  double seconds = 0;
  double seconds_here = 0;  // without those of runs that this one resumed
  std::int64_t steps_here = 0;
  std::vector<Evaluation> history;
  // Releases that are charged although their model was lost in a crash.
  std::int64_t lost_releases = 0;
  bool first_on_ledger = false;  // nothing had been spent at step 0
  // The paths of the model, if it was saved, and of its ledger, and whether statistics were saved.
  std::string save{};
  std::string ledger{};
  bool saved_statistics = false;
};

// Returns whether training is private and its measure is one of private data.
bool secret_measure(const TrainedModel& model);

// Returns "test accuracy 98.12 %   (ε = 2.93, δ = 1e-05)   60 epochs in 212 s"; epsilon is rounded
// up.
std::string closing_line(const Outcome& outcome, const TrainedModel& model);

// The report's part about several processes: their processors, and what rank 0 moved and waited.
TrainingReport::Communication communication(const std::string& processors, CountedRanks& ranks,
                                            const Outcome& outcome);

// On several ranks all call it, and rank 0's is whole.
TrainingReport make_report(const Outcome& outcome, TrainedModel& model, const TrainingRun& run,
                           const Statistics& statistics);

}  // namespace sotto::samples
