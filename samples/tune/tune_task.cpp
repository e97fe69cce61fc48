#include "samples/tune/tune_task.h"

#include <cmath>

#include "samples/cli/program.h"

namespace sotto::tune {

using samples::require;
using samples::Settings;

namespace {

// Settings that nobody tuned: they are what the learning and the sweep start from.
Settings default_settings() {
  return {.epsilon = 3,
          .clip_bound = 1,
          .epochs = 10,
          .batch = 512,
          .learning_rate = 0.1,
          .momentum = 0.9,
          .train_size = 10'000,
          .test_size = 2'000};
}

std::vector<samples::Preset> presets() {
  Settings quick = default_settings();
  quick.train_size = 3000;
  quick.test_size = 1000;
  quick.batch = 200;
  quick.steps = 100;
  return {{"quick", quick, {}}};
}

}  // namespace

samples::TaskFacts TuneTask::facts() {
  samples::TaskFacts facts = digits_.facts();
  facts.program = "tune";
  facts.description =
      "Trains a network to read digits with differential privacy, and learns settings, such as the "
      "learning rate, in the same training, by public rows.";
  facts.title = "A model of digits with learned settings";
  facts.defaults = default_settings();
  facts.presets = presets();
  facts.settings.insert(facts.settings.end(), {{"learn", &learn_},
                                               {"weight decay", &weight_decay_},
                                               {"tuning rate", &rate_},
                                               {"public rows", &public_rows_}});
  facts.unused_options = {"--optimizer", "--lr-schedule", "--warmup",
                          "--clip-rule", "--clip-groups", "--adaptive-clip-quantile",
                          "--cuda-graph"};
  facts.ledger_begins = sweep_.settings > 0;
  facts.ledger_required = facts.ledger_begins && samples::files_of(facts.source) != nullptr;
  facts.on_several_ranks = false;
  return facts;
}

void TuneTask::prepare(Settings& settings) {
  digits_.prepare(settings);
  learning_ = learning_of(learn_);
  learning_.initial_weight_decay = weight_decay_;
  learning_.rate = rate_;
  // Without privacy there is no bound.
  learning_.bound = learning_.bound && settings.privacy;
  require(public_rows_ >= 1, "--public-rows", public_rows_, "a number of rows");
  samples::check_fits("--public-rows", mnist::bytes_of_digit * static_cast<double>(public_rows_));
  require(std::isfinite(weight_decay_) && weight_decay_ > 0, "--weight-decay", weight_decay_,
          "a positive number");
  require(std::isfinite(rate_) && rate_ > 0, "--tuning-rate", rate_, "a positive number");
  require(settings.momentum > 0 || !learning_.momentum, "--momentum", settings.momentum,
          "above 0, to learn it from");
  require(sweep_.settings == 0 || (sweep_.settings >= 2 && sweep_.settings <= max_sweep), "--sweep",
          sweep_.settings, fmt::format("0, for no sweep, or from 2 to {}", max_sweep));
  require(sweep_.range > 1 && std::isfinite(sweep_.range), "--sweep-range", sweep_.range,
          "a factor above 1");
  check(sweep_.settings == 0 || settings.privacy, "--sweep: needs privacy, which it charges");
}

samples::Data TuneTask::load(const Settings& settings) {
  Settings with_public = settings;
  with_public.train_size += public_rows_;
  samples::Data data = digits_.load(with_public);
  check(data.train.size() > public_rows_, "--public-rows: {} of {} rows leave none to train on",
        public_rows_, data.train.size());
  clean_ = data.train.slice(0, public_rows_);
  data.train = data.train.slice(public_rows_, data.train.size());
  data.hash_of_rest = clean_.hash();
  return data;
}

samples::TaskModel TuneTask::make_model(const samples::Data& data, const Settings& settings) {
  Learning learning = learning_;
  learning.bound = learning.bound && settings.privacy;  // not for --compare
  auto network =
      std::make_unique<TunedNetwork>(digits_.make_model(data, settings).network, learning_.bound);
  samples::TaskModel model;
  model.make_learner = [this, learning, settings, &of = *network](nn::Optimizer& optimizer) {
    return std::make_unique<SettingsLearner>(of, optimizer, settings, learning, clean_);
  };
  model.network = std::move(network);
  return model;
}

void TuneTask::fix_settings(double weight_decay) {
  learning_ = learning_of("none");
  learning_.initial_weight_decay = weight_decay;
}

}  // namespace sotto::tune
