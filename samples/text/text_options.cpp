// The options of `text train`: apart, since they need the library for command lines.
#include "samples/cli/command_line.h"
#include "samples/text/text_task.h"
#include "samples/text/tuning_options.h"

namespace sotto::text {

void TextTask::add_data_options(samples::CommandLine& line, samples::Settings& s) {
  line.choice("--task", model_.task, "tell classes, or generate text", {"classify", "generate"});
  using samples::Files;
  samples::add_files_option(
      line, "--data", source_, &Files::train,
      "training text, UTF-8, plain or gzipped. classify: a folder with a file or "
      "sub-folder for each class, whose names are public; generate: a file or folder",
      "PATH");
  samples::add_files_option(line, "--test", source_, &Files::test,
                            "test text, likewise; otherwise a part of --data is kept for it",
                            "PATH");
  line.option("--test-fraction", test_fraction_, "that part: a fraction of the units", "X");
  line.option("--test-every", test_every_, "or that part: every N-th unit", "N");
  line.conflict("--test", "--test-fraction");
  line.conflict("--test", "--test-every");
  line.conflict("--test-fraction", "--test-every");
  line.choice("--unit", model_.unit, "the text that privacy hides as a whole",
              {"line", "paragraph", "file"});
  line.option("--context", model_.context, "maximum symbols that the model reads at a time", "N");
  line.choice("--long-units", model_.long_units,
              "units longer than that: cut, or split into several rows of one unit",
              {"cut", "split"});
  line.option("--alphabet", model_.alphabet,
              "symbols: bytes, or these public characters (others are refused)", "TEXT");
  line.flag("--other-characters", model_.other_characters,
            "one more symbol, for all characters that the alphabet lacks");
  line.option("--train-size", s.train_size, "sentences made up for training, without --data", "N");
  line.option("--test-size", s.test_size, "sentences made up for the test, without --data", "N");
}

void TextTask::add_model_options(samples::CommandLine& line) {
  TextNetworkOptions& network = model_.network;
  line.choice("--model", network.model, "network, or counts of trigrams (generate)",
              network_names());
  line.option("--embedding", network.embedding, "numbers that stand for a symbol (gru, lstm)", "N");
  line.option("--hidden", network.hidden, "units of a layer; the transformer's width", "N");
  line.option("--layers", network.layers, "layers, or blocks of the transformer", "N");
  line.option("--heads", network.heads, "heads of attention (transformer)", "N");
  line.flag("--bidirectional", network.bidirectional,
            "read backwards as well (gru and lstm, to classify)");
}

void TextTask::add_options(samples::CommandLine& line, Options which, samples::Settings& settings) {
  if (which == Options::data) return add_data_options(line, settings);
  line.group("Tuning a published model on a table, or on text as above");
  add_tuning_options(line, tuning_);
  add_table_options(line, tuning_);
  line.group("Training");
  add_model_options(line);
}

}  // namespace sotto::text
