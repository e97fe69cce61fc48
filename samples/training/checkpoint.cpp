#include "samples/training/checkpoint.h"

#include <filesystem>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/io/atomic_file.h"
#include "core/io/safetensors.h"
#include "dp/engine/training_checkpoint.h"
#include "dp/ledger/ledger_text.h"

namespace sotto::samples {

namespace {

using nlohmann::json;

std::string settings_key(const std::string& program) { return "sotto." + program + ".settings"; }
std::string progress_key(const std::string& program) { return "sotto." + program + ".progress"; }
constexpr std::string_view engine_prefix = "engine.";
constexpr std::size_t max_statistics_bytes = std::size_t{1} << 28;

struct Part {
  const char* prefix;
  std::map<std::string, Tensor> Checkpoint::*tensors;
};
constexpr Part parts[] = {{"model.", &Checkpoint::model},
                          {"optimizer.", &Checkpoint::optimizer},
                          {"average.", &Checkpoint::average},
                          {"learner.", &Checkpoint::learner}};

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}
std::optional<double> number_or_nothing(const json& value) {
  if (value.is_null()) return std::nullopt;
  return value.get<double>();
}

json progress_json(const Checkpoint& checkpoint) {
  json history = json::array();
  for (const auto& [step, measure, epsilon] : checkpoint.history) {
    history.push_back({step, measure, or_null(epsilon)});
  }
  return {{"step", checkpoint.step},
          {"ledger", checkpoint.ledger ? json::parse(to_json(*checkpoint.ledger)) : json(nullptr)},
          {"noise_multiplier", checkpoint.noise_multiplier},
          {"ledger_file", checkpoint.ledger_file},
          {"data", checkpoint.data},
          {"epoch", checkpoint.position.epoch},
          {"row", checkpoint.position.row},
          {"requested_train_size", checkpoint.settings.requested_train_size},
          {"requested_test_size", checkpoint.settings.requested_test_size},
          {"history", history}};
}

void read_progress(const json& progress, Checkpoint& checkpoint) {
  progress.at("step").get_to(checkpoint.step);
  if (const json& mark = progress.at("ledger"); !mark.is_null())
    checkpoint.ledger = ledger_position_from_json(mark.dump());
  progress.at("noise_multiplier").get_to(checkpoint.noise_multiplier);
  checkpoint.ledger_file = progress.value("ledger_file", std::string());
  checkpoint.data = progress.value("data", std::array<std::string, 2>());
  progress.at("epoch").get_to(checkpoint.position.epoch);
  progress.at("row").get_to(checkpoint.position.row);
  Settings& settings = checkpoint.settings;  // earlier versions loaded what they trained on
  settings.requested_train_size = progress.value("requested_train_size", settings.train_size);
  settings.requested_test_size = progress.value("requested_test_size", settings.test_size);
  for (const json& entry : progress.at("history")) {
    checkpoint.history.push_back({entry.at(0).get<std::int64_t>(), entry.at(1).get<double>(),
                                  number_or_nothing(entry.at(2))});
  }
  check(checkpoint.step >= 0, "step {}", checkpoint.step);
}

void place(const std::string& name, const Tensor& tensor, Checkpoint& checkpoint) {
  for (const auto& [prefix, tensors] : parts) {
    if (name.starts_with(prefix)) {
      (checkpoint.*tensors)[name.substr(std::string_view(prefix).size())] = tensor;
      return;
    }
  }
  check(name.starts_with(engine_prefix), "unknown tensor {}", name);
  checkpoint.engine.tensors[name.substr(engine_prefix.size())] = tensor;
}

json entry(const TensorFile& file, const std::string& key) {
  const auto found = file.metadata.find(key);
  check(found != file.metadata.end(), "the metadata has no {}", key);
  return json::parse(found->second);
}

// Runs `parse`, and turns its complaints about the file's contents into a SystemFailure.
template <class Parse>
auto parse_file(const std::string& path, const char* what, Parse&& parse) {
  try {
    return parse();
  } catch (const std::invalid_argument& error) {
    throw SystemFailure(fmt::format("{}: not {}: {}", path, what, error.what()));
  } catch (const json::exception& error) {
    throw SystemFailure(fmt::format("{}: not {}: {}", path, what, error.what()));
  }
}

// The tensors of a checkpoint. A file that begins as one, and does not go on so, is damaged.
TensorFile load_tensors(const std::string& path) {
  // A pipe need not end, and has no ledger and no state beside it.
  if (!std::filesystem::is_regular_file(path))
    throw SystemFailure(fmt::format("{}: not a regular file", path));
  if (file_kind(path) != FileKind::tensors)
    throw SystemFailure(fmt::format("{}: not a checkpoint of this program: no tensors", path));
  try {
    return load_safetensors(path);
  } catch (const std::invalid_argument& error) {
    throw SystemFailure(fmt::format("damaged: {}", error.what()));
  }
}

json norms_json(const TrainingReport::NormHistogram& norms) {
  return {{"step", norms.step},
          {"steps", norms.steps},
          {"edges", norms.edges},
          {"counts", norms.counts},
          {"below", norms.below},
          {"above", norms.above},
          {"clip_bound", norms.clip_bound},
          {"clipped_fraction", norms.clipped_fraction}};
}

TrainingReport::NormHistogram norms_from_json(const json& object) {
  return {.step = object.at("step").get<std::int64_t>(),
          .steps = object.at("steps").get<std::int64_t>(),
          .edges = object.at("edges").get<std::vector<double>>(),
          .counts = object.at("counts").get<std::vector<std::int64_t>>(),
          .below = object.at("below").get<std::int64_t>(),
          .above = object.at("above").get<std::int64_t>(),
          .clip_bound = object.at("clip_bound").get<double>(),
          .clipped_fraction = object.at("clipped_fraction").get<double>()};
}

Statistics parse_statistics(const json& object, std::int64_t last_step) {
  Statistics statistics;
  object.at("seconds").get_to(statistics.seconds);
  for (const json& entry : object.at("points")) {
    Statistics::Point point{.step = entry.at(0).get<std::int64_t>(),
                            .loss = entry.at(1).get<double>(),
                            .clipped_fraction = number_or_nothing(entry.at(2))};
    if (point.step <= last_step) statistics.points.push_back(point);
  }
  for (const json& entry : object.at("norms")) {
    auto norms = norms_from_json(entry);
    if (norms.step <= last_step) statistics.norms.push_back(std::move(norms));
  }
  return statistics;
}

}  // namespace

