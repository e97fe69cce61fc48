// Pictures in files, PNG or JPEG, in a folder for each class.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "nn/data/dataset.h"

namespace sotto {

// The size and the channels that all pictures are converted to; they must be public.
struct ImageOptions {
  std::int64_t height = 32;           // pixels
  std::int64_t width = 32;            // pixels
  bool grey = false;                  // one channel instead of red, green and blue
  std::int64_t max_pixels = 1 << 26;  // larger pictures are refused
  // read_image_folder() leaves out files that cannot be read. Each is judged by itself alone, so
  // that no picture depends on another one.
  bool skip_unreadable = false;
};

// Reads and decodes files on all threads: [n, c, height, width] f32 in [0, 1]. Pictures are turned
// as EXIF says, resized so that they cover the form, averaging areas, and cut at its centre;
// transparent pixels are blended with white, and CMYK becomes colours. Throws SystemFailure that
// names all files, the first 20 of many, that are missing, above max_pixels, neither PNG nor JPEG,
// or damaged: that end before their end marker, or have data that cannot be decoded.
Tensor read_images(std::span<const std::string> paths, const ImageOptions& options = {});

// The pictures that could be read, and the errors of the rest.
struct ReadableImages {
  Tensor images = {};                        // [n, c, height, width] f32 in [0, 1]
  std::vector<std::int64_t> rows = {};       // the number of each one's path, [n]
  std::vector<std::string> unreadable = {};  // a line for each other file, with its name
};
// Reads as read_images() does, but for the files that it would refuse.
ReadableImages read_readable_images(std::span<const std::string> paths,
                                    const ImageOptions& options = {});
// One line about the files, in the order of their paths, for messages: "2 of 9 files cannot be
// read: ...; ...". Of more than 20 it names the first.
std::string unreadable_text(const std::vector<std::string>& unreadable, std::size_t files);

struct ImageFolder {
  Dataset data = {};                      // inputs as of read_images, targets [n] i64
  std::vector<std::string> classes = {};  // by number
  std::vector<std::string> paths = {};    // of each sample
  // With ImageOptions::skip_unreadable, a line for each file that was left out.
  std::vector<std::string> unreadable = {};
};

// Reads the pictures in the sub-folders of a folder, at any depth; a sub-folder's name is the
// class. Classes are numbered as in `classes`, or by the order of their names if that is empty. The
// names and the number of classes must be public. Skips names that begin with a dot, files that
// systems leave (Thumbs.db, desktop.ini, __MACOSX), and files with endings of no picture, such as
// .txt. Follows symbolic links. Throws SystemFailure as read_images; and for a folder that is
// missing, a class that is empty or not in `classes`, a picture beside the sub-folders, and links
// that lead back.
ImageFolder read_image_folder(const std::string& folder, const ImageOptions& options = {},
                              const std::vector<std::string>& classes = {});

// The pictures of a folder that is larger than memory, decoded batch by batch:
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

// Lists the pictures that read_image_folder() would read. Throws as it does for the folder, and
// std::invalid_argument with skip_unreadable: which files those are is not known before.
ImageFiles list_image_folder(const std::string& folder, const ImageOptions& options = {},
                             const std::vector<std::string>& classes = {});

// Lists the pictures in a folder, at any depth, by name, without classes. Skips and throws as
// read_image_folder() does, and for a folder without pictures.
std::vector<std::string> list_images(const std::string& folder);

}  // namespace sotto
