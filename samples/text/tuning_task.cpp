#include "samples/text/tuning_task.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/predict.h"
#include "samples/cli/program.h"
#include "samples/report/report.h"
#include "samples/report/results.h"
#include "samples/text/results.h"

namespace sotto::text {

namespace {

using samples::Settings;

Settings default_settings() {
  return {.epsilon = 3,
          .clip_bound = 1,
          .epochs = 5,
          .batch = 512,
          .optimizer = "adam",
          .learning_rate = 0.003,
          .schedule = "linear"};
}

// True if some row of a language model has a token with a loss. A row's first token has none.
bool has_targets(const Dataset& rows) {
  const Tensor& targets = rows.targets;
  const auto labels = contiguous(targets.slice(1, 1, targets.size(1))).to_vector<std::int64_t>();
  return std::ranges::any_of(labels, [](std::int64_t label) { return label >= 0; });
}

constexpr const char* kind_of_unit[] = {"row", "user"};  // of a table

}  // namespace

samples::TaskFacts TuningTask::facts() {
  return {.program = "text",
          .description =
              "Tunes a published model on text, with differential privacy: an encoder (BERT, "
              "DistilBERT, RoBERTa) to tell classes, a decoder (GPT-2, Llama) to write.",
          .title = writes_ ? "A tuned language model" : "A tuned classifier of text",
          .defaults = default_settings(),
          .settings = settings(),
          .ordinary_learning_rate = 0.0005,
          .measure = writes_ ? samples::Measure{.name = "nats per token", .percent = false}
                             : samples::Measure{},
          .source = files_,
          .more_data = "a model from " + text_.start.init,
          .metadata = {{tuned_key, to_json(text_).dump()}}};
}

std::vector<samples::TaskSetting> TuningTask::settings() {
  std::vector<samples::TaskSetting> all = samples::start_settings(text_.start);
  const std::vector<samples::TaskSetting> own = {{"tokenizer", &text_.tokenizer},
                                                 {"pooling", &text_.pooling},
                                                 {"blocks", &text_.blocks},
                                                 {"dropout", &text_.dropout},
                                                 {"text unit", &text_.unit},
                                                 {"text column", &text_.columns.text},
                                                 {"prompt column", &text_.columns.prompt},
                                                 {"label column", &text_.columns.label},
                                                 {"user column", &text_.columns.user},
                                                 {"context", &text_.context},
                                                 {"long texts", &text_.long_texts},
                                                 {"test fraction", &test_fraction_},
                                                 {samples::classes_setting, &class_names_}};
  all.insert(all.end(), own.begin(), own.end());
  return all;
}

// Tables have rows and users; files have lines, paragraphs and themselves.
void TuningTask::check_unit(Settings& s) const {
  const bool table = is_text_table(files_.train);
  const bool of_table = text_.unit == kind_of_unit[0] || text_.unit == kind_of_unit[1];
  check(table == of_table, "--unit: a {} of {}, which is {}", text_.unit, files_.train,
        table ? "a table: its units are row and user"
              : "no table: its units are line, paragraph and file");
  check(text_.unit != "user" || !text_.columns.user.empty(),
        "--unit user: needs --user-column, the column that tells whose a row is");
  if (text_.unit == "user")
    s.unit = "one user: all rows with the same " + text_.columns.user;
  else
    s.unit = text_.unit == "row" ? "one row of the table" : "one " + text_.unit + " of the text";
}

void TuningTask::prepare(Settings& s) {
  samples::check_test_fraction(test_fraction_);
  samples::check_start(text_.start);
  samples::require_given("--data", files_.train);
  check_unit(s);
  samples::require(text_.dropout >= 0 && text_.dropout < 1, "--dropout", text_.dropout,
                   "from 0 to below 1");
  samples::require(text_.blocks >= 0, "--blocks", text_.blocks, "at least 0");
  text_.row_options();
  const std::vector<std::string> classes = text_.classes;
  text_.classes = {"first", "second"};  // their number is not known yet
  writes_ = make_tuned(text_).writer() != nullptr;
  text_.classes = classes;
  check(writes_ || !is_text_table(files_.train) || !text_.columns.label.empty(),
        "--label-column: which column of {} has the classes?", files_.train);
  if (writes_) text_.columns.label.clear();
  constexpr std::int64_t usual_rows = 64, usual_rows_of_writers = 4;  // with wide logits
  if (s.memory.limit == 0 && !s.memory.physical_batch && !s.memory.accumulation)
    s.memory.physical_batch = writes_ ? usual_rows_of_writers : usual_rows;
  // Plans for a memory limit, and captured work, take rows of one length.
  cuts_ = s.memory.limit == 0 && !s.capture;
  samples::expect_batch(s);
}

samples::Data TuningTask::load(const Settings& s) {
  TextRecords train = read_records(text_, files_.train);
  check(!train.texts.empty(), "--data: {} has no text", files_.train);
  if (!writes_) {
    check(train.classes.size() > 1, "--data: {} has {} classes", files_.train,
          train.classes.size());
    text_.classes = train.classes;
    samples::set_class_names(class_names_, text_.classes);
  }
  const TunedModel model = make_tuned(text_);
  samples::Data data;
  if (files_.test.empty()) {
    data = samples::divided(model.rows(train).split(1 - test_fraction_, s.seed), "--test-fraction",
                            test_fraction_);
  } else {
    data = {.train = model.rows(train), .test = model.rows(read_records(text_, files_.test))};
  }
  if (text_.unit == "user") data.test.units.clear();  // each row is predicted by itself
  check(!writes_ || has_targets(data.train),
        "--context: no row has a token to learn among its {} (prompts take them all)",
        text_.context);
  text_.start.weights = samples::frozen_hash(model.started.pretrained);
  model.network().to(s.device);
  frozen_ = frozen_blocks(model);
  for (Dataset* const part : {&data.train, &data.test})
    keep_values(model.network(), frozen_, *part);
  return data;
}

samples::TaskModel TuningTask::make_model(const samples::Data& data, const Settings& settings) {
  auto started = std::make_shared<samples::StartedModel>(std::move(make_tuned(text_).started));
  samples::TaskModel model{std::move(started->pretrained.model)};
  nn::Module& network = *model.network;
  model.own_part =
      samples::head_of(text_.start, dynamic_cast<nn::PretrainedModel&>(network), settings);
  model.outputs = [&network, frozen = frozen_](Tape& tape, const Dataset& batch) {
    return tuned_outputs(dynamic_cast<nn::TokenModel&>(network), tape, batch, frozen);
  };
  model.saved = [&network] { return samples::trained_tensors(network); };
  if (cuts_) {
    model.bucket_of_unit = [lengths = unit_lengths(data.train)](std::int64_t unit) {
      return lengths[static_cast<std::size_t>(unit)];
    };
  }
  return model;
}

Var TuningTask::losses(Tape& tape, nn::Module& model, const Dataset& batch) {
  const Dataset rows = cuts_ ? cut_to_length(batch) : batch;
  const Var outputs = forward_tokens(dynamic_cast<nn::TokenModel&>(model), tape, rows, frozen_);
  return writes_ ? nn::next_token_loss(outputs, rows.targets)
                 : cross_entropy(outputs, rows.targets);
}

double TuningTask::evaluate(nn::Module& /*model*/, const Tensor& outputs, const samples::Data& data,
                            TrainingReport* report) {
  if (report != nullptr) describe_tuned(text_, outputs, data.test, *report);
  if (writes_) return nats_per_token(outputs);
  return nn::accuracy(scores_of_units(outputs, data.test), classes_of_units(data.test));
}

void describe_tuned(const TunedText& text, const Tensor& outputs, const Dataset& rows,
                    TrainingReport& report) {
  if (!text.classes.empty())
    return samples::describe_classes(scores_of_units(outputs, rows), classes_of_units(rows),
                                     text.classes, report);
  const double nats = nats_per_token(outputs);
  report.results.push_back({"nats per token", samples::measure_text(nats)});
  report.results.push_back({"perplexity", samples::measure_text(std::exp(nats))});
}

}  // namespace sotto::text
