#include "samples/mnist/digits_task.h"

#include "autograd/ops.h"
#include "core/threads/parallel.h"
#include "nn/data/digits.h"
#include "nn/data/idx.h"
#include "nn/predict.h"
#include "samples/cli/program.h"
#include "samples/models/models.h"

namespace sotto::mnist {

namespace {

using samples::require;
using samples::Settings;

// Mean and standard deviation of MNIST's training pixels, as published.
constexpr float pixel_mean = 0.1307F;
constexpr float pixel_deviation = 0.3081F;
constexpr std::int64_t pixel_grain = 1 << 16;

void normalize(const Tensor& images) {
  auto* const pixels = images.data<float>();
  parallel_for(images.numel(), pixel_grain, [pixels](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k)
      pixels[k] = (pixels[k] - pixel_mean) / pixel_deviation;
  });
}

// The common settings, found by hand on real MNIST (docs/explanation/performance.md).
Settings private_settings(double epsilon, double epochs) {
  return {.epsilon = epsilon,
          .delta = 1e-5,
          .clip_bound = 0.1,
          .epochs = epochs,
          .batch = 1024,
          .learning_rate = 1.2,
          .momentum = 0.9,
          .warmup = 20,
          .average = 0.99};
}

// More steps on larger batches: each has less noise, and averages are longer.
Settings long_settings() {
  Settings settings = private_settings(2.93, 100);
  settings.batch = 2048;
  settings.learning_rate = 1.5;
  settings.average = 0.9975;
  return settings;
}

}  // namespace

samples::TaskFacts DigitsTask::facts() {
  const std::map<std::string, nlohmann::json> normalized = {{"normalize", true}};
  return {
      .program = "mnist",
      .description =
          "Trains a small convolutional network to read digits, with differential privacy.",
      .title = "A model of digits with 26,010 weights",
      .presets =
          {
              // Above 98.1 % on real MNIST at epsilon 2.93.
              {"eps3", long_settings(), normalized},
              // About 97 % on real MNIST at epsilon 1.16.
              {"eps1", private_settings(1.16, 15), normalized},
              // A good model within a minute.
              {"quick", private_settings(3, 12), normalized},
          },
      .settings = {{"activation", &activation_},
                   {"data from files", &from_files_},
                   {"normalize", &normalize_}},
      .source = source_,
  };
}

void DigitsTask::prepare(Settings& s) {
  auto* const files = std::get_if<samples::Files>(&source_);
  from_files_ = files != nullptr;
  require(s.memory.checkpoint.value_or(0) == 0, "--checkpoint-activations",
          s.memory.checkpoint.value_or(0),
          "auto or none: the network is not a Sequential whose modules could be recomputed");
  if (files) {
    files->test = files->train;  // the folder has both
    return;
  }
  samples::check_fits("--train-size, --test-size",
                      bytes_of_digit * static_cast<double>(s.train_size + s.test_size));
}

samples::Data DigitsTask::load(const Settings& settings) {
  samples::Data data;
  if (const samples::Files* const files = samples::files_of(source_)) {
    data.train = read_mnist(files->train, true, settings.train_size);
    data.test = read_mnist(files->test, false, settings.test_size);
  } else {
    // Both sets are parts of one endless set; the test set is the first part, so that it does not
    // depend on the size of the training set.
    data.test = make_digits(settings.test_size, settings.seed);
    data.train = make_digits(settings.train_size, settings.seed, settings.test_size);
  }
  if (normalize_) {
    normalize(data.train.inputs);
    normalize(data.test.inputs);
  }
  return data;
}

samples::TaskModel DigitsTask::make_model(const samples::Data& /*data*/,
                                          const Settings& /*settings*/) {
  return {std::make_unique<models::MnistNetwork>(activation_)};
}

}  // namespace sotto::mnist
