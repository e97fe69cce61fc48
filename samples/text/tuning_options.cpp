// The options of `text train --init`: apart, since they need the library for command lines.
#include "samples/cli/command_line.h"
#include "samples/text/tuning_task.h"

namespace sotto::text {

void TuningTask::add_options(samples::CommandLine& line, Options which,
                             samples::Settings& /*settings*/) {
  if (which == Options::model) {
    samples::add_start_options(line, text_.start);
    line.option("--tokenizer", text_.tokenizer, "folder or file, if it is not that of --init",
                "PATH");
    line.choice("--pooling", text_.pooling,
                "vector of a text that the classifier takes: the mean over its tokens, or over "
                "those that a trained vector attends to; empty: the model's own",
                {"", "mean", "attention"});
    line.option("--dropout", text_.dropout, "in place of the model's own rates", "X");
    line.option("--blocks", text_.blocks, "the model's first so many blocks alone; 0: all", "N");
    return;
  }
  line.option("--data", files_.train,
              "training text, plain or gzipped: a table (.tsv, .csv); to classify, a folder with a "
              "file or sub-folder for each class; to write, a file or folder",
              "PATH");
  line.option("--test", files_.test,
              "test text, likewise; otherwise a part of --data is kept for it", "PATH");
  line.option("--test-fraction", test_fraction_, "that part: a fraction of the units", "X");
  line.choice("--unit", text_.unit, "the text that privacy hides as a whole",
              {"row", "user", "line", "paragraph", "file"});
  line.option("--text-column", text_.columns.text, "a table's column of texts", "NAME");
  line.option("--prompt-column", text_.columns.prompt,
              "column of what stands before each text: read, and not learned", "NAME");
  line.option("--label-column", text_.columns.label, "column of classes, whose names are public",
              "NAME");
  line.option("--user-column", text_.columns.user, "column that tells whose a row is", "NAME");
  line.option("--context", text_.context, "tokens of a row", "N");
  line.choice("--long-texts", text_.long_texts,
              "texts longer than that: cut, or split into several rows of one unit",
              {"cut", "split"});
}

}  // namespace sotto::text
