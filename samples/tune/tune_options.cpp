// The options of the sample tune: apart, since they need the library for command lines.
#include "samples/cli/command_line.h"
#include "samples/tune/tune_task.h"

namespace sotto::tune {

void TuneTask::add_options(samples::CommandLine& line, Options which, samples::Settings& settings) {
  digits_.add_options(line, which, settings);
  if (which == Options::model) return add_model_options(line);
  line.option("--public-rows", public_rows_,
              "rows before the training samples that are public and guide the learning", "N");
}

void TuneTask::add_model_options(samples::CommandLine& line) {
  line.option("--learn", learn_,
              "settings to learn: a list of lr, momentum, wd and bound (with privacy), or none",
              "LIST");
  line.option("--weight-decay", weight_decay_, "weight decay, or where its learning starts", "X");
  line.option("--tuning-rate", rate_, "how fast the logarithms of settings are learned", "X");
  line.option(
      "--sweep", sweep_.settings,
      "instead of learning, train with this many settings, drawn around the given ones; with "
      "--data it needs --ledger, which may name a new file",
      "N");
  line.option("--sweep-range", sweep_.range, "factor by which they differ from them at most", "X");
  line.choice("--sweep-charge", sweep_.charge,
              "what a sweep costs. sum: every training is charged, all are told; select: a random "
              "number of trainings, N in the mean, of which the best alone is told",
              {"sum", "select"});
}

}  // namespace sotto::tune
