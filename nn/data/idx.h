// MNIST's file format IDX, and MNIST itself. A file is read whole and proven sound, or refused; or
// as far as is asked for.
#pragma once

#include <cstdint>
#include <istream>
#include <limits>
#include <string>

#include "core/tensor.h"
#include "nn/data/dataset.h"

namespace sotto {

// The unsigned bytes of an IDX file, plain or gzip-compressed, in the file's own shape: u8, rank 1
// to max_rank. Throws SystemFailure, naming the file and the values, where it is missing, no IDX
// file, of another element type, too short, too long or damaged. The format is described by
// LeCun, Cortes and Burges, "The MNIST database of handwritten digits". The first `most` >= 1
// elements of the first axis alone are read where a file has more, and nothing beyond them is
// looked at then: a file that unpacks to more than memory holds does no harm.
Tensor read_idx(const std::string& path,
                std::int64_t most = std::numeric_limits<std::int64_t>::max());
// The same from a stream; `name` is what messages call it.
Tensor read_idx(std::istream& in, const std::string& name,
                std::int64_t most = std::numeric_limits<std::int64_t>::max());

// MNIST's training samples, or its test samples, or the first `most` of them, from a folder: images
// [n, 1, 28, 28] f32 in [0, 1], labels [n] i64. Finds files named as in train-images-idx3-ubyte or
// train-images.idx3-ubyte, with or without .gz. Throws SystemFailure, naming the file, where one
// is missing or refused by read_idx, where images are not 28 x 28, a label is above 9, or the
// numbers of images and labels differ.
Dataset read_mnist(const std::string& folder, bool train,
                   std::int64_t most = std::numeric_limits<std::int64_t>::max());

}  // namespace sotto
