#include "samples/text/tuned_commands.h"

#include <filesystem>
#include <functional>

#include "core/error.h"
#include "memory/outputs_of.h"
#include "samples/cli/program.h"
#include "samples/report/report.h"
#include "samples/text/results.h"
#include "samples/text/tuning_task.h"

namespace sotto::text {

namespace {

TextRecords records_of(const TunedModel& model, const std::string& path) {
  TextRecords records = read_records(model.text, path);
  check(!records.texts.empty(), "--data: {} has no text", path);
  return records;
}

Tensor outputs_of(const TunedModel& model, const Dataset& rows) {
  nn::TokenModel& network = model.network();
  return memory::outputs_of(network, rows, [&](Tape& tape, const Dataset& part) {
    return tuned_outputs(network, tape, part);
  });
}

}  // namespace

void evaluate_tuned(const samples::ModelCommand& command) {
  const TunedModel model = load_tuned(command.model);
  const TextRecords records = records_of(model, command.data);
  check(model.text.classes.empty() || !records.labels.empty(),
        "--data: {} has no classes to measure by: give a folder of classes, or a table",
        command.data);
  const Dataset rows = model.rows(records);
  TrainingReport report;
  describe_tuned(model.text, outputs_of(model, rows), rows, report);
  command.tell_results(report, rows.unit_count());
}

void predict_tuned(const samples::ModelCommand& command) {
  TunedModel model = load_tuned(command.model);
  check(model.writer() == nullptr, "--model: {} writes and knows no classes", command.model);
  model.text.columns.label.clear();
  const Dataset rows = model.rows(records_of(model, command.data));
  samples::write_text({command.out, predictions(scores_of_units(outputs_of(model, rows), rows),
                                                model.text.classes)});
  command.tell_predictions(rows.unit_count());
}

bool is_writer(const std::string& path) {
  return std::filesystem::is_directory(path) || path.ends_with(".gguf") || is_tuned(path);
}

Writer open_writer(const std::string& path) {
  const bool published = std::filesystem::is_directory(path) || path.ends_with(".gguf");
  if (published) return {nn::load_pretrained(path, {.quantized = true}), load_tokenizer(path)};
  TunedModel model = load_tuned(path);
  return {std::move(model.started.pretrained), std::move(model.tokenizer)};
}

void write_on(const Writer& writer, const std::string& prompt, nn::GenerateOptions options,
              const std::function<void(const std::string& text)>& tell) {
  auto* const model = dynamic_cast<nn::LanguageModel*>(writer.pretrained.model.get());
  check(model != nullptr, "--model: it tells classes and does not write");
  const std::vector<std::int64_t> begin = writer.tokenizer.encode(prompt).ids;
  check(!begin.empty(), "--prompt: give the beginning of the text");
  if (const auto end = writer.tokenizer.special_tokens().end) options.stop.push_back(*end);
  std::vector<std::int64_t> tokens = begin;
  std::string told;
  // A token may be a part of a character, which the next one completes.
  const auto more = [&] {
    const std::string text = writer.tokenizer.decode(tokens);
    if (text.ends_with("\xef\xbf\xbd") || !text.starts_with(told)) return;
    tell(text.substr(told.size()));
    told = text;
  };
  more();
  options.on_token = [&](std::int64_t token) {
    tokens.push_back(token);
    more();
    return true;
  };
  nn::generate(*model, begin, options);
  const std::string text = writer.tokenizer.decode(tokens);
  if (text.size() > told.size()) tell(text.substr(told.size()));
}

void export_tuned(const samples::ExportCommand& command) {
  TunedModel tuned = load_tuned(command.model);
  samples::export_pretrained(tuned.started.pretrained, command);
  if (!command.adapter) save_tokenizer(tuned.text.tokenizer_path(), command.out);
  if (tuned.text.pooling.empty()) return;
  samples::print(
      "its classifier takes --pooling {}: give that to --init; transformers does not compute it\n",
      tuned.text.pooling);
}

}  // namespace sotto::text
