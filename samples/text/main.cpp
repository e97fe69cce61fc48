// Trains on text with differential privacy, and uses the model; see --help.

#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/io/atomic_file.h"
#include "samples/cli/command_line.h"
#include "samples/cli/model_command.h"
#include "samples/cli/program.h"
#include "samples/cli/subcommands.h"
#include "samples/report/results.h"
#include "samples/text/generation.h"
#include "samples/text/results.h"
#include "samples/text/sentences.h"
#include "samples/text/text_task.h"
#include "samples/training/program.h"

namespace sotto::text {

namespace {

int evaluate(int argc, const char* const* argv) {
  auto command = samples::ModelCommand::evaluate(
      {.about = "Measures a saved model on text.",
       .train = "sotto-text train --save",
       .data =
           "text as in training: to classify, a folder with a file or sub-folder for each class",
       .type = "PATH",
       .row = "unit"});
  if (!command.parse(argc, argv)) return 0;
  const SavedTextModel saved = load_model(command.model);
  const Dataset rows = prepared(saved.model, read_text(saved.model, command.data).data);
  check(rows.size() > 0, "--data: {} has no text", command.data);
  TrainingReport report;
  describe_results(saved.model, outputs_of_rows(saved.model, *saved.network, rows), rows, report);
  command.tell_results(report, rows.unit_count());
  return 0;
}

int predict(int argc, const char* const* argv) {
  auto command = samples::ModelCommand::predict(
      {.about = "Predicts the class of each unit of a text, such as a line.",
       .train = "sotto-text train --task classify --save",
       .data = "text, UTF-8, plain or gzipped; blank lines are no units",
       .type = "FILE",
       .row = "unit"});
  if (!command.parse(argc, argv)) return 0;
  const SavedTextModel saved = load_model(command.model);
  check(!saved.model.generates(), "--model: {} generates text and knows no classes", command.model);
  const Dataset rows = read_text_files({&command.data, 1}, saved.model.text_options()).data;
  check(rows.size() > 0, "--data: {} has no text", command.data);
  const Tensor outputs = outputs_of_rows(saved.model, *saved.network, rows);
  samples::write_text(
      {command.out, predictions(scores_of_units(outputs, rows), saved.model.classes)});
  command.tell_predictions(rows.unit_count());
  return 0;
}

int generate(int argc, const char* const* argv) {
  std::string model;
  GenerateOptions options;
  samples::CommandLine line("Lets a saved language model write.");
  line.group("Options");
  line.option("--model", model, "model that `sotto-text train --task generate --save` wrote",
              "FILE");
  line.option("--prompt", options.prompt, "the beginning, which the model continues", "TEXT");
  line.option("--length", options.length, "symbols to write", "N");
  line.option("--temperature", options.temperature,
              "below 1: likelier text; 0: always the likeliest symbol", "X");
  line.add_seed(options.seed, "draws the symbols");
  if (!line.parse(argc, argv)) return 0;
  samples::require_given("--model", model);
  const SavedTextModel saved = load_model(model);
  check(saved.model.generates(), "--model: {} tells classes and does not write", model);
  samples::print("{}\n", generate_text(*saved.network, saved.model, options));
  return 0;
}

// A file of lines for each class.
void write_files(const std::string& folder, std::uint64_t seed, std::int64_t first,
                 std::int64_t end) {
  const std::vector<std::string> classes = sentence_classes();
  std::vector<std::string> texts(classes.size());
  for (std::int64_t k = first; k < end; ++k) {
    const Sentence one = sentence(seed, k);
    texts[static_cast<std::size_t>(one.place)] += one.text + "\n";
  }
  std::error_code problem;
  std::filesystem::create_directory(folder, problem);
  if (problem) throw SystemFailure(fmt::format("{}: {}", folder, problem.message()));
  for (std::size_t k = 0; k < classes.size(); ++k)
    samples::write_text({folder + "/" + classes[k] + ".txt", texts[k]});
}

int write_sentences(int argc, const char* const* argv) {
  std::string out;
  std::int64_t count = 1000, first = 0;
  std::uint64_t seed = 0;
  samples::CommandLine line(
      "Writes sentences that the program makes up: a file of lines for each place they tell "
      "about.");
  line.group("Options");
  line.option("--out", out, "new folder", "DIR");
  line.option("--count", count, "number of sentences", "N");
  line.option("--first", first, "number of the first one in an endless list", "N");
  line.add_seed(seed, "the list");
  if (!line.parse(argc, argv)) return 0;
  samples::require_given("--out", out);
  constexpr std::int64_t most = 1 << 20;
  samples::require(count >= 1 && count <= most, "--count", count, "from 1 to 2^20");
  samples::require(first >= 0 && first <= most, "--first", first, "from 0 to 2^20");
  check(!std::filesystem::exists(out), "--out: {} exists already: give another name", out);
  write_files(out, seed, first, first + count);
  samples::print("{} sentences in {}\n", count, out);
  return 0;
}

}  // namespace

}  // namespace sotto::text

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
      {{"train", "trains a model; without --data, on sentences made up by the program",
        sotto::samples::train_command<TextTask>},
       {"evaluate", "measures a model on text", evaluate},
       {"predict", "predicts the class of each line, paragraph or file", predict},
       {"generate", "writes text", generate},
       {"sentences", "writes files of sentences made up by the program, to try it on",
        write_sentences}},
      argc, argv);
}
