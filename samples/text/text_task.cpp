#include "samples/text/text_task.h"

#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "nn/predict.h"
#include "samples/cli/program.h"
#include "samples/report/report.h"
#include "samples/text/generation.h"
#include "samples/text/results.h"
#include "samples/text/sentences.h"
#include "samples/text/trigram.h"
#include "samples/text/tuning_options.h"

namespace sotto::text {

namespace {

using samples::Settings;

// The rows of all units but every n-th one, and of those. The number of a unit decides, and not
// how many of its class came before it: otherwise one unit would decide which others are trained
// on.
std::pair<Dataset, Dataset> every_nth(const Dataset& rows, std::int64_t n) {
  std::vector<std::int64_t> train, test;
  for (std::int64_t row = 0; row < rows.size(); ++row) {
    const std::int64_t unit = rows.units[static_cast<std::size_t>(row)];
    (unit % n == n - 1 ? test : train).push_back(row);
  }
  return {rows.batch(train), rows.batch(test)};
}

// The end of a line, and the characters from the space to the tilde.
std::string printable_ascii() {
  std::string alphabet = "\n";
  for (char c = ' '; c <= '~'; ++c) alphabet += c;
  return alphabet;
}

samples::Preset speeches_preset(const char* name, const Settings& settings,
                                std::map<std::string, nlohmann::json> network) {
  network.insert(
      {{"task", "generate"}, {"text unit", "paragraph"}, {"alphabet", printable_ascii()}});
  return {name, settings, network};
}

Settings default_settings() {
  return {.clip_bound = 1,
          .epochs = 15,
          .batch = 256,
          .optimizer = "adam",
          .learning_rate = 0.01,
          .train_size = 4'000,
          .test_size = 1'000};
}

// "names": 79.55 % on names of 18 languages. The others, on Shakespeare's speeches: 1.99 nats per
// character with the GRU, 2.16 with the transformer; 1.95 with trigrams, in a second.
std::vector<samples::Preset> presets() {
  Settings names = default_settings();
  names.epsilon = 8;
  names.delta = 6e-5;
  names.batch = 1000;
  names.epochs = 40;
  names.schedule = "linear";
  Settings speeches = names;
  speeches.delta = 1e-5;
  speeches.clip_bound = 0.5;
  speeches.epochs = 30;
  Settings transformer = default_settings();
  transformer.epsilon = 8;
  transformer.batch = 500;
  transformer.epochs = 20;
  transformer.learning_rate = 0.003;
  return {{"names", names, {{"task", "classify"}, {"bidirectional", true}, {"context", 20}}},
          speeches_preset("speeches", speeches, {{"model", "gru"}, {"hidden", 128}}),
          speeches_preset("speeches-transformer", transformer,
                          {{"model", "transformer"}, {"layers", 2}})};
}

}  // namespace

samples::TaskFacts TextTask::facts() {
  const bool generates = model_.generates();
  return {.program = "text",
          .description =
              "Trains a model of text, with differential privacy: one that tells classes, or one "
              "that writes. `sotto-text train --init PATH --help`: tuning of a published model.",
          .title = generates ? "A language model" : "A classifier of text",
          .defaults = default_settings(),
          .presets = presets(),
          .settings = settings(),
          .ordinary_learning_rate = 0.005,
          .measure = generates ? samples::Measure{.name = "nats per character", .percent = false}
                               : samples::Measure{},
          .source = source_,
          .unused_options = unused_options(),
          .fit_to_data = [this](Settings& settings) { fit_to_data(settings); },
          .metadata = {{model_key, to_json(model_).dump()}}};
}

std::vector<samples::TaskSetting> TextTask::settings() {
  TextNetworkOptions& network = model_.network;
  return {{"task", &model_.task},
          {"model", &network.model},
          {"embedding", &network.embedding},
          {"hidden", &network.hidden},
          {"layers", &network.layers},
          {"heads", &network.heads},
          {"bidirectional", &network.bidirectional},
          {"text unit", &model_.unit},
          {"long units", &model_.long_units},
          {"context", &model_.context},
          {"alphabet", &model_.alphabet},
          {"other characters", &model_.other_characters},
          {"test fraction", &test_fraction_},
          {"test every", &test_every_},
          {samples::classes_setting, &class_names_}};
}

void TextTask::prepare(Settings& s) {
  samples::check_test_fraction(test_fraction_);
  samples::check_source(source_);
  const bool files = samples::files_of(source_) != nullptr;
  samples::require(test_every_ == 0 || test_every_ >= 2, "--test-every", test_every_, "at least 2");
  check(test_every_ == 0 || files, "--test-every: needs --data");
  check(files || model_.unit == "line",
        "--unit: a {} needs --data: the sentences made up by the program are lines", model_.unit);
  check(model_.alphabet != "bytes" || !model_.other_characters,
        "--other-characters: needs an --alphabet");
  s.unit = model_.unit == "file" ? "one file" : "one " + model_.unit + " of the text";
  // Both refuse what is out of range. The data's classes are not known yet.
  model_.text_options();
  model_.classes = sentence_classes();
  model_.make_network();
  model_.classes.clear();
  if (files) samples::expect_batch(s);
  fit_to_data(s);
}

// Counts are summed: in one step over all units.
void TextTask::fit_to_data(Settings& s) const {
  if (model_.network.model != "trigram") return;
  s.steps = 1;
  s.batch = static_cast<double>(s.train_size);
  s.sampling = "poisson";  // with a probability of 1
  s.optimizer = "sgd";
  s.momentum = 0;
  s.learning_rate = s.batch;
  s.schedule = "constant";
  s.warmup = 0;
  s.average.reset();
}

std::vector<const char*> TextTask::unused_options() const {
  std::vector<const char*> unused = tuning_option_names();
  if (model_.network.model == "trigram")
    unused.insert(unused.end(),
                  {"--epochs", "--steps", "--batch-size", "--sampling", "--max-batch-size",
                   "--optimizer", "--lr", "--lr-schedule", "--warmup", "--momentum", "--ema",
                   "--cuda-graph", "--embedding", "--hidden", "--layers", "--heads"});
  return unused;
}

samples::Data TextTask::made_up(const Settings& s) {
  const TextOptions options = model_.text_options();
  if (!model_.generates()) model_.classes = sentence_classes();
  try {
    return {.train = sentences(s.train_size, s.seed, s.test_size, options),
            .test = sentences(s.test_size, s.seed, 0, options)};
  } catch (const SystemFailure& error) {  // the alphabet lacks their letters
    fail(std::string(error.what()));
  }
}

samples::Data TextTask::divided(const Dataset& rows, std::uint64_t seed) const {
  if (test_every_ > 0)
    return samples::divided(every_nth(rows, test_every_), "--test-every",
                            static_cast<double>(test_every_));
  return samples::divided(rows.split(1 - test_fraction_, seed), "--test-fraction", test_fraction_);
}

samples::Data TextTask::from_files(const samples::Files& files, const Settings& s) {
  const auto& [path, test] = files;
  TextFiles read = read_text(model_, path);
  check(read.data.size() > 0, "--data: {} has no text", path);
  if (!model_.generates()) {
    check(read.classes.size() > 1,
          "--data: {} has one class, {}: give a file or a sub-folder for "
          "each of two or more",
          path, read.classes.front());
    model_.classes = read.classes;
    samples::set_class_names(class_names_, read.classes);
  }
  if (test.empty()) return divided(read.data, s.seed);
  return {.train = std::move(read.data), .test = read_text(model_, test).data};
}

samples::Data TextTask::load(const Settings& s) {
  const samples::Files* const files = samples::files_of(source_);
  const samples::Data data = files ? from_files(*files, s) : made_up(s);
  samples::Data y{.train = prepared(model_, data.train), .test = prepared(model_, data.test)};
  // A unit that is cut has one row, whatever its text: its number is that of the row.
  if (model_.text_options().long_units == LongUnit::cut) {
    y.train.units.clear();
    y.test.units.clear();
  }
  return y;
}

samples::TaskModel TextTask::make_model(const samples::Data& /*data*/,
                                        const Settings& /*settings*/) {
  samples::TaskModel model{model_.make_network()};
  model.outputs = [this, &network = *model.network](Tape& tape, const Dataset& batch) {
    return outputs_of_part(model_, network, tape, batch);
  };
  return model;
}

Var TextTask::losses(Tape& tape, nn::Module& model, const Dataset& batch) {
  if (auto* const trigram = dynamic_cast<TrigramNetwork*>(&model))
    return trigram->losses(tape, batch);
  const Var outputs = forward_rows(dynamic_cast<Network&>(model), tape, batch);
  if (!model_.generates()) return cross_entropy(outputs, batch.targets);
  return cross_entropy(outputs, batch.targets, {.class_axis = 2, .ignore_index = ignored});
}

double TextTask::evaluate(nn::Module& model, const Tensor& outputs, const samples::Data& data,
                          TrainingReport* report) {
  if (report != nullptr) {
    describe_results(model_, outputs, data.test, *report);
    if (model_.generates())
      report->generated_text = generate_text(dynamic_cast<Network&>(model), model_, {});
  }
  if (model_.generates()) return nats_per_character(outputs, data.test);
  return nn::accuracy(scores_of_units(outputs, data.test), classes_of_units(data.test));
}

}  // namespace sotto::text
