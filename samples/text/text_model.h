// All that says how text becomes a model's inputs, and its outputs text or classes: a model file
// holds it, so that the model can be used.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nn/data/text/text_files.h"
#include "samples/text/network.h"

namespace sotto::text {

struct TextModel {
  std::string task = "classify";  // or "generate"
  TextNetworkOptions network = {};
  std::string alphabet = "bytes";    // or the characters themselves
  bool other_characters = false;     // a number for characters that the alphabet lacks
  std::string unit = "line";         // "paragraph", "file"
  std::string long_units = "cut";    // "split"
  std::int64_t context = 64;         // maximum symbols of a row
  std::vector<std::string> classes;  // public names, by number; none to generate

  bool generates() const { return task == "generate"; }
  // Throw std::invalid_argument, with the option's name, for values out of range.
  TextVocabulary vocabulary() const;
  TextOptions text_options() const;
  std::unique_ptr<Network> make_network() const;
};

// Reads the rows of a path: a folder to classify, a file or a folder to generate. Their classes are
// the model's where it has some. Throws SystemFailure as the readers (text_files.h).
TextFiles read_text(const TextModel& model, const std::string& path);

// The model's data made of the reader's rows. To generate, the inputs at a position are the symbols
// before it, with `end` at first, and the target is its own symbol: `end` after a unit that is
// shorter than the context, and `ignored` at the positions behind.
inline constexpr std::int64_t ignored = -1;
Dataset prepared(const TextModel& model, const Dataset& rows);

nlohmann::json to_json(const TextModel& model);
TextModel text_model_from_json(const nlohmann::json& object);

// A model file's description and its network. Throws SystemFailure for another file.
struct SavedTextModel {
  TextModel model;
  std::unique_ptr<Network> network;
};
SavedTextModel load_model(const std::string& path);

}  // namespace sotto::text
