#include "samples/tabular/tabular_task.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <sstream>

#include "autograd/ops.h"
#include "core/join.h"
#include "nn/data/tables/table_reader.h"
#include "nn/metrics.h"
#include "nn/predict.h"
#include "samples/cli/program.h"
#include "samples/report/report.h"
#include "samples/tabular/people.h"
#include "samples/tabular/results.h"

namespace sotto::tabular {

namespace {

using samples::Settings;

Dataset rows_of(const std::string& csv, const TableSchema& schema, const TableOptions& options) {
  std::istringstream in(csv);
  TableReader reader(in, "the made-up people", schema, options);
  return reader.next(std::numeric_limits<std::int64_t>::max());
}

Tensor parse_class_weights(const std::string& text, const std::vector<std::string>& classes) {
  check(!text.ends_with(','), "--class-weights: '{}' ends in a comma", text);
  std::vector<float> weights;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    std::size_t read = 0;
    float weight = 0;
    try {
      weight = static_cast<float>(std::stod(part, &read));
    } catch (const std::logic_error&) {
      read = 0;
    }
    check(read > 0 && read == part.size() && std::isfinite(weight) && weight > 0,
          "--class-weights: '{}' is not a positive number in the range of f32", part);
    weights.push_back(weight);
  }
  check(weights.size() == classes.size(), "--class-weights: {} weights for {} classes: {}",
        weights.size(), classes.size(), join(classes, ", "));
  return Tensor::from(weights, {std::ssize(weights)});
}

Settings default_settings() {
  return {.epsilon = 1,
          .clip_bound = 1,
          .epochs = 20,
          .batch = 512,
          .learning_rate = 0.5,
          .train_size = 20'000,
          .test_size = 5'000};
}

std::vector<samples::Preset> presets() {
  Settings settings = default_settings();
  settings.batch = 8192;
  settings.epochs = 60;
  settings.learning_rate = 2;
  settings.average = 0.95;
  // Above 85.5 % on Adult at epsilon 1 (docs/results.md): the sum of a piecewise linear function of
  // each column, as in additive models.
  return {{"additive", settings, {{"model", "logistic"}, {"pieces", 8}}}};
}

}  // namespace

samples::TaskFacts TabularTask::facts() {
  const nlohmann::json model = {{"model", network_.model},
                                {"hidden", network_.hidden},
                                {"layers", network_.layers},
                                {"embedding", network_.embedding},
                                {"pieces", network_.pieces},
                                {"no_bias", network_.no_bias},
                                {"standardize", network_.standardize},
                                {"schema", schema_text_}};
  const bool numbers = schema_ && schema_->classes().empty();
  return {.program = "tabular",
          .description = "Trains a model on the rows of a table, with differential privacy.",
          .title = "A model of " +
                   (schema_ ? fmt::format("\"{}\"", schema_->label().name) : "a label") +
                   " in a table's rows",
          .defaults = default_settings(),
          .presets = presets(),
          .settings = {{"model", &network_.model},
                       {"hidden", &network_.hidden},
                       {"layers", &network_.layers},
                       {"embedding", &network_.embedding},
                       {"pieces", &network_.pieces},
                       {"no bias", &network_.no_bias},
                       {"standardize", &network_.standardize},
                       {samples::prototypes_setting, &prototypes_},
                       {"prototype scale", &prototype_scale_},
                       {"test fraction", &test_fraction_},
                       {samples::schema_setting, &schema_text_},
                       {"class weights", &class_weights_text_}},
          .measure = numbers ? samples::Measure{.name = "mean squared error", .percent = false}
                             : samples::Measure{},
          .source = source_,
          .metadata = {{model_key, model.dump()}}};
}

void TabularTask::prepare(Settings& s) {
  samples::check_test_fraction(test_fraction_);
  samples::check_source(source_);
  const bool files = samples::files_of(source_) != nullptr;
  check(files == !schema_path_.empty(),
        "--data, --schema: give both (`sotto-tabular schema --data FILE` proposes a schema), or "
        "none for "
        "people made up by the program");
  check(folder_.empty() || files, "--encode-in: needs --data");
  schema_ = files ? TableSchema::load(schema_path_) : people_schema();
  schema_text_ = schema_->to_json();
  s.unit = privacy_unit(*schema_);
  if (!class_weights_text_.empty())
    class_weights_ = parse_class_weights(class_weights_text_, schema_->classes());
  make_network(network_, *schema_);  // refuses what is out of range
  check_prototypes();
  s.planned_means.clear();
  if (network_.standardize)
    s.planned_means = {{.noise_multiplier = StandardizeOptions{}.noise_multiplier}};
  if (files) samples::expect_batch(s);
}

void TabularTask::check_prototypes() const {
  samples::require(std::isfinite(prototype_scale_) && prototype_scale_ > 0, "--prototype-scale",
                   prototype_scale_, "a positive number");
  if (prototypes_.empty()) return;
  check(network_.model == "logistic" && network_.pieces == 1 && !schema_->classes().empty(),
        "--prototypes: only --model logistic of classes, without --pieces, starts at them");
  const samples::Files* const files = samples::files_of(source_);
  std::error_code none;
  check(!files || !std::filesystem::equivalent(prototypes_, files->train, none),
        "--prototypes: {} is --data, whose rows are not public", prototypes_);
}

samples::Data TabularTask::made_up(const Settings& s) const {
  const TableOptions options{.category_indices = reads_indices(network_)};
  return {.train = rows_of(made_up_people(s.train_size, s.seed, s.test_size), *schema_, options),
          .test = rows_of(made_up_people(s.test_size, s.seed), *schema_, options)};
}

samples::Data TabularTask::from_files(const samples::Files& files, const Settings& s) const {
  const TableOptions options{.category_indices = reads_indices(network_)};
  const auto& [path, test] = files;
  samples::Data data;
  if (test.empty()) {
    check(folder_.empty(), "--encode-in: needs --test (rows on a disk are not divided)");
    data = samples::divided(read_table(path, *schema_, options).split(1 - test_fraction_, s.seed),
                            "--test-fraction", test_fraction_);
  } else {
    data = {.train = read_table(path, *schema_, options, folder_),
            .test = read_table(test, *schema_, options)};
  }
  data.test.units.clear();
  return data;
}

samples::Data TabularTask::load(const Settings& s) {
  const samples::Files* const files = samples::files_of(source_);
  return files ? from_files(*files, s) : made_up(s);
}

samples::TaskModel TabularTask::make_model(const samples::Data& /*data*/,
                                           const Settings& /*settings*/) {
  samples::TaskModel model;
  auto network = make_network(network_, *schema_);
  model.outputs = [&of = dynamic_cast<Network&>(*network)](Tape& tape, const Dataset& batch) {
    return forward_rows(of, tape, batch);
  };
  if (!prototypes_.empty()) {
    TableSchema of_nobody = *schema_;  // public rows have no users
    std::erase_if(of_nobody.columns, [](const auto& c) { return c.kind == ColumnKind::user; });
    start_at_prototypes(*network, read_table(prototypes_, of_nobody), prototype_scale_, *schema_);
  }
  if (network_.standardize) model.standardize = standardize_options(*network, network_, *schema_);
  model.network = std::move(network);
  return model;
}

Var TabularTask::losses(Tape& tape, nn::Module& model, const Dataset& batch) {
  const Var outputs = forward_rows(dynamic_cast<Network&>(model), tape, batch);
  if (!schema_->classes().empty())
    return cross_entropy(outputs, batch.targets, {.class_weights = class_weights_});
  return squared_error(outputs, tape.input(batch.targets));
}

double TabularTask::evaluate(nn::Module& /*model*/, const Tensor& outputs,
                             const samples::Data& data, TrainingReport* report) {
  if (report != nullptr) describe_results(outputs, data.test.targets, *schema_, *report);
  if (schema_->classes().empty()) return nn::mean_squared_error(outputs, data.test.targets);
  return nn::accuracy(outputs, data.test.targets);
}

}  // namespace sotto::tabular
