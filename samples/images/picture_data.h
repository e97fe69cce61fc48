// Labelled pictures in the forms that people have them: a folder of PNG and JPEG files for each
// class, CIFAR's files or the archive of them, or MNIST's files.
#pragma once

#include <string>
#include <vector>

#include "nn/data/dataset.h"

namespace sotto::images {

enum class PictureFiles { folders, cifar10, cifar100, mnist };
// Recognizes the form by the files that lie in the folder or the archive. Throws SystemFailure for
// a folder that is missing, and a file that is no archive of CIFAR's.
PictureFiles kind_of(const std::string& folder);
// Side and channels of the pictures of CIFAR or MNIST.
struct PictureShape {
  std::int64_t size = 32, channels = 3;
  bool operator==(const PictureShape&) const = default;
};
PictureShape shape_of(PictureFiles kind);

enum class Part { train, test };
struct PictureSource {
  std::string path;              // a folder or CIFAR's archive
  Part part = Part::train;       // of CIFAR and MNIST
  bool skip_unreadable = false;  // prints what was left out
};
struct LabelledPictures {
  Dataset data;                      // [n, c, size, size] in [0, 1], labels [n]
  std::vector<std::string> classes;  // by number; those given, if any
};
// Reads all pictures of a folder of classes, resized and cut to the shape, or a part of CIFAR or
// MNIST, whose own shape it must be. The classes are those given, or else the folder's own. Throws
// SystemFailure, with the file's name, as the readers of nn/data do; and std::invalid_argument for
// another shape or other classes, and for files to skip of CIFAR or MNIST.
LabelledPictures read_pictures(const PictureSource& source, const PictureShape& shape,
                               const std::vector<std::string>& classes = {});

// The picture files that the paths name; for a folder, what list_images() finds in it. Throws
// SystemFailure, with the path, for one that is missing, and as list_images() does.
std::vector<std::string> picture_paths(const std::vector<std::string>& paths);
// Prints which of so many files were left out, if any.
void print_left_out(const std::vector<std::string>& unreadable, std::size_t files);

}  // namespace sotto::images