Checkpoint parse_checkpoint(const TensorFile& file, const std::string& program) {
  Checkpoint checkpoint{.program = program};
  checkpoint.all_settings = entry(file, settings_key(program));
  check(checkpoint.all_settings.is_object(), "the settings are {}",
        checkpoint.all_settings.type_name());
  checkpoint.settings = settings_from_json(checkpoint.all_settings);
  read_progress(entry(file, progress_key(program)), checkpoint);
  validate(checkpoint.settings);
  check(checkpoint.ledger.has_value() == checkpoint.settings.privacy,
        "a ledger's mark belongs to private runs");
  for (const auto& [name, tensor] : file.tensors) place(name, tensor, checkpoint);
  checkpoint.engine.metadata = file.metadata;
  checkpoint.verified = file.verified;
  return checkpoint;
}

TensorFile without_engine(const Checkpoint& checkpoint) {
  TensorFile file;
  file.metadata[settings_key(checkpoint.program)] = checkpoint.all_settings.dump();
  // The ledger's name need not be UTF-8.
  file.metadata[progress_key(checkpoint.program)] =
      progress_json(checkpoint).dump(-1, ' ', false, json::error_handler_t::replace);
  for (const auto& [prefix, tensors] : parts) {
    for (const auto& [name, tensor] : checkpoint.*tensors) file.tensors[prefix + name] = tensor;
  }
  return file;
}

void save_checkpoint(const std::string& path, const Checkpoint& checkpoint) {
  TensorFile file = without_engine(checkpoint);
  file.metadata.insert(checkpoint.engine.metadata.begin(), checkpoint.engine.metadata.end());
  for (const auto& [name, tensor] : checkpoint.engine.tensors)
    file.tensors[std::string(engine_prefix) + name] = tensor;
  file.metadata.emplace(secret_key, "of training without privacy; publish the model alone");
  save_safetensors(path, file);
}

Checkpoint load_checkpoint(const std::string& path, const std::string& program) {
  const TensorFile file = load_tensors(path);
  return parse_file(path, "a checkpoint of this program",
                    [&] { return parse_checkpoint(file, program); });
}

std::string state_path(const std::string& model_path) { return model_path + ".state"; }
std::string ledger_path(const std::string& model_path) { return model_path + ".ledger"; }
std::string statistics_path(const std::string& model_path) {
  return model_path + ".statistics.json";
}

namespace {

// What to do with a ledger whose run has no state.
std::string advice_without_state(const std::string& ledger) {
  if (!std::filesystem::exists(ledger)) return "";
  const LedgerContents contents = parse_ledger(read_file(ledger), ledger).contents;
  const std::int64_t releases = total_releases(contents.events());
  if (releases == 0) return ": give --save instead";
  return fmt::format(
      ": {} counts {} releases, whose model is lost; begin anew on the rest of the budget with "
      "--ledger {} and another name for --save",
      ledger, releases, ledger);
}

}  // namespace

Checkpoint load_saved(const std::string& model_path, const std::string& program) {
  const std::string state = state_path(model_path);
  if (std::filesystem::exists(state)) return load_checkpoint(state, program);
  if (!std::filesystem::exists(model_path))
    throw SystemFailure(fmt::format("there is no {} to resume from{}", state,
                                    advice_without_state(ledger_path(model_path))));
  const TensorFile file = load_tensors(model_path);
  return parse_file(model_path, "a checkpoint of this program", [&] {
    check(!file.metadata.contains(statement_key), "it is a model, and there is no {}", state);
    return parse_checkpoint(file, program);
  });
}

void save_statistics(const std::string& path, const Statistics& statistics) {
  json points = json::array(), norms = json::array();
  for (const auto& [step, loss, clipped] : statistics.points) {
    points.push_back({step, loss, or_null(clipped)});
  }
  for (const auto& histogram : statistics.norms) norms.push_back(norms_json(histogram));
  const json object = {{"NOT PRIVATE", "exact functions of the training data"},
                       {"private", false},
                       {"seconds", statistics.seconds},
                       {"points", points},
                       {"norms", norms}};
  const auto write = [&](FileWriter& writer) { writer.write(object.dump() + "\n"); };
  write_file_atomically(path, write, FileKind::other, Readers::owner);
}

Statistics load_statistics(const std::string& path, std::int64_t step) {
  if (!std::filesystem::exists(path)) return {};
  return parse_file(path, "a statistics file of this program", [&] {
    return parse_statistics(json::parse(read_file(path, max_statistics_bytes)), step);
  });
}

}  // namespace sotto::samples
