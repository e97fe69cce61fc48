// Trains on text with differential privacy, and uses the model; see --help.

#include <functional>
#include <map>
#include <string>

#include "samples/cli/program.h"
#include "samples/text/commands.h"
#include "samples/text/text_task.h"
#include "samples/training/program.h"

namespace {

using Command = std::function<int(int, const char* const*)>;

constexpr const char* help =
    R"(Learns from text with differential privacy: to tell its classes, or to write.

text train      trains a model (without --data: on sentences made up by the program)
text evaluate   measures a model on text
text predict    predicts the class of each line, paragraph or file
text generate   writes text

Each has a --help of its own. For example:
  text train --data names/ --epsilon 8 --save names.safetensors --report names.html
  text predict --model names.safetensors --data people.txt --out languages.csv
  text train --task generate --data plays.txt --unit paragraph --epsilon 8 --save plays.safetensors
  text generate --model plays.safetensors --prompt "ROMEO:" --length 400
)";

int train(int argc, const char* const* argv) {
  sotto::text::TextTask task;
  return sotto::samples::train_program(task, argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, Command> commands = {{"train", train},
                                                   {"evaluate", sotto::text::evaluate},
                                                   {"predict", sotto::text::predict},
                                                   {"generate", sotto::text::generate}};
  const std::string wanted = argc > 1 ? argv[1] : "";
  return sotto::samples::ending("text", [&] {
    if (wanted == "--help" || wanted == "-h" || wanted == "help") {
      sotto::samples::print_text(help);
      return 0;
    }
    const auto command = commands.find(wanted);
    sotto::check(command != commands.end(),
                 "{}: give train, evaluate, predict or generate (--help says more)",
                 wanted.empty() ? "no command" : "no command is called " + wanted);
    return command->second(argc - 1, argv + 1);
  });
}
