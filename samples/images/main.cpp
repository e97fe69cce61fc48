// Trains on pictures with differential privacy, and uses the model; see --help.

#include <filesystem>
#include <fstream>

#include <fmt/format.h>

#include "core/io/atomic_file.h"
#include "core/threads/parallel.h"
#include "nn/data/images/encode_png.h"
#include "nn/data/images/image_folder.h"
#include "samples/cli/command_line.h"
#include "samples/cli/model_command.h"
#include "samples/cli/program.h"
#include "samples/cli/subcommands.h"
#include "samples/images/images_task.h"
#include "samples/images/results.h"
#include "samples/images/shapes.h"
#include "samples/report/predictions.h"
#include "samples/report/results.h"
#include "samples/training/program.h"

namespace sotto::images {

namespace {

namespace fs = std::filesystem;

constexpr std::size_t pictures_at_a_time = 256;

void use_threads(int threads) {
  samples::check_threads(threads);
  if (threads > 0) set_thread_count(threads);
}

void add_skip_unreadable(samples::CommandLine& line, bool& skip) {
  line.flag("--skip-unreadable", skip,
            "leave out, and name, files that cannot be read, each judged by itself alone");
}

// Writes FOLDER/CLASS/NUMBER.png for each picture, a part of them at a time.
void write_shapes(const std::string& folder, const ShapeOptions& options, std::int64_t count,
                  std::int64_t first) {
  const std::vector<std::string> classes = shape_names();
  for (const std::string& name : classes) {
    std::error_code error;
    fs::create_directories(fs::path(folder) / name, error);
    if (error) throw SystemFailure(fmt::format("--out: {}: {}", folder, error.message()));
  }
  constexpr auto at_a_time = static_cast<std::int64_t>(pictures_at_a_time);
  for (std::int64_t begin = 0; begin < count; begin += at_a_time) {
    const Dataset part = draw_shapes(options, std::min(at_a_time, count - begin), first + begin);
    for (std::int64_t k = 0; k < part.size(); ++k) {
      const auto label = static_cast<std::size_t>(part.targets.at({k}));
      const std::string path =
          fmt::format("{}/{}/{}.png", folder, classes[label], first + begin + k);
      std::ofstream file(path, std::ios::binary);
      file << encode_png(part.inputs[k]) << std::flush;
      if (!file) throw SystemFailure(fmt::format("--out: {}: cannot be written", path));
    }
  }
}

int evaluate(int argc, const char* const* argv) {
  bool skip = false;
  int threads = 0;
  auto command = samples::ModelCommand::evaluate(
      {.about = "Measures a saved model on labelled pictures.",
       .train = "sotto-images train --save",
       .data =
           "folder with a folder of files for each class, or with CIFAR's or MNIST's test files, "
           "or CIFAR's archive",
       .type = "PATH",
       .row = "picture"});
  add_skip_unreadable(command.line, skip);
  command.line.add_threads(threads);
  if (!command.parse(argc, argv)) return 0;
  use_threads(threads);
  const SavedImageModel saved = load_model(command.model);
  const Dataset pictures =
      read_pictures({command.data, Part::test, skip}, saved.options.shape, saved.classes).data;
  TrainingReport report;
  samples::describe_classes(logits_of(saved, pictures.inputs), pictures.targets, saved.classes,
                            report);
  command.tell_results(report, pictures.size());
  return 0;
}

int predict(int argc, const char* const* argv) {
  std::string model, out;
  std::vector<std::string> data;
  bool skip = false;
  int threads = 0;
  samples::CommandLine line("Predicts the class of each picture, in constant memory.");
  line.group("Options");
  line.option("--model", model, "model that `sotto-images train --save` wrote", "FILE");
  line.option("--data", data, "PNG or JPEG files, and folders of them", "PATH");
  line.option("--out", out, "write predictions here as CSV, a line for each picture", "FILE");
  add_skip_unreadable(line, skip);
  line.add_threads(threads);
  if (!line.parse(argc, argv)) return 0;
  samples::require_given("--model", model);
  check(!data.empty(), "--data: is required");
  samples::require_given("--out", out);
  samples::check_writable("--out", out);
  use_threads(threads);
  const SavedImageModel saved = load_model(model);
  const PictureShape& shape = saved.options.shape;
  const ImageOptions form{.height = shape.size, .width = shape.size, .grey = shape.channels == 1};
  const std::vector<std::string> paths = picture_paths(data);
  std::vector<std::string> unreadable;
  write_file_atomically(out, [&](FileWriter& writer) {
    writer.write(samples::prediction_header("file,class", saved.classes));
    for (std::size_t k = 0; k < paths.size(); k += pictures_at_a_time) {
      const auto part = std::span(paths).subspan(k, std::min(pictures_at_a_time, paths.size() - k));
      const ReadableImages read = read_readable_images(part, form);
      unreadable.insert(unreadable.end(), read.unreadable.begin(), read.unreadable.end());
      if (read.rows.empty()) continue;
      const auto name = [&](std::size_t row) {
        return samples::csv_field(part[static_cast<std::size_t>(read.rows[row])]) + ",";
      };
      writer.write(samples::prediction_lines(logits_of(saved, read.images), saved.classes, name));
    }
    if (!unreadable.empty() && (!skip || unreadable.size() == paths.size()))
      throw SystemFailure(unreadable_text(unreadable, paths.size()));
  });
  print_left_out(unreadable, paths.size());
  samples::print("{} predictions in {}\n", paths.size() - unreadable.size(), out);
  return 0;
}

int export_command(int argc, const char* const* argv) {
  const auto command = samples::parse_export("sotto-images train",
                                             "config.json, preprocessor_config.json and "
                                             "model.safetensors",
                                             argc, argv);
  if (command) export_model(*command);
  return 0;
}

int shapes(int argc, const char* const* argv) {
  std::string out;
  std::int64_t count = 1000, first = 0;
  ShapeOptions options;
  samples::CommandLine line(
      "Writes pictures of shapes that the program draws: PNG files in a folder for each class.");
  line.group("Options");
  line.option("--out", out, "new folder", "DIR");
  line.option("--count", count, "number of pictures", "N");
  line.option("--first", first, "number of the first one in an endless set", "N");
  line.option("--size", options.size, "side in pixels", "N");
  line.flag("--grey", options.grey, "without colours");
  line.add_seed(options.seed, "the set");
  if (!line.parse(argc, argv)) return 0;
  samples::require_given("--out", out);
  constexpr std::int64_t most = 1 << 20, most_pixels = 512;
  samples::require(count >= 1 && count <= most, "--count", count, "from 1 to 2^20");
  samples::require(first >= 0 && first <= most, "--first", first, "from 0 to 2^20");
  samples::require(options.size >= 8 && options.size <= most_pixels, "--size", options.size,
                   fmt::format("from 8 to {}", most_pixels));
  check(!fs::exists(out), "--out: {} exists already: give another name", out);
  write_shapes(out, options, count, first);
  samples::print("{} pictures in {}\n", count, out);
  return 0;
}

}  // namespace

}  // namespace sotto::images

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
      {{"train", "trains a model; without --data, on shapes drawn by the program",
        sotto::samples::train_command<ImagesTask>},
       {"evaluate", "measures a model on labelled pictures", evaluate},
       {"predict", "predicts the classes of pictures", predict},
       {"export", "writes a tuned model for other software", export_command},
       {"shapes", "writes pictures of shapes, as folders to train on", shapes}},
      argc, argv);
}
