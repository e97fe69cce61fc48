#include "nn/data/idx.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <functional>
#include <istream>
#include <limits>
#include <span>
#include <vector>

#include "core/error.h"
#include "core/join.h"
#include "nn/data/expect.h"
#include "nn/data/gzip.h"
#include "nn/data/images/scaled_bytes.h"
#include "nn/data/input_file.h"

namespace sotto {

namespace {

constexpr std::uint8_t unsigned_byte = 0x08;  // IDX's code for the element type u8
constexpr std::size_t chunk_bytes = std::size_t{1} << 20;
constexpr std::int64_t mnist_side = 28;
constexpr std::int64_t mnist_classes = 10;

std::string hex(std::span<const std::uint8_t> bytes) {
  return join(bytes, " ", [](std::uint8_t byte) { return fmt::format("{:02x}", byte); });
}

std::int64_t read_size(GzipReader& in, int axis, int rank) {
  std::array<std::uint8_t, 4> bytes{};
  const std::size_t got = in.read(bytes);
  expect(got == bytes.size(), "idx: {}: the file ends in the size of axis {} of {}", in.name(),
         axis, rank);
  std::int64_t size = 0;
  for (const std::uint8_t byte : bytes) size = size << 8 | byte;
  return size;
}

// The header: two zero bytes, the element type, the rank; then each axis as a big-endian u32.
Shape read_header(GzipReader& in) {
  std::array<std::uint8_t, 4> magic{};
  const std::size_t got = in.read(magic);
  expect(got == magic.size(), "idx: {}: the file has {} bytes and no header", in.name(), got);
  expect(magic[0] == 0 && magic[1] == 0, "idx: {}: begins with {}, not with 00 00", in.name(),
         hex(magic));
  expect(magic[2] == unsigned_byte, "idx: {}: element type 0x{:02x}, expected 0x08 (u8)", in.name(),
         magic[2]);
  const int rank = magic[3];
  expect(rank >= 1 && rank <= max_rank, "idx: {}: rank {} is not in 1 to {}", in.name(), rank,
         max_rank);
  Shape shape;
  for (int axis = 0; axis < rank; ++axis) shape.push_back(read_size(in, axis, rank));
  return shape;
}

// Returns the number of elements. Refuses a header whose axes multiply to more than 64 bits, even
// if one of them is 0.
std::int64_t counted(const GzipReader& in, const Shape& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    expect(size == 0 || count <= std::numeric_limits<std::int64_t>::max() / size,
           "idx: {}: the shape {} has more elements than 64 bits can count", in.name(), shape);
    count *= std::max<std::int64_t>(size, 1);
  }
  return shape.numel();
}

// Reads exactly `count` bytes. Memory grows with the bytes present, not with the number that the
// header claims.
std::vector<std::uint8_t> read_bytes(GzipReader& in, std::size_t count, const Shape& shape) {
  std::vector<std::uint8_t> bytes;
  while (bytes.size() < count) {
    const std::size_t begin = bytes.size();
    bytes.resize(begin + std::min(chunk_bytes, count - begin));
    const std::size_t got = in.read(std::span(bytes).subspan(begin));
    expect(begin + got == bytes.size(), "idx: {}: {} bytes of data, expected {} for the shape {}",
           in.name(), begin + got, count, shape);
  }
  return bytes;
}

void expect_end(GzipReader& in, const Shape& shape) {
  std::array<std::uint8_t, 1> beyond{};
  const std::size_t extra = in.read(beyond);  // also makes zlib compare the checksum
  expect(extra == 0, "idx: {}: more bytes of data than the {} for the shape {}", in.name(),
         shape.numel(), shape);
}

// The first elements of a file, and the number of elements of its first axis in the file.
struct Beginning {
  Tensor values;
  std::int64_t size = 0;
};

// Called with the file's shape before anything of that size is read; it may throw.
using Accept = std::function<void(const Shape&)>;

Beginning read_beginning(GzipReader& reader, std::int64_t max, const Accept& accept = {}) {
  check(max >= 1, "idx: {}: reading {} elements of the first axis", reader.name(), max);
  const Shape whole = read_header(reader);
  counted(reader, whole);
  if (accept) accept(whole);
  Shape shape = whole;
  shape[0] = std::min(shape[0], max);
  const auto bytes = read_bytes(reader, static_cast<std::size_t>(shape.numel()), shape);
  if (shape == whole) expect_end(reader, whole);
  return {Tensor::from(bytes, shape), whole[0]};
}

Beginning read_beginning(const std::string& path, std::int64_t max, const Accept& accept = {}) {
  InputFile file(path);
  return read_beginning(file.reader(), max, accept);
}

// Returns the first of the file name's four spellings that exists.
std::string find_file(const std::string& folder, const std::string& what, int rank) {
  using std::filesystem::file_type;
  expect(file_type_at(folder) == file_type::directory, "mnist: {}: no such folder", folder);
  for (const char* separator : {"-", "."}) {
    for (const char* ending : {"", ".gz"}) {
      const auto path = std::filesystem::path(folder) /
                        fmt::format("{}{}idx{}-ubyte{}", what, separator, rank, ending);
      if (file_type_at(path) != file_type::not_found) return path.string();
    }
  }
  throw SystemFailure(
      fmt::format("mnist: {}: neither {}-idx{}-ubyte nor {}.idx{}-ubyte, plain or .gz", folder,
                  what, rank, what, rank));
}

Tensor widened_labels(const Tensor& bytes, const std::string& path) {
  Tensor labels = Tensor::empty(bytes.shape(), Dtype::i64);
  const std::uint8_t* from = bytes.data<std::uint8_t>();
  std::int64_t* to = labels.data<std::int64_t>();
  for (std::int64_t k = 0; k < bytes.numel(); ++k) {
    expect(from[k] < mnist_classes, "mnist: {}: label {} of sample {} is above 9", path, from[k],
           k);
    to[k] = from[k];
  }
  return labels;
}

}  // namespace

Tensor read_idx(std::istream& in, const std::string& name, std::int64_t max) {
  GzipReader reader(in, name);
  return read_beginning(reader, max).values;
}

Tensor read_idx(const std::string& path, std::int64_t max) {
  return read_beginning(path, max).values;
}

Dataset read_mnist(const std::string& folder, bool train, std::int64_t max) {
  const std::string part = train ? "train" : "t10k";
  const std::string image_path = find_file(folder, part + "-images", 3);
  const std::string label_path = find_file(folder, part + "-labels", 1);
  const auto [images, image_count] = read_beginning(image_path, max, [&](const Shape& shape) {
    expect(shape.rank() == 3 && shape[1] == mnist_side && shape[2] == mnist_side,
           "mnist: {}: shape {}, expected (n, {}, {})", image_path, shape, mnist_side, mnist_side);
  });
  const auto [labels, label_count] = read_beginning(label_path, max, [&](const Shape& shape) {
    expect(shape.rank() == 1, "mnist: {}: shape {}, expected (n)", label_path, shape);
  });
  expect(image_count == label_count, "mnist: {} images in {}, {} labels in {}", image_count,
         image_path, label_count, label_path);
  return {scaled_bytes(images).unsqueeze(1), widened_labels(labels, label_path)};
}

}  // namespace sotto
