#include "samples/reweight/reweight_task.h"

#include <algorithm>
#include <functional>

#include "core/error.h"
#include "dp/clipping/clip_groups.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/data/digits.h"
#include "nn/predict.h"
#include "samples/cli/program.h"
#include "samples/images/picture_data.h"
#include "samples/mnist/digits_task.h"
#include "samples/report/report.h"
#include "samples/report/results.h"
#include "samples/reweight/networks.h"
#include "samples/reweight/row_noise.h"

namespace sotto::reweight {

namespace {

using images::PictureFiles;
using samples::require;
using samples::Settings;

constexpr double max_imbalance = 1e6;
constexpr std::int64_t max_described = 10'000;  // rows whose weights a report is about

WeighedModel& weighed(nn::Module& model) { return dynamic_cast<WeighedModel&>(model); }

Dataset at_most(const Dataset& data, std::int64_t rows) {
  return data.size() <= rows ? data : data.slice(0, rows);
}

// The mean of the weights of the rows that are chosen.
std::optional<double> mean_where(const std::vector<double>& weights,
                                 const std::function<bool(std::size_t)>& chosen) {
  double total = 0;
  std::int64_t count = 0;
  for (std::size_t row = 0; row < weights.size(); ++row) {
    if (!chosen(row)) continue;
    total += weights[row];
    ++count;
  }
  if (count == 0) return std::nullopt;
  return total / static_cast<double>(count);
}

// Weights of rows with these losses: covered by the guarantee, as the network is.
void add_weight_curve(WeighedModel& model, TrainingReport& report) {
  const Device device = model.classifier_parameters().front()->value.device();
  for (const double loss : {0.0, 1.0, 2.0, 4.0}) {
    Tape tape({.training = false});
    const Var weight = model.weights(tape.input(full({1}, loss, Dtype::f32, device)), Tensor());
    report.results.push_back({fmt::format("weight of a row of loss {:g}", loss),
                              samples::measure_text(weight.value().to(cpu).item())});
  }
}

Settings default_settings() {
  return {.epsilon = 8,
          .clip_bound = 1,
          .steps = 600,
          .batch = 1024,
          .learning_rate = 4,
          .momentum = 0,
          .test_size = 10'000};
}

// Makes the weights of the rows anew before each step.
class RowLearner final : public samples::TaskLearner {
 public:
  RowLearner(RowWeights& rows, WeighedModel& model) : rows_(rows), model_(model) {}
  void begin_step(std::int64_t step, const Engine* engine) override {
    rows_.begin_step(model_, step, engine != nullptr ? &engine->clipper() : nullptr);
  }

 private:
  RowWeights& rows_;
  WeighedModel& model_;
};

}  // namespace

samples::TaskFacts ReweightTask::facts() {
  return {.program = "reweight",
          .description =
              "Trains on rows of which some harm, with weights that a few clean public rows teach, "
              "and with differential privacy.",
          .title = "A model with weights for its rows",
          .defaults = default_settings(),
          .presets = {{"wrong-labels", default_settings(), {{"wrong labels", 0.45}}}},
          .settings = settings(),
          .ordinary_learning_rate = 0.1,
          .source = source_,
          .more_data = fmt::format("{} clean public rows", clean_),
          .unused_options = unused_options()};
}

std::vector<samples::TaskSetting> ReweightTask::settings() {
  return {{"method", &method_},
          {"model", &network_.model},
          {"mirror", &network_.features.mirror},
          {"clean rows", &clean_},
          {"clean batch", &clean_batch_},
          {"wrong labels", &wrong_labels_},
          {"wrong", &wrong_},
          {"imbalance", &imbalance_},
          {"weigher sees", &weigher_sees_},
          {"weigher clip bound", &weigher_bound_},
          {"weigher learning rate", &weigher_rate_},
          {"data from files", &from_files_},
          {"clean rows from files", &clean_from_files_}};
}

std::vector<const char*> ReweightTask::unused_options() const {
  std::vector<const char*> unused;
  if (method() != Method::network)
    unused = {"--weigher-sees", "--weigher-clip-bound", "--weigher-lr"};
  if (method() == Method::none || method() == Method::clean_only) unused.push_back("--clean-batch");
  if (method() == Method::clean_only)
    unused.insert(unused.end(), {"--wrong-labels", "--wrong", "--imbalance"});
  if (wrong_labels_ == 0) unused.push_back("--wrong");
  return unused;
}

void ReweightTask::check_rows() const {
  require(clean_ >= 1, "--clean", clean_, "a number of rows");
  require(clean_batch_ >= 1, "--clean-batch", clean_batch_, "a number of rows");
  require(wrong_labels_ >= 0 && wrong_labels_ < 1, "--wrong-labels", wrong_labels_,
          "at least 0 and below 1");
  require(imbalance_ >= 1 && imbalance_ <= max_imbalance, "--imbalance", imbalance_,
          fmt::format("from 1 to {:g}", max_imbalance));
  if (clean_folder_.empty()) return;
  const samples::Files* const files = samples::files_of(source_);
  check(files != nullptr, "--clean-data: needs --data");
  check(images::kind_of(clean_folder_) == images::kind_of(files->train),
        "--clean-data: {} has other pictures than {}", clean_folder_, files->train);
}

void ReweightTask::check_method(const Settings& s) const {
  check(method() != Method::clean_only || !s.privacy,
        "--method: clean-only trains on public rows alone, which need no privacy (give "
        "--no-privacy)");
  const bool plain = method() == Method::none || method() == Method::clean_only;
  check(plain || !s.capture,
        "--cuda-graph: weights of rows are read by the host, in the middle of a step (give "
        "--method none)");
  if (method() != Method::network) return;
  require(weigher_bound_ > 0 && weigher_bound_ <= 1, "--weigher-clip-bound", weigher_bound_,
          "above 0 and at most 1");
  samples::check_clip_bound(s.clip_bound);
  check(weigher_bound_ * s.clip_bound >= min_clip_bound,
        "--weigher-clip-bound: {} of {} is below the smallest clip bound, {:.3g}", weigher_bound_,
        s.clip_bound, min_clip_bound);
  require(weigher_rate_ > 0, "--weigher-lr", weigher_rate_, "a positive number");
  check(s.clip_groups == "flat",
        "--clip-groups: {}: with --method network there are two groups, the classifier and the "
        "network that weighs its rows",
        s.clip_groups);
}

void ReweightTask::prepare(Settings& s) {
  check_rows();
  check_method(s);
  auto* const files = std::get_if<samples::Files>(&source_);
  from_files_ = files != nullptr;
  clean_from_files_ = !clean_folder_.empty();
  PictureFiles kind = PictureFiles::mnist;
  if (files) {
    kind = images::kind_of(files->train);
    check(kind != PictureFiles::folders, "--data: {} has neither MNIST's nor CIFAR's files",
          files->train);
    files->test = files->train;  // the folder has both
  }
  network_.shape = images::shape_of(kind);
  network_.classes = kind == PictureFiles::cifar100 ? 100 : 10;
  check_classifier(network_);
  if (from_files_) return;
  const double rows = static_cast<double>(s.train_size) + static_cast<double>(s.test_size) +
                      static_cast<double>(clean_);
  samples::check_fits("--train-size, --test-size, --clean", mnist::bytes_of_digit * rows);
}

// Test rows first, then those for training, so that no set depends on the size of a later one.
samples::Data ReweightTask::all_rows(const Settings& s) const {
  const samples::Files* const files = samples::files_of(source_);
  if (!files)
    return {.train = make_digits(s.train_size + clean_, s.seed, s.test_size),
            .test = make_digits(s.test_size, s.seed)};
  const auto read = [&](images::Part part) {
    return images::read_pictures({files->train, part}, network_.shape).data;
  };
  return {.train = read(images::Part::train),
          .test = at_most(read(images::Part::test), s.test_size)};
}

// Takes the clean rows out of the training data, or reads them from files of their own. There is no
// third way: a row that is private and clean would act on every weight without noise.
Dataset ReweightTask::clean_rows(samples::Data& data, const Settings& s) const {
  if (clean_folder_.empty()) {
    auto [clean, rest] = hold_out_clean(data.train, network_.classes, clean_, s.seed);
    data.train = std::move(rest);
    return std::move(clean);
  }
  const Dataset other = images::read_pictures({clean_folder_}, network_.shape).data;
  Dataset clean = hold_out_clean(other, network_.classes, clean_, s.seed).first;
  const std::int64_t both = rows_in_both(clean, data.train);
  check(
      both == 0,
      "--clean-data: {} of the {} clean rows are private rows, too: they would be public, and act "
      "on the weights of all rows without noise",
      both, clean.size());
  return clean;
}

samples::Data ReweightTask::load(const Settings& s) {
  samples::Data data = all_rows(s);
  Dataset clean = clean_rows(data, s);
  data.hash_of_rest = clean.hash();
  data.train = at_most(data.train, s.train_size);
  if (imbalance_ > 1)
    data.train = make_long_tailed(data.train, network_.classes, imbalance_, s.seed);
  if (wrong_labels_ > 0)
    data.train = make_wrong_labels(data.train, network_.classes, wrong_labels_, wrong_, s.seed);
  const images::NetworkInputs inputs(network_);
  clean.inputs = inputs(clean.inputs);
  data.test.inputs = inputs(data.test.inputs);
  if (method() == Method::clean_only) {
    data.train = clean;
  } else {
    data.train.inputs = inputs(data.train.inputs);
  }
  constexpr std::int64_t usual_part = 256;
  rows_.emplace(method(), clean, clean_batch_, s.memory.physical_batch.value_or(usual_part));
  return data;
}

samples::TaskModel ReweightTask::make_model(const samples::Data& /*data*/, const Settings& s) {
  std::optional<WeighedModel::Weigher> weigher;
  if (method() == Method::network)
    weigher = {.classes = weigher_sees_ == "loss" ? 0 : network_.classes};
  samples::TaskModel model{std::make_unique<WeighedModel>(make_classifier(network_), weigher)};
  if (weigher)
    model.own_part = samples::ModelPart{.paths = {weigher_path},
                                        .clip_bound = weigher_bound_ * s.clip_bound,
                                        .learning_rate = weigher_rate_};
  if (method() == Method::gate || method() == Method::network)
    model.make_learner = [this, &network = weighed(*model.network)](nn::Optimizer&) {
      return std::make_unique<RowLearner>(*rows_, network);
    };
  return model;
}

Var ReweightTask::losses(Tape& tape, nn::Module& model, const Dataset& batch) {
  return rows_->losses(tape, weighed(model), batch);
}

// Which labels are wrong is known here, since the program made them so.
void ReweightTask::add_weights(WeighedModel& model, const samples::Data& data,
                               TrainingReport& report) {
  const Dataset rows = at_most(data.train, max_described);
  const auto weights = rows_->weights_of(model, rows).to_vector<double>();
  const auto add = [&](const std::string& name, const std::function<bool(std::size_t)>& chosen) {
    if (const auto mean = mean_where(weights, chosen))
      report.results.push_back(
          {"mean weight of training rows " + name, samples::measure_text(*mean)});
  };
  if (wrong_labels_ > 0) {
    const auto changed = rows.field(changed_field).to_vector<std::int64_t>();
    add("with right labels", [&](std::size_t row) { return changed[row] == 0; });
    add("with wrong labels", [&](std::size_t row) { return changed[row] == 1; });
  }
  if (imbalance_ > 1) {
    const auto labels = rows.targets.to_vector<std::int64_t>();
    for (std::int64_t c = 0; c < network_.classes; ++c)
      add(fmt::format("of class {}", c), [&](std::size_t row) { return labels[row] == c; });
  }
  report.not_private.emplace_back(
      "Mean weights of training rows: exact functions of them, shown since the program itself made "
      "their labels wrong or their classes rare");
}

void ReweightTask::describe(WeighedModel& model, const Tensor& outputs, const samples::Data& data,
                            TrainingReport& report) {
  std::vector<std::string> names;
  for (std::int64_t c = 0; c < network_.classes; ++c) names.push_back(std::to_string(c));
  samples::describe_classes(outputs, data.test.targets, names, report);
  const bool weighs = method() == Method::gate || method() == Method::network;
  if (method() == Method::network && weigher_sees_ == "loss") add_weight_curve(model, report);
  if (weighs && (wrong_labels_ > 0 || imbalance_ > 1)) add_weights(model, data, report);
}

double ReweightTask::evaluate(nn::Module& model, const Tensor& outputs, const samples::Data& data,
                              TrainingReport* report) {
  if (report != nullptr) describe(weighed(model), outputs, data, *report);
  return nn::accuracy(outputs, data.test.targets);
}

}  // namespace sotto::reweight
