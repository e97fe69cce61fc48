#include "samples/images/picture_data.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include <sotto/core/error.h>
#include <sotto/nn/data/idx.h>
#include <sotto/nn/data/images/cifar.h>
#include <sotto/nn/data/images/image_folder.h>

namespace sotto::images {

namespace {

namespace fs = std::filesystem;

bool has_any(const fs::path& folder, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) {
    return fs::is_regular_file(folder / name) ||
           fs::is_regular_file(folder / (std::string(name) + ".gz"));
  });
}

std::vector<std::string> classes_of(PictureFiles kind) {
  if (kind == PictureFiles::cifar10)
    return {"airplane", "automobile", "bird",  "cat",  "deer",
            "dog",      "frog",       "horse", "ship", "truck"};
  constexpr int fine_labels = 100, digits = 10;
  std::vector<std::string> numbers;
  for (int k = 0; k < (kind == PictureFiles::cifar100 ? fine_labels : digits); ++k)
    numbers.push_back(std::to_string(k));
  return numbers;
}

Dataset read_files(PictureFiles kind, const std::string& folder, bool train) {
  if (kind == PictureFiles::mnist) return read_mnist(folder, train);
  Dataset data =
      kind == PictureFiles::cifar10 ? read_cifar10(folder, train) : read_cifar100(folder, train);
  data.fields.clear();  // CIFAR-100's coarse labels
  return data;
}

// The files below a folder.
std::vector<std::string> files_below(const std::string& folder) {
  std::vector<std::string> files;
  const auto options = fs::directory_options::follow_directory_symlink;
  for (fs::recursive_directory_iterator at(folder, options), end; at != end; ++at) {
    const bool hidden = at->path().filename().string().starts_with('.');
    if (hidden && at->is_directory()) at.disable_recursion_pending();
    if (!hidden && !at->is_directory()) files.push_back(at->path().string());
  }
  std::sort(files.begin(), files.end());
  if (files.empty()) throw SystemFailure(fmt::format("{}: no files in this folder", folder));
  return files;
}

}  // namespace

PictureFiles kind_of(const std::string& folder) {
  if (fs::is_regular_file(folder)) {
    const auto kind = kind_of_cifar_archive(folder);
    if (!kind)
      throw SystemFailure(fmt::format(
          "{}: an archive without CIFAR's files (the binary version is needed)", folder));
    return *kind == CifarKind::cifar10 ? PictureFiles::cifar10 : PictureFiles::cifar100;
  }
  if (!fs::is_directory(folder)) throw SystemFailure(fmt::format("{}: no such folder", folder));
  if (has_any(folder, {"data_batch_1.bin", "test_batch.bin"})) return PictureFiles::cifar10;
  if (has_any(folder, {"train.bin", "test.bin"})) return PictureFiles::cifar100;
  if (has_any(folder, {"train-images-idx3-ubyte", "train-images.idx3-ubyte",
                       "t10k-images-idx3-ubyte", "t10k-images.idx3-ubyte"}))
    return PictureFiles::mnist;
  return PictureFiles::folders;
}

PictureShape shape_of(PictureFiles kind) {
  if (kind == PictureFiles::mnist) return {.size = 28, .channels = 1};
  return {};
}

LabelledPictures read_pictures(const std::string& folder, Part part, const PictureShape& shape,
                               const std::vector<std::string>& classes) {
  const PictureFiles kind = kind_of(folder);
  if (kind == PictureFiles::folders) {
    const ImageOptions form{.height = shape.size, .width = shape.size, .grey = shape.channels == 1};
    ImageFolder read = read_image_folder(folder, form, classes);
    return {std::move(read.data), std::move(read.classes)};
  }
  const PictureShape own = shape_of(kind);
  check(shape == own, "{}: its pictures have {} x {} pixels and {} channels, not {} x {} and {}",
        folder, own.size, own.size, own.channels, shape.size, shape.size, shape.channels);
  const std::vector<std::string> own_classes = classes_of(kind);
  check(classes.empty() || classes == own_classes,
        "{}: its {} classes, {} to {}, are not the {} of the model or of --data", folder,
        own_classes.size(), own_classes.front(), own_classes.back(), classes.size());
  return {read_files(kind, folder, part == Part::train), own_classes};
}

std::vector<std::string> picture_paths(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!fs::exists(path)) throw SystemFailure(fmt::format("{}: no such file or folder", path));
    if (!fs::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    const std::vector<std::string> below = files_below(path);
    files.insert(files.end(), below.begin(), below.end());
  }
  return files;
}

}  // namespace sotto::images
