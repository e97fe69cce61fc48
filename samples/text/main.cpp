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
#include "samples/text/tuned_commands.h"
#include "samples/text/tuning_task.h"
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
  if (is_tuned(command.model)) {
    evaluate_tuned(command);
    return 0;
  }
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
  if (is_tuned(command.model)) {
    predict_tuned(command);
    return 0;
  }
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
  nn::GenerateOptions tokens;
  samples::CommandLine line("Lets a language model write.");
  line.group("Options");
  line.option("--model", model,
              "model that `sotto-text train --save` wrote; or a published one, its folder or .gguf",
              "PATH");
  line.option("--prompt", options.prompt, "the beginning, which the model continues", "TEXT");
  line.option("--length", options.length, "symbols, or a published model's tokens, to write", "N");
  line.option("--temperature", options.temperature,
              "below 1: likelier text; 0: always the likeliest symbol", "X");
  line.option("--top-k", tokens.top_k, "draw from so many likeliest tokens; 0: from all", "N");
  line.option("--top-p", tokens.top_p,
              "draw from the likeliest tokens whose probabilities reach this together", "X");
  line.add_seed(options.seed, "draws the symbols");
  if (!line.parse(argc, argv)) return 0;
  samples::require_given("--model", model);
  if (is_writer(model)) {
    tokens.max_tokens = options.length;
    tokens.temperature = options.temperature;
    tokens.seed = options.seed;
    write_on(open_writer(model), options.prompt, tokens, samples::print_text);
    samples::print("\n");
    return 0;
  }
  check(!line.given("--top-k") && !line.given("--top-p"),
        "--top-k, --top-p: have no effect on this model");
  const SavedTextModel saved = load_model(model);
  check(saved.model.generates(), "--model: {} tells classes and does not write", model);
  samples::print("{}\n", generate_text(*saved.network, saved.model, options));
  return 0;
}

int export_model(int argc, const char* const* argv) {
  const auto command = samples::parse_export(
      "sotto-text train", "config.json, model.safetensors and the tokenizer", argc, argv);
  if (command) export_tuned(*command);
  return 0;
}

// The text behind an option, "" without it.
std::string value_of(std::string_view option, int argc, const char* const* argv) {
  for (int k = 1; k < argc; ++k) {
    const std::string_view word = argv[k];
    if (word == option) return k + 1 < argc ? argv[k + 1] : "";
    if (word.starts_with(option) && word.substr(option.size()).starts_with('='))
      return std::string(word.substr(option.size() + 1));
  }
  return "";
}

// A published model is tuned where --init names one, or the run to resume has one.
int train(int argc, const char* const* argv) {
  const std::string resumed = value_of("--resume", argc, argv);
  std::error_code none;
  const bool tunes = !value_of("--init", argc, argv).empty() ||
                     (std::filesystem::exists(resumed, none) && is_tuned(resumed));
  return tunes ? samples::train_command<TuningTask>(argc, argv)
               : samples::train_command<TextTask>(argc, argv);
}

// A table, in which each person writes four sentences.
void write_table(const std::string& path, std::uint64_t seed, std::int64_t first,
                 std::int64_t end) {
  constexpr std::int64_t sentences_of_person = 4;
  const std::vector<std::string> classes = sentence_classes();
  std::string table = "person\tplace\ttext\n";
  for (std::int64_t k = first; k < end; ++k) {
    const Sentence one = sentence(seed, k);
    table += fmt::format("person{}\t{}\t{}\n", k / sentences_of_person,
                         classes[static_cast<std::size_t>(one.place)], one.text);
  }
  samples::write_text({path, table});
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
      "about, or a table of persons, places and texts.");
  line.group("Options");
  line.option("--out", out, "new folder, or table (.tsv)", "PATH");
  line.option("--count", count, "number of sentences", "N");
  line.option("--first", first, "number of the first one in an endless list", "N");
  line.add_seed(seed, "the list");
  if (!line.parse(argc, argv)) return 0;
  samples::require_given("--out", out);
  constexpr std::int64_t most = 1 << 20;
  samples::require(count >= 1 && count <= most, "--count", count, "from 1 to 2^20");
  samples::require(first >= 0 && first <= most, "--first", first, "from 0 to 2^20");
  check(!std::filesystem::exists(out), "--out: {} exists already: give another name", out);
  const auto write = out.ends_with(".tsv") ? write_table : write_files;
  write(out, seed, first, first + count);
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
    sotto-text train --init minilm/ --tune lora:8 --data reviews.tsv --label-column label --epsilon 3 --save reviews.safetensors
    sotto-text generate --model plays.safetensors --prompt "ROMEO:" --length 400
)"},
      {{"train", "trains a model, or tunes a published one (--init)", train},
       {"evaluate", "measures a model on text", evaluate},
       {"predict", "predicts the class of each line, paragraph or file", predict},
       {"generate", "writes text", generate},
       {"export", "writes a tuned model for other software", export_model},
       {"sentences", "writes files of sentences made up by the program, to try it on",
        write_sentences}},
      argc, argv);
}
