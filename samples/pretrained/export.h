// `export` of a tuned model: a folder that the software of its first publisher loads.
#pragma once

#include <optional>
#include <string>

#include "nn/models/pretrained.h"

namespace sotto::samples {

struct ExportCommand {
  std::string model = {}, out = {};  // a file, and the new folder
  bool adapter = false;
};
// Parses the command line of `export`; the help says that `train` writes such models, and names the
// files in the folder. Returns nullopt after --help.
std::optional<ExportCommand> parse_export(const std::string& train, const std::string& files,
                                          int argc, const char* const* argv);

// The privacy statement of a model in an exported folder.
inline constexpr const char* statement_file = "privacy_statement.json";
// Writes the model that the command's file was read into: merged, or with `adapter` LoRA's matrices
// and the head alone (PEFT), with its privacy statement; and tells so.
void export_pretrained(nn::Pretrained& pretrained, const ExportCommand& command);

}  // namespace sotto::samples
