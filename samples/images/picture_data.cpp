#include "samples/images/picture_data.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "core/error.h"
#include "core/io/utf8.h"
#include "nn/data/idx.h"
#include "nn/data/images/cifar.h"
#include "nn/data/images/image_folder.h"
#include "samples/cli/program.h"

namespace sotto::images {

namespace {

namespace fs = std::filesystem;

bool has_any(const fs::path& folder, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) {
    std::error_code none;
    return fs::is_regular_file(folder / name, none) ||
           fs::is_regular_file(folder / (std::string(name) + ".gz"), none);
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

// What lies at a path. Throws SystemFailure where that cannot be told, as in a loop of links.
fs::file_type type_of(const std::string& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::none)
    throw SystemFailure(fmt::format("{}: {}", path, error.message()));
  return type;
}

}  // namespace

PictureFiles kind_of(const std::string& folder) {
  const fs::file_type type = type_of(folder);
  if (type == fs::file_type::regular) {
    const auto kind = kind_of_cifar_archive(folder);
    if (!kind)
      throw SystemFailure(fmt::format(
          "{}: an archive without CIFAR's files (the binary version is needed)", folder));
    return *kind == CifarKind::cifar10 ? PictureFiles::cifar10 : PictureFiles::cifar100;
  }
  if (type != fs::file_type::directory)
    throw SystemFailure(fmt::format("{}: no such folder", folder));
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

LabelledPictures read_pictures(const PictureSource& source, const PictureShape& shape,
                               const std::vector<std::string>& classes) {
  const std::string& folder = source.path;
  const PictureFiles kind = kind_of(folder);
  if (kind == PictureFiles::folders) {
    ImageFolder read = read_image_folder(folder,
                                         {.height = shape.size,
                                          .width = shape.size,
                                          .grey = shape.channels == 1,
                                          .skip_unreadable = source.skip_unreadable},
                                         classes);
    print_left_out(read.unreadable, read.paths.size() + read.unreadable.size());
    return {std::move(read.data), std::move(read.classes)};
  }
  check(!source.skip_unreadable, "--skip-unreadable: {} is not a folder of PNG and JPEG files",
        folder);
  const PictureShape own = shape_of(kind);
  check(shape == own, "{}: its pictures have {} x {} pixels and {} channels, not {} x {} and {}",
        folder, own.size, own.size, own.channels, shape.size, shape.size, shape.channels);
  const std::vector<std::string> own_classes = classes_of(kind);
  check(classes.empty() || classes == own_classes,
        "{}: its {} classes, {} to {}, are not the {} of the model or of --data", folder,
        own_classes.size(), own_classes.front(), own_classes.back(), classes.size());
  return {read_files(kind, folder, source.part == Part::train), own_classes};
}

std::vector<std::string> picture_paths(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    const fs::file_type type = type_of(path);
    if (type == fs::file_type::not_found)
      throw SystemFailure(fmt::format("{}: no such file or folder", path));
    if (type != fs::file_type::directory) {
      files.push_back(path);
      continue;
    }
    const std::vector<std::string> below = list_images(path);
    files.insert(files.end(), below.begin(), below.end());
  }
  return files;
}

void print_left_out(const std::vector<std::string>& unreadable, std::size_t files) {
  if (unreadable.empty()) return;
  samples::print("left out: {}\n", printable(unreadable_text(unreadable, files)));
}

}  // namespace sotto::images
