// Trains on text with differential privacy, and uses the model; see --help.

#include "samples/cli/subcommands.h"
#include "samples/text/commands.h"
#include "samples/text/text_task.h"
#include "samples/training/program.h"

namespace {

int train(int argc, const char* const* argv) {
  sotto::text::TextTask task;
  return sotto::samples::train_program(task, argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace sotto::text;
  return sotto::samples::run_subcommand(
      {.name = "text",
       .about = "Learns from text with differential privacy: to tell its classes, or to write.",
       .examples =
           R"(    sotto-text train --data names/ --epsilon 8 --save names.safetensors --report names.html
    sotto-text predict --model names.safetensors --data people.txt --out languages.csv
    sotto-text train --task generate --data plays.txt --unit paragraph --epsilon 8 --save plays.safetensors
    sotto-text generate --model plays.safetensors --prompt "ROMEO:" --length 400
)"},
      {{"train", "trains a model; without --data, on sentences made up by the program", train},
       {"evaluate", "measures a model on text", evaluate},
       {"predict", "predicts the class of each line, paragraph or file", predict},
       {"generate", "writes text", generate},
       {"sentences", "writes files of sentences made up by the program, to try it on",
        write_sentences}},
      argc, argv);
}
