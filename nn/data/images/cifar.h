// The binary files of CIFAR-10 and CIFAR-100 (Krizhevsky 2009, "Learning multiple layers of
// features from tiny images"). A reader checks all that it reads, and refuses a file that is
// damaged.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <limits>
#include <optional>
#include <string>

#include "nn/data/dataset.h"

namespace sotto {

enum class CifarKind {
  cifar10,   // records of a label and 3 x 32 x 32 bytes: red, green and blue planes, by rows
  cifar100,  // a coarse label (20 superclasses), a fine label (100 classes), and the same bytes
};

// Reads at most `max` >= 1 records of one file, plain or gzip-compressed: images [n, 3, 32, 32] f32
// in [0, 1] and labels [n] i64; the fine labels of CIFAR-100, with the coarse ones in the field
// "coarse". `name` is the stream's name in messages. Throws SystemFailure, with the file's name,
// the record and the values, for a label out of range, a file that ends within a record or has
// none.
Dataset read_cifar(std::istream& in, const std::string& name, CifarKind kind,
                   std::int64_t max = std::numeric_limits<std::int64_t>::max());

// Reads the training samples (data_batch_1.bin to data_batch_5.bin, in this order) or the test
// samples (test_batch.bin), at most `max` of them: from a folder, where each file may end in .gz as
// well, or from the archive as it is downloaded, cifar-10-binary.tar.gz, in memory. Throws
// SystemFailure, with the file's name, if one is missing, and as read_cifar.
Dataset read_cifar10(const std::string& path, bool train,
                     std::int64_t max = std::numeric_limits<std::int64_t>::max());
// Reads train.bin or test.bin of CIFAR-100.
Dataset read_cifar100(const std::string& path, bool train,
                      std::int64_t max = std::numeric_limits<std::int64_t>::max());

// Reads the files from a tar archive, plain or gzip-compressed. `name` is the stream's name in
// messages.
Dataset read_cifar_archive(std::istream& in, const std::string& name, CifarKind kind, bool train,
                           std::int64_t max = std::numeric_limits<std::int64_t>::max());
// Which of the two an archive has, by the names in it; nullopt if none. Throws SystemFailure for a
// file that is no archive, as far as it was read.
std::optional<CifarKind> kind_of_cifar_archive(const std::string& path);

}  // namespace sotto
