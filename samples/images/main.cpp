// Trains on pictures with differential privacy, and uses the model; see --help.

#include "samples/cli/subcommands.h"
#include "samples/images/commands.h"
#include "samples/images/images_task.h"
#include "samples/training/program.h"

namespace {

int train(int argc, const char* const* argv) {
  sotto::images::ImagesTask task;
  return sotto::samples::train_program(task, argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace sotto::images;
  return sotto::samples::run_subcommand(
      {.name = "images",
       .about = "Learns to tell pictures apart with differential privacy.",
       .examples =
           R"(    sotto-images train --data photos --preset scattering --epsilon 3 --save photos.safetensors --report photos.html
    sotto-images evaluate --model photos.safetensors --data more_photos
    sotto-images predict --model photos.safetensors --data holiday.jpg new_photos --out predictions.csv
)"},
      {{"train", "trains a model; without --data, on shapes drawn by the program", train},
       {"evaluate", "measures a model on labelled pictures", evaluate},
       {"predict", "predicts the classes of pictures", predict},
       {"shapes", "writes pictures of shapes, as folders to train on", shapes}},
      argc, argv);
}
