#include "samples/images/commands.h"

#include <nlohmann/json.hpp>

#include <sotto/core/io/atomic_file.h>
#include <sotto/core/threads/parallel.h>
#include <sotto/nn/data/images/image_folder.h>
#include "samples/cli/command_line.h"
#include "samples/cli/program.h"
#include "samples/images/results.h"
#include "samples/report/charts.h"
#include "samples/report/results.h"

namespace sotto::images {

namespace {

constexpr std::size_t pictures_at_a_time = 256;

void use_threads(int threads) {
  samples::check_threads(threads);
  if (threads > 0) set_thread_count(threads);
}

}  // namespace

int evaluate(int argc, const char* const* argv) {
  std::string model, data, json;
  int threads = 0;
  samples::CommandLine line("Measures a saved model on labelled pictures.");
  line.group("Options");
  line.option("--model", model, "model that `images train --save` wrote", "FILE");
  line.option(
      "--data", data,
      "folder with a folder of files for each class, or with CIFAR's or MNIST's test files, "
      "or CIFAR's archive",
      "PATH");
  line.option("--json", json, "write the results as JSON", "FILE");
  line.add_threads(threads);
  if (!line.parse(argc, argv)) return 0;
  samples::require_given("--model", model);
  samples::require_given("--data", data);
  samples::check_writable("--json", json);
  use_threads(threads);
  const SavedModel saved = load_model(model);
  const Dataset pictures = read_pictures(data, Part::test, saved.options.shape, saved.classes).data;
  TrainingReport report;
  samples::describe_classes(logits_of(saved, pictures.inputs), pictures.targets, saved.classes,
                            report);
  samples::print("{} pictures\n", pictures.size());
  samples::print_results(report, "pictures");
  if (!json.empty()) samples::write_text({json, samples::json_text(samples::results_json(report))});
  return 0;
}

int predict(int argc, const char* const* argv) {
  std::string model, out;
  std::vector<std::string> data;
  int threads = 0;
  samples::CommandLine line("Predicts the class of each picture, in constant memory.");
  line.group("Options");
  line.option("--model", model, "model that `images train --save` wrote", "FILE");
  line.option("--data", data, "PNG or JPEG files, and folders of them", "PATH");
  line.option("--out", out, "write predictions here as CSV, a line for each picture", "FILE");
  line.add_threads(threads);
  if (!line.parse(argc, argv)) return 0;
  samples::require_given("--model", model);
  check(!data.empty(), "--data: is required");
  samples::require_given("--out", out);
  samples::check_writable("--out", out);
  use_threads(threads);
  const SavedModel saved = load_model(model);
  const PictureShape& shape = saved.options.shape;
  const ImageOptions form{.height = shape.size, .width = shape.size, .grey = shape.channels == 1};
  const std::vector<std::string> paths = picture_paths(data);
  write_file_atomically(out, [&](FileWriter& writer) {
    writer.write(prediction_header(saved.classes));
    for (std::size_t k = 0; k < paths.size(); k += pictures_at_a_time) {
      const auto part = std::span(paths).subspan(k, std::min(pictures_at_a_time, paths.size() - k));
      const Tensor logits = logits_of(saved, read_images(part, form));
      writer.write(prediction_lines(part, logits, saved.classes));
    }
  });
  samples::print("{} predictions in {}\n", paths.size(), out);
  return 0;
}

}  // namespace sotto::images
