// The options of the sample reweight: apart, since they need the library for command lines.
#include "samples/cli/command_line.h"
#include "samples/reweight/networks.h"
#include "samples/reweight/reweight_task.h"
#include "samples/reweight/row_noise.h"

namespace sotto::reweight {

void ReweightTask::add_data_options(samples::CommandLine& line, samples::Settings& s) {
  samples::add_files_option(
      line, "--data", source_, &samples::Files::train,
      "folder with MNIST's or CIFAR's files; otherwise digits drawn by the program", "PATH");
  line.option("--train-size", s.train_size, "private rows, at most, before --imbalance", "N");
  line.option("--test-size", s.test_size, "test rows, at most", "N");
  line.option("--clean", clean_,
              "clean rows that are PUBLIC: taken out of the training data, "
              "as many of each class",
              "N");
  line.option("--clean-data", clean_folder_, "take them from these files instead", "PATH");
  line.option("--wrong-labels", wrong_labels_, "make this fraction of the private labels wrong",
              "X");
  line.choice("--wrong", wrong_, "the next class, or another one at random",
              {wrong_next, wrong_random});
  line.option("--imbalance", imbalance_,
              "keep so many times fewer rows of the rarest class than of the most frequent", "X");
}

void ReweightTask::add_model_options(samples::CommandLine& line) {
  line.choice("--method", method_,
              "weights of rows: all 1, 1 or 0 by a gate, or a second network's; clean-only trains "
              "on nothing but the clean rows",
              method_names());
  line.choice("--model", network_.model, "network", classifier_names());
  line.flag("--mirror", network_.features.mirror,
            "a picture and its mirror image are the same to scattering");
  line.option("--clean-batch", clean_batch_, "clean rows in a step", "N");
  line.choice("--weigher-sees", weigher_sees_, "what the second network makes weights of",
              {"loss", "loss-and-label"});
  line.option("--weigher-clip-bound", weigher_bound_,
              "clip bound of the second network, as a part of --clip-bound: both share the noise",
              "X");
  line.option("--weigher-lr", weigher_rate_, "learning rate of the second network", "X");
}

void ReweightTask::add_options(samples::CommandLine& line, Options which,
                               samples::Settings& settings) {
  which == Options::data ? add_data_options(line, settings) : add_model_options(line);
}

}  // namespace sotto::reweight
