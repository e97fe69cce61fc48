// Pictures in files, PNG or JPEG, in a folder for each class.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nn/data/dataset.h"

namespace sotto {

// The form that pictures are brought to: public, and the same for each.
struct ImageOptions {
  std::int64_t height = 32;           // pixels
  std::int64_t width = 32;            // pixels
  bool grey = false;                  // one channel instead of red, green and blue
  std::int64_t max_pixels = 1 << 26;  // larger pictures are refused
};

// Reads and decodes files on all threads: [n, c, height, width] f32 in [0, 1]. Pictures are turned
// as EXIF says, resized so that they cover the form, averaging areas, and cut at its centre;
// transparent pixels are blended with white. Throws SystemFailure, with the file's name, for one
// that is missing, above max_pixels, neither PNG nor JPEG, damaged, or not read to its end.
Tensor read_images(std::span<const std::string> paths, const ImageOptions& options = {});

// Pictures, their classes and their files.
struct ImageFolder {
  Dataset data = {};                      // inputs as of read_images, targets [n] i64
  std::vector<std::string> classes = {};  // by number
  std::vector<std::string> paths = {};    // of each sample
};

// Reads the pictures in the sub-folders of a folder, at any depth; a sub-folder's name is the
// class. Classes are numbered as in `classes`, or, where that is empty, in the order of their
// names: the names and their number are taken for public. Files and folders whose names begin with
// a dot are skipped, symbolic links followed. Throws SystemFailure as read_images; and for a folder
// that is missing, a class that is empty or not in `classes`, a picture beside the sub-folders, and
// links that lead back.
ImageFolder read_image_folder(const std::string& folder, const ImageOptions& options = {},
                              const std::vector<std::string>& classes = {});

// The pictures of a folder that memory does not hold, decoded when they are asked for:
//
//   const ImageFiles files = list_image_folder("pets");
//   BatchLoader loader([&](auto rows) { return files.batch(rows); }, device);
struct ImageFiles {
  std::vector<std::string> paths = {};    // of the pictures, [n]
  Tensor targets = {};                    // [n] i64
  std::vector<std::string> classes = {};  // by number
  ImageOptions options = {};              // size and channels

  // Reads these pictures on all threads. Throws as read_images, and std::invalid_argument for a
  // number outside [0, n).
  Dataset batch(std::span<const std::int64_t> rows) const;
};

// Lists the pictures that read_image_folder() would read. Throws as it does for the folder.
ImageFiles list_image_folder(const std::string& folder, const ImageOptions& options = {},
                             const std::vector<std::string>& classes = {});

}  // namespace sotto
