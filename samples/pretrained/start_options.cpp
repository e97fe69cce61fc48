// The options of a program that starts from a published model: apart, since they need the library
// for command lines.
#include "samples/cli/command_line.h"
#include "samples/pretrained/start.h"

namespace sotto::samples {

void add_start_options(CommandLine& line, Start& start) {
  line.option("--init", start.init,
              "start from this published model: a folder with config.json and weights, or a file "
              "(safetensors, .pth, .bin, .gguf)",
              "PATH");
  line.option("--architecture", start.architecture,
              "the model's architecture, of files that do not say it: resnet50, efficientnet_lite0",
              "NAME");
  line.option("--tune", start.tune, std::string("what is trained: ") + nn::tuning_texts, "WORDS");
  line.option("--head-bound", start.head_bound,
              "clip the new head as a group of its own, by this bound; 0: with the rest", "X");
  line.option("--head-lr", start.head_rate, "learning rate of the head; 0: that of the rest", "X");
}

}  // namespace sotto::samples
