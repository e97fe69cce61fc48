// A learning problem, from data to results: what a program adds to the common body of training
// programs (samples/training/program.h).
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <nlohmann/json.hpp>

#include "autograd/tape.h"
#include "dp/engine/standardize.h"
#include "nn/data/dataset.h"
#include "nn/data/images/augment.h"
#include "nn/module.h"
#include "nn/optim/optimizer.h"
#include "samples/training/data_source.h"
#include "samples/training/settings.h"

namespace sotto {
class Clipper;
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

// Named settings that work well.
struct Preset {
  const char* name;
  Settings settings;
  std::map<std::string, nlohmann::json> task = {};  // the task's settings, by name
};

// A part of a model's parameters, those whose names begin so: private training clips it as a group
// of its own, and the optimizer gives it a learning rate of its own.
struct ModelPart {
  std::string prefix;
  double clip_bound = 1;
  double learning_rate = 1;
};

// A number that tells how good a model is.
struct Measure {
  const char* name = "accuracy";
  bool percent = true;  // shown in percent; otherwise as it is
};
// "98.12 %", or "0.3412".
std::string text_of(const Measure& measure, double value);

// Learns settings beside a model, of what was released and of public data.
class Learner {
 public:
  virtual ~Learner() = default;
  // Sets what it decides of the engine: clip groups and the schedule of their bounds.
  virtual void set(EngineOptions& /*options*/) {}
  // Called before step number `step`, which has not drawn its batch, and after it.
  virtual void begin_step(std::int64_t /*step*/) {}
  virtual void end_step(std::int64_t /*step*/) {}
  // The losses of a batch, [n], given those of the task.
  virtual Var losses(const Var& losses) { return losses; }
  // What it learned, for people: names and values.
  virtual std::vector<std::pair<std::string, std::string>> learned() const = 0;
  // For checkpoints.
  virtual std::map<std::string, Tensor> state() const = 0;
  virtual void load_state(const std::map<std::string, Tensor>& state) = 0;
};

class Task {
 public:
  virtual ~Task() = default;

  // The program's name, a sentence for its help, and a title for its reports.
  virtual std::string program() const = 0;
  virtual std::string description() const = 0;
  virtual std::string title() const = 0;
  // The settings that the command line starts from.
  virtual Settings defaults() const = 0;
  // The learning rate of ordinary training, where gradients are not clipped to a small bound.
  virtual double ordinary_learning_rate() const = 0;
  virtual std::vector<Preset> presets() const = 0;
  virtual Measure measure() const { return {}; }

  // Declares the options that choose data (of group "Data") and model.
  virtual void add_data_options(CommandLine& line, Settings& settings) = 0;
  virtual void add_model_options(CommandLine& line) = 0;
  // The task's settings, which a checkpoint contains.
  virtual std::vector<TaskSetting> settings() = 0;
  // Completes the settings after the command line was read, and checks them. Throws
  // std::invalid_argument or SystemFailure. Data are not read yet.
  virtual void prepare(Settings& settings) = 0;
  // Throws std::invalid_argument for files of its own that the task could not write. Rank 0's.
  virtual void check_files() const {}
  // Whether --ledger must be given, and may name a file that is not there: of what saves no model,
  // beside which its ledger would be.
  struct LedgerUse {
    bool required = false, begins = false;
  };
  virtual LedgerUse ledger_use() const { return {}; }
  // Sets what depends on the number of training units, settings.train_size.
  virtual void fit_to_data(Settings& /*settings*/) const {}
  // The options of training that the settings leave without effect: it is an error to give one.
  virtual std::vector<const char*> unused_options() const { return {}; }
  // Reads or draws the data. Throws SystemFailure for files that are missing or damaged.
  virtual Data load(const Settings& settings) = 0;
  // Writes what may serve a later load(). Rank 0's.
  virtual void keep(const Data& /*data*/) const {}
  // Where the data come from, once prepare() has returned; and in words.
  virtual const DataSource& source() const = 0;
  virtual std::string data_text() const { return text_of(source()); }

  // A new model on the CPU; its initial values depend on the seed.
  virtual std::unique_ptr<nn::Module> make_model(const Data& data, std::uint64_t seed) = 0;
  // The layer of the model that takes means and deviations of the training data, released before
  // the first step as Settings::planned_means say, and their ranges; nullopt: no layer does.
  virtual std::optional<StandardizeOptions> standardize(nn::Module& /*model*/) const {
    return std::nullopt;
  }
  // The number of random views of each sample in a batch, which together are one unit of privacy:
  // its gradient is the mean over them, clipped once (De et al. 2022). 0: the samples as they are.
  virtual std::int64_t views() const { return 0; }
  // Returns these views of the samples, on the CPU.
  virtual Dataset view(const Dataset& samples, std::span<const RecordView> /*views*/,
                       std::uint64_t /*seed*/) const {
    return samples;
  }
  // The part of the model that is apart from the rest, if any.
  virtual std::optional<ModelPart> own_part(const Settings& /*settings*/) const {
    return std::nullopt;
  }
  // Called before step number `step` draws its batch, with the clipper of a private training, else
  // null. The group of own_part() is its last. What it computes for losses() may depend on public
  // data, and on the weights, which were released, alone.
  virtual void begin_step(nn::Module& /*model*/, std::int64_t /*step*/,
                          const Clipper* /*clipper*/) {}
  // One loss for each sample of the batch, which is on the model's device: the cross entropy of the
  // model's outputs, unless the task has another.
  virtual Var losses(Tape& tape, nn::Module& model, const Dataset& batch);
  // False if it cannot be trained by several processes together.
  virtual bool on_several_ranks() const { return true; }
  // What learns beside the model in one training; null: nothing does. The arguments, of which the
  // optimizer updates the model, outlive it.
  virtual std::unique_ptr<Learner> make_learner(nn::Module& /*model*/, nn::Optimizer& /*optimizer*/,
                                                const Settings& /*settings*/) {
    return nullptr;
  }
  // The model's outputs for test samples, one row for each.
  virtual Var outputs(Tape& tape, nn::Module& model, const Dataset& batch);
  // The measure on the test data, of which these are the outputs: the accuracy, unless the task has
  // another. Rank 0's.
  virtual double evaluate(const Tensor& outputs, const Data& data);
  // Metadata of the model file, from which `predict` makes the model again.
  virtual std::map<std::string, std::string> metadata() const { return {}; }
  // Adds results of the final model, and of its outputs for the test data, to the report. Rank 0's.
  virtual void describe(nn::Module& /*model*/, const Tensor& /*outputs*/, const Data& /*data*/,
                        TrainingReport& /*report*/) {}
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
