// The options of `images train`: apart, since they need the library for command lines.
#include "samples/cli/command_line.h"
#include "samples/images/images_task.h"

namespace sotto::images {

void ImagesTask::add_data_options(samples::CommandLine& line, samples::Settings& s) {
  using samples::Files;
  samples::add_files_option(
      line, "--data", source_, &Files::train,
      "folder with a folder of PNG or JPEG files for each class, with CIFAR's binary files, "
      "or with MNIST's IDX files; or CIFAR's cifar-10-binary.tar.gz as downloaded",
      "PATH");
  samples::add_files_option(
      line, "--test", source_, &Files::test,
      "the same of test pictures; otherwise CIFAR's or MNIST's own, or a part of --data", "PATH");
  line.option("--test-fraction", test_fraction_, "that part: a fraction of the pictures", "X");
  line.flag("--skip-unreadable", skip_unreadable_,
            "leave out, and name, files that cannot be read, each judged by itself alone");
  line.option(
      "--cache", cache_,
      "compute what is not trained once, scattering's features or the values in front of the "
      "first block that --tune trains, and keep it in this file: as PRIVATE as the pictures",
      "FILE");
  line.option("--size", size_,
              "side of the square that files are resized and cut to; 0: 32. With --init, side of "
              "all pictures for the model, whose positions are interpolated; 0: its own",
              "N");
  line.flag("--grey", grey_, "files as grey pictures");
  line.option("--train-size", s.train_size, "shapes drawn for training, without --data", "N");
  line.option("--test-size", s.test_size, "shapes drawn for the test, without --data", "N");
}

void ImagesTask::add_model_options(samples::CommandLine& line) {
  line.choice("--model", network_.model,
              "network; scattering is linear on fixed features, scattering-cnn convolutional",
              network_names());
  samples::add_start_options(line, network_.start);
  line.choice("--batch-norms", network_.norms,
              "what its batch norms become: the affine maps of their statistics, those within the "
              "convolutions, or new group norms",
              stored_norm_names());
  line.option("--layers", network_.layers,
              "train a new classifier on the inputs of these layers, averaged over positions and "
              "standardised by statistics released with noise, a part of --epsilon, in place of "
              "the model's own: a regular expression",
              "PATTERN");
  for (const char* other : {"--no-privacy", "--compare"}) line.conflict(other, "--layers");
  line.option("--groups", network_.features.groups,
              "groups of channels in which a picture's features are normalised; 0: by constants",
              "N");
  line.flag("--mirror", network_.features.mirror,
            "a picture and its mirror image are the same to scattering");
  line.flag("--standardize", network_.standardize,
            "standardise scattering's channels by means and deviations of the training pictures, "
            "released with noise: a part of --epsilon");
  for (const char* other : {"--no-privacy", "--compare"}) line.conflict(other, "--standardize");
  line.option(
      "--views", views_,
      "random views of each picture in a step, whose mean gradient is clipped as one: they cost no "
      "privacy; 0: the pictures as they are",
      "K");
  line.option("--shift", augmentation_.shift, "views are moved by up to so many pixels", "N");
  line.flag("--flip", augmentation_.flip, "half of the views are mirror images");
  line.option("--jitter", augmentation_.brightness,
              "brightness, contrast and saturation of views vary by up to this factor", "X");
  line.option("--cutout", augmentation_.cutout, "views lack a square of this side", "N");
  line.option("--mixup", augmentation_.mixup,
              "mix each view with another one of its picture, by shares from Beta(X, X)", "X");
}

void ImagesTask::add_options(samples::CommandLine& line, Options which,
                             samples::Settings& settings) {
  which == Options::data ? add_data_options(line, settings) : add_model_options(line);
}

}  // namespace sotto::images
