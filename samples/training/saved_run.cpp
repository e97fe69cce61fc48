#include "samples/training/saved_run.h"

#include <filesystem>

#include "core/io/atomic_file.h"
#include "core/io/safetensors.h"
#include "core/ranks/collectives.h"
#include "dp/engine/training_checkpoint.h"
#include "dp/ledger/ledger_text.h"
#include "samples/cli/model_file.h"

namespace sotto::samples {

namespace {

using nlohmann::json;

json or_null(const std::optional<double>& value) { return value ? json(*value) : json(nullptr); }

ProgramSection section_of(const json& object) {
  ProgramSection section{.all_settings = object.at("settings")};
  check(section.all_settings.is_object(), "the settings are {}", section.all_settings.type_name());
  section.settings = settings_from_json(section.all_settings);
  object.at("program").get_to(section.program);
  object.at("step").get_to(section.step);
  object.at("noise_multiplier").get_to(section.noise_multiplier);
  object.at("ledger_file").get_to(section.ledger_file);
  object.at("data").get_to(section.data);
  object.at("requested_train_size").get_to(section.settings.requested_train_size);
  object.at("requested_test_size").get_to(section.settings.requested_test_size);
  for (const json& entry : object.at("history")) {
    const json& epsilon = entry.at(2);
    section.history.push_back(
        {entry.at(0).get<std::int64_t>(), entry.at(1).get<double>(),
         epsilon.is_null() ? std::nullopt : std::optional(epsilon.get<double>())});
  }
  validate(section.settings);
  check(section.step >= 0, "step {}", section.step);
  return section;
}

// The metadata of a checkpoint. A file that begins as one, and does not go on so, is damaged.
std::map<std::string, std::string> load_metadata(const std::string& path) {
  // A pipe need not end, and has no ledger and no state beside it.
  if (!std::filesystem::is_regular_file(path))
    throw SystemFailure(fmt::format("{}: not a regular file", path));
  if (file_kind(path) != FileKind::tensors)
    throw SystemFailure(fmt::format("{}: not a checkpoint of this program: no tensors", path));
  try {
    return load_safetensors(path).metadata;
  } catch (const std::invalid_argument& error) {
    throw SystemFailure(fmt::format("damaged: {}", error.what()));
  }
}

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

// The texts of saved_run(), as one.
std::string texts_of(const std::string& model_path) {
  const std::string state = state_path(model_path);
  if (!std::filesystem::exists(state)) {
    if (std::filesystem::is_regular_file(model_path) &&
        load_metadata(model_path).contains(statement_key))
      throw SystemFailure(fmt::format("{}: it is a model, and there is no {}", model_path, state));
    if (std::filesystem::exists(model_path)) load_metadata(model_path);
    throw SystemFailure(fmt::format("there is no {} to resume from{}", state,
                                    advice_without_state(ledger_path(model_path))));
  }
  const auto metadata = load_metadata(state);
  json texts = {{"section", nullptr}, {"mark", nullptr}};
  if (const auto found = metadata.find(program_key); found != metadata.end())
    texts["section"] = found->second;
  if (const auto found = metadata.find(mark_key); found != metadata.end())
    texts["mark"] = found->second;
  if (texts["mark"].is_null() && !metadata.contains(secret_key))
    throw SystemFailure(
        fmt::format("{}: not a checkpoint of this program: no {}", state, mark_key));
  return texts.dump();
}

}  // namespace

std::string to_json(const ProgramSection& section) {
  json history = json::array();
  for (const auto& [step, measure, epsilon] : section.history)
    history.push_back({step, measure, or_null(epsilon)});
  const json object = {{"program", section.program},
                       {"settings", section.all_settings},
                       {"step", section.step},
                       {"noise_multiplier", section.noise_multiplier},
                       {"ledger_file", section.ledger_file},
                       {"data", section.data},
                       {"requested_train_size", section.settings.requested_train_size},
                       {"requested_test_size", section.settings.requested_test_size},
                       {"history", history}};
  // The ledger's name need not be UTF-8.
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

SavedRun saved_run(const json& section, const json& mark, const std::string& program) {
  SavedRun saved;
  if (!mark.is_null()) saved.ledger = ledger_position_from_json(mark.get<std::string>());
  if (section.is_null()) return saved;
  saved.section = section_of(json::parse(section.get<std::string>()));
  check(saved.section->program == program, "it is of sotto-{}", saved.section->program);
  check(saved.ledger.has_value() == saved.section->settings.privacy,
        "a ledger's mark belongs to private runs");
  return saved;
}

std::string state_path(const std::string& model_path) { return model_path + ".state"; }
std::string ledger_path(const std::string& model_path) { return model_path + ".ledger"; }
std::string statistics_path(const std::string& model_path) {
  return model_path + ".statistics.json";
}

SavedRun load_saved(Ranks& ranks, const std::string& model_path, const std::string& program) {
  const json texts =
      json::parse(broadcast(ranks, "programs: checkpoint", [&] { return texts_of(model_path); }));
  return parsed(state_path(model_path), "a checkpoint of this program",
                [&] { return saved_run(texts["section"], texts["mark"], program); });
}

}  // namespace sotto::samples
