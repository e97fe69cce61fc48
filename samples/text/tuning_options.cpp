// The options of `text train --init`: apart, since they need the library for command lines.
#include "samples/text/tuning_options.h"

#include "samples/cli/command_line.h"
#include "samples/text/tuning_task.h"

namespace sotto::text {

void add_tuning_options(samples::CommandLine& line, TunedText& text) {
  samples::add_start_options(line, text.start);
  line.option("--tokenizer", text.tokenizer, "folder or file, if it is not that of --init", "PATH");
  line.choice("--pooling", text.pooling,
              "vector of a text that the classifier takes: the mean over its tokens, or over "
              "those that a trained vector attends to; empty: the model's own",
              {"", "mean", "attention"});
  line.option("--dropout", text.dropout, "in place of the model's own rates", "X");
  line.option("--blocks", text.blocks, "the model's first so many blocks alone; 0: all", "N");
}

void add_table_options(samples::CommandLine& line, TunedText& text) {
  line.option("--text-column", text.columns.text, "a table's column of texts", "NAME");
  line.option("--prompt-column", text.columns.prompt,
              "column of what stands before each text: read, and not learned", "NAME");
  line.option("--label-column", text.columns.label, "column of classes, whose names are public",
              "NAME");
  line.option("--user-column", text.columns.user,
              "column that tells whose a row is, for --unit user", "NAME");
  line.choice("--long-texts", text.long_texts,
              "texts longer than --context: cut, or split into several rows of one unit",
              {"cut", "split"});
}

std::vector<const char*> tuning_option_names() {
  return {"--init",         "--architecture",  "--tune",        "--head-bound", "--head-lr",
          "--tokenizer",    "--pooling",       "--dropout",     "--blocks",     "--text-column",
          "--label-column", "--prompt-column", "--user-column", "--long-texts"};
}

void TuningTask::add_options(samples::CommandLine& line, Options which,
                             samples::Settings& /*settings*/) {
  if (which == Options::model) return add_tuning_options(line, text_);
  line.option("--data", files_.train,
              "training text, plain or gzipped: a table (.tsv, .csv); to classify, a folder with a "
              "file or sub-folder for each class; to write, a file or folder",
              "PATH");
  line.option("--test", files_.test,
              "test text, likewise; otherwise a part of --data is kept for it", "PATH");
  line.option("--test-fraction", test_fraction_, "that part: a fraction of the units", "X");
  line.choice("--unit", text_.unit, "the text that privacy hides as a whole",
              {"row", "user", "line", "paragraph", "file"});
  line.option("--context", text_.context, "tokens of a row", "N");
  add_table_options(line, text_);
}

}  // namespace sotto::text
