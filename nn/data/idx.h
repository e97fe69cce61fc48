// The IDX file format of MNIST, and MNIST itself. A reader checks all that it reads, and refuses a
// file that is damaged.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <limits>
#include <string>

#include "core/tensor.h"
#include "nn/data/dataset.h"

namespace sotto {

// Reads the unsigned bytes of an IDX file, plain or gzip-compressed: u8, in the file's shape, rank
// 1 to max_rank. Of the first axis at most `max` >= 1 elements are read, and the rest of the file
// is not read, so that a file that unpacks to more than memory holds does no harm. Throws
// SystemFailure, with the file's name and the values, for a file that is missing, not IDX, of
// another element type, too short, too long or damaged. The format is described by LeCun, Cortes
// and Burges, "The MNIST database of handwritten digits".
Tensor read_idx(const std::string& path,
                std::int64_t max = std::numeric_limits<std::int64_t>::max());
// Reads from a stream; `name` is its name in messages.
Tensor read_idx(std::istream& in, const std::string& name,
                std::int64_t max = std::numeric_limits<std::int64_t>::max());

// Reads MNIST's training samples or its test samples, at most `max` of them, from a folder: images
// [n, 1, 28, 28] f32 in [0, 1] and labels [n] i64. Files are named train-images-idx3-ubyte or
// train-images.idx3-ubyte, with or without .gz. Throws SystemFailure, with the file's name, if one
// is missing or refused by read_idx, if images are not 28 x 28, if a label is above 9, or if the
// numbers of images and labels differ.
Dataset read_mnist(const std::string& folder, bool train,
                   std::int64_t max = std::numeric_limits<std::int64_t>::max());

}  // namespace sotto
