#include "nn/data/images/image_folder.h"

#include "core/error.h"
#include "core/threads/parallel.h"
#include "nn/data/class_files.h"
#include "nn/data/images/picture.h"
#include "nn/data/images/resize.h"
#include "nn/data/input_file.h"

namespace sotto {

namespace {

constexpr std::size_t max_file_bytes = std::size_t{1} << 28;

}  // namespace

Tensor read_images(std::span<const std::string> paths, const ImageOptions& options) {
  check(options.height >= 1 && options.width >= 1, "read_images: pictures of {} x {} pixels",
        options.height, options.width);
  check(options.max_pixels >= 1, "read_images: pictures of at most {} pixels", options.max_pixels);
  const std::int64_t n = std::ssize(paths), c = options.grey ? 1 : 3;
  Tensor images = Tensor::empty({n, c, options.height, options.width});
  float* const to = images.data<float>();
  parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      const std::string& path = paths[static_cast<std::size_t>(k)];
      const Picture picture =
          decode_picture(read_bytes(path, max_file_bytes), path, options.max_pixels);
      fit_picture(picture, c, options.height, options.width,
                  to + k * c * options.height * options.width);
    }
  });
  return images;
}

Dataset ImageFiles::batch(std::span<const std::int64_t> rows) const {
  std::vector<std::string> chosen;
  std::vector<std::int64_t> labels;
  for (const std::int64_t row : rows) {
    check(row >= 0 && row < std::ssize(paths), "batch: row {} of {} pictures", row, paths.size());
    chosen.push_back(paths[static_cast<std::size_t>(row)]);
    labels.push_back(targets.data<std::int64_t>()[row]);
  }
  return {.inputs = read_images(chosen, options),
          .targets = Tensor::from(labels, {std::ssize(labels)})};
}

ImageFiles list_image_folder(const std::string& folder, const ImageOptions& options,
                             const std::vector<std::string>& classes) {
  ClassFiles files = list_class_files(folder, classes, /*text=*/false);
  return {.paths = std::move(files.paths),
          .targets = Tensor::from(files.labels, {std::ssize(files.labels)}),
          .classes = std::move(files.classes),
          .options = options};
}

ImageFolder read_image_folder(const std::string& folder, const ImageOptions& options,
                              const std::vector<std::string>& classes) {
  ClassFiles files = list_class_files(folder, classes, /*text=*/false);
  const std::int64_t n = std::ssize(files.paths);
  return {.data = {read_images(files.paths, options), Tensor::from(files.labels, {n})},
          .classes = std::move(files.classes),
          .paths = std::move(files.paths)};
}

}  // namespace sotto
