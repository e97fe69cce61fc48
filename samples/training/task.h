// A learning problem, from data to results: what a program adds to the common body of training
// programs (samples/training/program.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "autograd/tape.h"
#include "dp/engine/train.h"
#include "nn/module.h"
#include "nn/optim/optimizer.h"
#include "nn/predict.h"
#include "samples/cli/progress.h"
#include "samples/training/data_source.h"
#include "samples/training/settings.h"

namespace sotto {
struct TrainingReport;
}  // namespace sotto

namespace sotto::samples {

class CommandLine;

// A setting of a task by its name in checkpoints and reports.
struct TaskSetting {
  const char* name;
  std::variant<bool*, std::int64_t*, double*, std::string*> value;
  OnResume on_resume = OnResume::must_agree;
};
// Names of settings that a privacy statement tells about: where weights come from, the classes, the
// rows at whose means training starts, and a table's schema.
inline constexpr const char *init_setting = "init", *classes_setting = "classes",
                            *prototypes_setting = "prototypes", *schema_setting = "schema";

// Named settings that work well.
struct Preset {
  const char* name;
  Settings settings;
  std::map<std::string, nlohmann::json> task = {};  // the task's settings, by name
};

// A part of a model's parameters, those at or below these paths: private training clips it as a
// group of its own, and the optimizer gives it a learning rate of its own.
struct ModelPart {
  std::vector<std::string> paths;  // "classifier", "bert.pooler"
  double clip_bound = 1;           // 0: clipped with the rest
  double learning_rate = 1;
};

// The facts of a task that its options decide. All but `metadata` hold once prepare() has returned.
struct TaskFacts {
  // The program's name, a sentence for its help, and a title for its reports.
  std::string program, description, title;
  Settings defaults = {};  // that the command line starts from
  std::vector<Preset> presets = {};
  std::vector<TaskSetting> settings = {};  // that a checkpoint contains
  // The learning rate of ordinary training, where gradients are not clipped to a small bound.
  double ordinary_learning_rate = 0.05;
  Measure measure = {};
  DataSource source = {};      // where the data come from
  std::string more_data = {};  // what else there is to say about them
  // The options of training that the settings leave without effect: it is an error to give one.
  std::vector<const char*> unused_options = {};
  std::map<std::string, std::string> cache = {};  // option and path of a file that load() writes
  // Whether --ledger must be given, and may name a file that is not there: of what saves no model,
  // beside which its ledger would be.
  bool ledger_required = false, ledger_begins = false;
  bool on_several_ranks = true;  // whether several processes can train it together
  // Sets what depends on the number of training units, settings.train_size; unset: nothing does.
  std::function<void(Settings& settings)> fit_to_data = {};
  // Metadata of the model file, from which `predict` makes the model again; once data are loaded.
  std::map<std::string, std::string> metadata = {};
};
// Sets the setting of this name to the classes. Throws std::invalid_argument if a checkpoint set it
// to others.
void set_class_names(std::string& setting, const std::vector<std::string>& classes);
// "people made up by the program; 3 of them ...".
std::string data_text(const TaskFacts& facts);
// Sentences for a privacy statement on all that training reads without noise.
std::vector<std::string> taken_as_public(const TaskFacts& facts);

// A learner that a task has beside its model.
class TaskLearner : public Learner {
 public:
  // Sets what it decides of the engine: clip groups and the schedule of their bounds.
  virtual void set(EngineOptions& /*options*/) {}
  // What it learned, for people: names and values.
  virtual std::vector<std::pair<std::string, std::string>> learned() const { return {}; }
};

// A new model, on the CPU, and what training must know of it.
struct TaskModel {
  std::unique_ptr<nn::Module> network;
  // The outputs for test samples, one row for each; unset: network(inputs).
  nn::Forward outputs = {};
  // The layer that takes means and deviations of the training data, and their ranges: released
  // before the first step as Settings::planned_means say.
  std::optional<StandardizeOptions> standardize = {};
  // The part that is apart from the rest; its clip group is the last.
  std::optional<ModelPart> own_part = {};
  std::optional<SampleViews> views = {};
  // EngineOptions::bucket_of_unit of a private training; unset: one bucket.
  std::function<std::int64_t(std::int64_t unit)> bucket_of_unit = {};
  // The tensors of the model file; unset: all parameters.
  std::function<std::map<std::string, Tensor>()> saved = {};
  // Makes what learns beside the network, which this optimizer updates; unset: nothing does.
  std::function<std::unique_ptr<TaskLearner>(nn::Optimizer& optimizer)> make_learner = {};
};

class Task {
 public:
  virtual ~Task() = default;
  virtual TaskFacts facts() = 0;
  // Declares the options that choose the data, or the model.
  enum class Options { data, model };
  virtual void add_options(CommandLine& line, Options which, Settings& settings) = 0;
  // Completes the settings after the command line was read, and checks them. Throws
  // std::invalid_argument or SystemFailure. Data are not read yet.
  virtual void prepare(Settings& settings) = 0;
  // Reads or draws the data. Throws SystemFailure for files that are missing or damaged.
  virtual Data load(const Settings& settings) = 0;
  // Its initial values depend on the settings' seed.
  virtual TaskModel make_model(const Data& data, const Settings& settings) = 0;
  // One loss for each sample of the batch, which is on the model's device: the cross entropy of the
  // model's outputs, unless the task has another.
  virtual Var losses(Tape& tape, nn::Module& model, const Dataset& batch);
  // The measure on the test data, of which these are the outputs: the accuracy, unless the task has
  // another. Adds results to the report, unless it is null. Rank 0's.
  virtual double evaluate(nn::Module& model, const Tensor& outputs, const Data& data,
                          TrainingReport* report);
};

// The task's settings as JSON, by name, and their assignment. assign() leaves settings without an
// entry as they are, and throws nlohmann::json::exception for an entry of another type.
nlohmann::json settings_json(Task& task);
void assign(Task& task, const nlohmann::json& values);

// The settings of both.
nlohmann::json all_settings(const Settings& settings, Task& task);
// "batch is 512 here and 1024 in the checkpoint; ..."; empty if a run with these settings can
// continue from a checkpoint with those of `there`.
std::string differences(const Settings& settings, Task& task, const nlohmann::json& there);

}  // namespace sotto::samples
