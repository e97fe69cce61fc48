#include "nn/data/images/image_folder.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "core/join.h"
#include "core/threads/parallel.h"
#include "nn/data/class_files.h"
#include "nn/data/images/picture.h"
#include "nn/data/images/resize.h"
#include "nn/data/input_file.h"

namespace sotto {

namespace {

constexpr std::size_t max_file_bytes = std::size_t{1} << 28;

}  // namespace

ReadableImages read_readable_images(std::span<const std::string> paths,
                                    const ImageOptions& options) {
  check(options.height >= 1 && options.width >= 1, "read_images: pictures of {} x {} pixels",
        options.height, options.width);
  check(options.max_pixels >= 1, "read_images: pictures of at most {} pixels", options.max_pixels);
  const std::int64_t n = std::ssize(paths), c = options.grey ? 1 : 3;
  ReadableImages y{.images = Tensor::empty({n, c, options.height, options.width})};
  const std::int64_t values = c * options.height * options.width;
  float* const to = y.images.data<float>();
  std::vector<std::string> faults(paths.size());
  parallel_for(n, 1, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      const std::string& path = paths[static_cast<std::size_t>(k)];
      try {
        const Picture picture =
            decode_picture(read_bytes(path, max_file_bytes), path, options.max_pixels);
        fit_picture(picture, c, options.height, options.width, to + k * values);
      } catch (const SystemFailure& error) {
        faults[static_cast<std::size_t>(k)] = error.what();
      }
    }
  });
  for (std::int64_t k = 0; k < n; ++k) {
    std::string& fault = faults[static_cast<std::size_t>(k)];
    if (!fault.empty()) {
      y.unreadable.push_back(std::move(fault));
      continue;
    }
    const std::int64_t row = std::ssize(y.rows);
    if (row < k) std::copy_n(to + k * values, values, to + row * values);
    y.rows.push_back(k);
  }
  if (!y.unreadable.empty()) y.images = y.images.slice(0, 0, std::ssize(y.rows));
  return y;
}

std::string unreadable_text(const std::vector<std::string>& unreadable, std::size_t files) {
  constexpr std::size_t most = 20;
  if (unreadable.size() == 1) return unreadable.front();
  const auto named = std::span(unreadable).first(std::min(unreadable.size(), most));
  return fmt::format(
      "{} of {} files cannot be read: {}{}", unreadable.size(), files, join(named, "; "),
      unreadable.size() > most ? fmt::format("; and {} more", unreadable.size() - most) : "");
}

Tensor read_images(std::span<const std::string> paths, const ImageOptions& options) {
  const ReadableImages read = read_readable_images(paths, options);
  if (!read.unreadable.empty()) throw SystemFailure(unreadable_text(read.unreadable, paths.size()));
  return read.images;
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
  check(!options.skip_unreadable,
        "list_image_folder: which files cannot be read is not known before they are");
  ClassFiles files = list_class_files(folder, classes, /*text=*/false);
  return {.paths = std::move(files.paths),
          .targets = Tensor::from(files.labels, {std::ssize(files.labels)}),
          .classes = std::move(files.classes),
          .options = options};
}

ImageFolder read_image_folder(const std::string& folder, const ImageOptions& options,
                              const std::vector<std::string>& classes) {
  ClassFiles files = list_class_files(folder, classes, /*text=*/false);
  ReadableImages read = read_readable_images(files.paths, options);
  if (!read.unreadable.empty() && (!options.skip_unreadable || read.rows.empty()))
    throw SystemFailure(unreadable_text(read.unreadable, files.paths.size()));
  ImageFolder y{.classes = std::move(files.classes), .unreadable = std::move(read.unreadable)};
  std::vector<std::int64_t> labels;
  for (const std::int64_t row : read.rows) {
    y.paths.push_back(std::move(files.paths[static_cast<std::size_t>(row)]));
    labels.push_back(files.labels[static_cast<std::size_t>(row)]);
  }
  y.data = {.inputs = std::move(read.images),
            .targets = Tensor::from(labels, {std::ssize(labels)})};
  return y;
}

std::vector<std::string> list_images(const std::string& folder) {
  return list_picture_files(folder);
}

}  // namespace sotto
