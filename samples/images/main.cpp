// Trains on pictures with differential privacy, and uses the model; see --help.

#include <functional>
#include <map>
#include <string>

#include "samples/cli/program.h"
#include "samples/images/commands.h"
#include "samples/images/images_task.h"
#include "samples/training/program.h"

namespace {

using Command = std::function<int(int, const char* const*)>;

constexpr const char* help = R"(Learns to tell pictures apart with differential privacy.

images train      trains a model (without --data: on shapes drawn by the program)
images evaluate   measures a model on labelled pictures
images predict    predicts the classes of pictures

Each has a --help of its own. For example:
  images train --data photos --preset scattering --epsilon 3 --save photos.safetensors --report photos.html
  images evaluate --model photos.safetensors --data more_photos
  images predict --model photos.safetensors --data holiday.jpg new_photos --out predictions.csv
)";

int train(int argc, const char* const* argv) {
  sotto::images::ImagesTask task;
  return sotto::samples::train_program(task, argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, Command> commands = {
      {"train", train}, {"evaluate", sotto::images::evaluate}, {"predict", sotto::images::predict}};
  const std::string wanted = argc > 1 ? argv[1] : "";
  return sotto::samples::ending("images", [&] {
    if (wanted == "--help" || wanted == "-h" || wanted == "help") {
      sotto::samples::print_text(help);
      return 0;
    }
    const auto command = commands.find(wanted);
    sotto::check(command != commands.end(),
                 "{}: give train, evaluate or predict (--help says more)",
                 wanted.empty() ? "no command" : "no command is called " + wanted);
    return command->second(argc - 1, argv + 1);
  });
}
