// Training that starts from a published model: where its weights come from, and what is trained.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nn/models/pretrained.h"
#include "nn/models/tuning.h"
#include "samples/training/task.h"

namespace sotto::samples {

struct Start {
  std::string init = {};          // a folder or file (nn::load_pretrained)
  std::string architecture = {};  // of files that do not say it
  std::string tune = "head";      // nn::parse_tuning
  double head_bound = 0;          // the clip bound of the head as a group of its own; 0: no group
  double head_rate = 0;           // the head's learning rate; 0: that of the rest
  std::string weights = {};       // frozen_hash() of a saved model; empty: of none yet
};

// Declares --init, --architecture, --tune, --head-bound and --head-lr.
void add_start_options(CommandLine& line, Start& start);
// Throws std::invalid_argument, under the option's name, for values out of range.
void check_start(const Start& start);
// The settings of a checkpoint.
std::vector<TaskSetting> start_settings(Start& start);

// The model, tuned as `start` says: LoRA beside its layers, and what is not trained frozen.
struct StartedModel {
  nn::Pretrained pretrained;
  nn::TuningSummary summary;
};
// Throws std::invalid_argument if start.weights says that the saved model had others.
StartedModel start_model(const Start& start, nn::PretrainedOptions options);
// A hash of the config and of all that is not trained, in hexadecimal digits.
std::string frozen_hash(const nn::Pretrained& pretrained);
// The head as a part of its own, where `start` gives it a bound or a learning rate.
std::optional<ModelPart> head_of(const Start& start, const nn::PretrainedModel& model,
                                 const Settings& settings);

// The tensors of a model file: the trained ones by name.
std::map<std::string, Tensor> trained_tensors(nn::Module& model);
// Puts them into a model that was started in the same way. `source` names their origin. Throws
// std::invalid_argument, naming the tensor, where they do not fit.
void set_trained(nn::Module& model, const std::map<std::string, Tensor>& tensors,
                 const std::string& source);

nlohmann::json to_json(const Start& start);
Start start_from_json(const nlohmann::json& object);

}  // namespace sotto::samples
