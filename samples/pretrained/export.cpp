#include "samples/pretrained/export.h"

#include <filesystem>

#include "core/io/safetensors.h"
#include "dp/engine/training_checkpoint.h"
#include "nn/models/adapter.h"
#include "samples/cli/program.h"
#include "samples/report/results.h"

namespace sotto::samples {

void export_pretrained(nn::Pretrained& pretrained, const ExportCommand& command) {
  // Whoever trains from the folder again must know what its weights have spent.
  const std::string statement = load_safetensors(command.model).metadata.at(statement_key);
  if (command.adapter) {
    nn::save_adapter(pretrained, command.out);
  } else {
    nn::save_pretrained(pretrained, command.out);
  }
  write_text({std::filesystem::path(command.out) / statement_file, statement + "\n"});
  print("{} in {}\n", command.adapter ? "the adapter" : "the model", command.out);
}

}  // namespace sotto::samples
