// The options of `export`: apart, since they need the library for command lines.
#include <fmt/format.h>

#include "samples/cli/command_line.h"
#include "samples/cli/program.h"
#include "samples/pretrained/export.h"

namespace sotto::samples {

std::optional<ExportCommand> parse_export(const std::string& train, const std::string& files,
                                          int argc, const char* const* argv) {
  ExportCommand command;
  CommandLine line("Writes a tuned model for the software of its first publisher.");
  line.group("Options");
  line.option("--model", command.model, fmt::format("model that `{} --init --save` wrote", train),
              "FILE");
  line.option("--out", command.out, "folder for " + files, "DIR");
  line.flag("--adapter", command.adapter, "what was trained alone, as PEFT writes it");
  if (!line.parse(argc, argv)) return std::nullopt;
  require_given("--model", command.model);
  require_given("--out", command.out);
  return command;
}

}  // namespace sotto::samples
