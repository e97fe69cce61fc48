// File tags: [sanitized]
#include "nn/data/idx.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <sstream>

#include <sys/stat.h>
#include "tests/support/catch.h"

#include "core/error.h"
#include "core/random/philox.h"
#include "tests/support/gzipped.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

namespace fs = std::filesystem;
using Folder = TemporaryFolder;
using Bytes = std::string;

Bytes big_endian(std::uint32_t value) {
  Bytes bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

Bytes idx(const std::vector<std::uint32_t>& shape, const Bytes& body) {
  Bytes file{'\0', '\0', '\x08', static_cast<char>(shape.size())};
  for (const std::uint32_t size : shape) file += big_endian(size);
  return file + body;
}

Tensor parse(const Bytes& file) {
  std::istringstream in(file);
  return read_idx(in, "test");
}

// The bytes count, count + 1, ... modulo 251.
Bytes ramp(std::size_t count) {
  Bytes bytes;
  for (std::size_t k = 0; k < count; ++k) bytes += static_cast<char>(k % 251);
  return bytes;
}

std::vector<std::uint8_t> as_values(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

Bytes images(std::uint32_t count) { return idx({count, 28, 28}, ramp(std::size_t{784} * count)); }
Bytes label_file(const Bytes& labels) {
  return idx({static_cast<std::uint32_t>(labels.size())}, labels);
}

// The folder of real MNIST, or "".
std::string mnist_folder() {
  const char* shared = std::getenv("SOTTO_SHARED");
  const fs::path folder = fs::path(shared ? shared : "../shared") / "data" / "mnist";
  return fs::is_directory(folder) ? folder.string() : "";
}

void check_mnist(const Dataset& data, std::int64_t count) {
  CHECK(data.size() == count);
  const std::vector<float> pixels = data.inputs.to_vector<float>();
  double sum = 0;
  double squares = 0;
  for (const float pixel : pixels) {
    sum += pixel;
    squares += static_cast<double>(pixel) * pixel;
  }
  const double mean = sum / static_cast<double>(pixels.size());
  const double stddev = std::sqrt(squares / static_cast<double>(pixels.size()) - mean * mean);
  // The published four digits are those of the training images; the test images are a little
  // brighter (0.1325 and 0.3105).
  CHECK(mean == Approx(count == 60000 ? 0.1307 : 0.1325).margin(5e-5));
  CHECK(stddev == Approx(count == 60000 ? 0.3081 : 0.3105).margin(5e-5));
}

}  // namespace

TEST_CASE("a file gives back the bytes and the shape that were written") {
  for (const std::vector<std::uint32_t>& shape :
       {std::vector<std::uint32_t>{5}, {3, 4}, {2, 3, 4}, {0, 28, 28}, {1, 2, 1, 2, 1, 2}}) {
    std::size_t count = 1;
    for (const std::uint32_t size : shape) count *= size;
    const Bytes file = idx(shape, ramp(count));
    for (const Bytes& form : {file, gzipped(file)}) {
      const Tensor read = parse(form);
      CHECK(read.rank() == static_cast<int>(shape.size()));
      CHECK(read.dtype() == Dtype::u8);
      CHECK(read.to_vector<std::uint8_t>() == as_values(ramp(count)));
    }
  }
}

TEST_CASE("a file larger than every buffer is read whole") {
  const Bytes body = ramp(3'000'000);
  const Bytes file = idx({3000, 1000}, body);
  CHECK(parse(file).to_vector<std::uint8_t>() == as_values(body));
  CHECK(parse(gzipped(file)).to_vector<std::uint8_t>() == as_values(body));
}

TEST_CASE("gzip members one after another are one file") {
  const Bytes file = idx({4, 2}, ramp(8));
  for (const std::size_t cut : {std::size_t{2}, std::size_t{7}, std::size_t{12}, file.size()}) {
    const Bytes two = gzipped(file.substr(0, cut)) + gzipped(file.substr(cut));
    CHECK(parse(two).to_vector<std::uint8_t>() == as_values(ramp(8)));
  }
}

TEST_CASE("files that are not IDX files of bytes are refused by what is wrong") {
  const Bytes sound = idx({2, 3}, ramp(6));
  CHECK(throws<SystemFailure>([&] { parse(""); }, "test: the file has 0 bytes and no header"));
  CHECK(throws<SystemFailure>([&] { parse(sound.substr(0, 3)); }, "3 bytes and no header"));
  CHECK(throws<SystemFailure>([&] { parse("PNG!" + sound); }, "begins with 50 4e 47 21"));
  Bytes typed = sound;
  typed[2] = '\x0d';
  CHECK(throws<SystemFailure>([&] { parse(typed); }, "element type 0x0d"));
  CHECK(throws<SystemFailure>([&] { parse(idx({}, "x")); }, "rank 0 is not in 1 to 6"));
  CHECK(throws<SystemFailure>([&] { parse(idx({1, 1, 1, 1, 1, 1, 1}, "x")); }, "rank 7"));
  CHECK(throws<SystemFailure>([&] { parse(sound.substr(0, 10)); },
                              "ends in the size of axis 1 of 2"));
  CHECK(throws<SystemFailure>([&] { parse(sound.substr(0, 17)); }, "5 bytes of data, expected 6"));
  CHECK(throws<SystemFailure>([&] { parse(sound + "x"); }, "more bytes of data than the 6"));
  CHECK_THROWS_AS(parse(sound + "x"), SystemFailure);
}

TEST_CASE("a header that lies about its size costs no memory") {
  constexpr std::uint32_t huge = 0xffffffff;
  CHECK(throws<SystemFailure>(
      [&] {
        parse(idx({huge, huge, huge}, "x"));
      },
      "has more elements than 64 bits can count"));
  CHECK(throws<SystemFailure>(
      [&] {
        parse(idx({0, huge, huge, huge}, ""));
      },
      "has more elements than 64 bits can count"));
  CHECK(throws<SystemFailure>([&] { parse(idx({huge, 0x7fffffff}, "x")); }, "1 bytes of data"));
}

TEST_CASE("a damaged gzip file is refused wherever the damage is") {
  const Bytes sound = gzipped(idx({10, 10}, ramp(100)));
  for (std::size_t kept = 2; kept < sound.size(); ++kept) {
    CHECK_THROWS_AS(parse(sound.substr(0, kept)), SystemFailure);
  }
  Bytes checksum = sound;
  checksum[sound.size() - 8] ^= 1;
  CHECK(throws<SystemFailure>([&] { parse(checksum); }, "damaged"));
  Bytes length = sound;
  length[sound.size() - 4] ^= 1;
  CHECK(throws<SystemFailure>([&] { parse(length); }, "damaged"));
  CHECK(throws<SystemFailure>([&] { parse(sound + "tail"); }, "bytes after the end"));
  CHECK_THROWS_AS(parse(sound + "\x1f"), SystemFailure);
}

TEST_CASE("mutated files are parsed or refused, never worse") {
  const Bytes plain = idx({2, 3, 4}, ramp(24));
  const Bytes packed = gzipped(plain);
  PublicRandom random(11);
  int refused = 0;
  for (int round = 0; round < 5000; ++round) {
    Bytes file = round % 2 == 0 ? plain : packed;
    for (std::int64_t k = random.below(4); k >= 0; --k) {
      const auto at =
          static_cast<std::size_t>(random.below(static_cast<std::int64_t>(file.size())));
      file[at] = static_cast<char>(random.below(256));
    }
    if (random.below(4) == 0) file.resize(static_cast<std::size_t>(random.below(80)));
    try {
      const Tensor read = parse(file);
      REQUIRE(read.numel() == static_cast<std::int64_t>(read.bytes()));
    } catch (const SystemFailure&) {
      ++refused;
    }
  }
  CHECK(refused > 2500);
}

TEST_CASE("MNIST is found under each spelling of its names") {
  const Bytes labels{'\3', '\0', '\x9'};
  for (const std::string separator : {"-", "."}) {
    for (const bool packed : {false, true}) {
      const Folder folder;
      const std::string ending = packed ? "-ubyte.gz" : "-ubyte";
      const auto form = [&](const Bytes& file) { return packed ? gzipped(file) : file; };
      folder.write("train-images" + separator + "idx3" + ending, form(images(3)));
      folder.write("train-labels" + separator + "idx1" + ending, form(label_file(labels)));
      const Dataset data = read_mnist(folder.path(), true);
      CHECK(data.inputs.shape() == Shape{3, 1, 28, 28});
      CHECK(data.inputs.to_vector<float>()[250] == 250.0f / 255.0f);
      CHECK(data.targets.to_vector<std::int64_t>() == std::vector<std::int64_t>{3, 0, 9});
      CHECK(throws<SystemFailure>([&] { read_mnist(folder.path(), false); },
                                  "t10k-images-idx3-ubyte"));
    }
  }
}

TEST_CASE("MNIST files that do not fit together are refused") {
  const Folder folder;
  const auto read = [&](const Bytes& image_file, const Bytes& labels) {
    folder.write("t10k-images-idx3-ubyte", image_file);
    folder.write("t10k-labels-idx1-ubyte", labels);
    return read_mnist(folder.path(), false);
  };
  CHECK(read(images(2), label_file("\1\2")).size() == 2);
  CHECK(read(images(0), label_file("")).size() == 0);
  CHECK(throws<SystemFailure>([&] { read(images(2), label_file("\1\2\3")); }, "3 labels in"));
  CHECK(throws<SystemFailure>([&] { read(images(2), label_file("\1\x0a")); },
                              "label 10 of sample 1"));
  CHECK(throws<SystemFailure>(
      [&] {
        read(idx({2, 28, 27}, ramp(1512)), label_file("\1\2"));
      },
      "shape (2, 28, 27)"));
  CHECK(throws<SystemFailure>([&] { read(idx({1568}, ramp(1568)), label_file("\1\2")); },
                              "shape (1568)"));
  CHECK(throws<SystemFailure>([&] { read(images(2), images(2)); }, "expected (n)"));
}

TEST_CASE("only the first elements are read, and nothing beyond them is looked at") {
  const auto first = [](const Bytes& file, std::int64_t max) {
    std::istringstream in(file);
    return read_idx(in, "test", max);
  };
  const Bytes file = idx({100, 3}, ramp(300));
  CHECK(first(file, 2).to_vector<std::uint8_t>() == std::vector<std::uint8_t>{0, 1, 2, 3, 4, 5});
  CHECK(first(file.substr(0, 12 + 6), 2).shape() == Shape{2, 3});
  CHECK(first(gzipped(file), 99).shape() == Shape{99, 3});
  CHECK(first(file, 100).shape() == Shape{100, 3});
  CHECK(throws<SystemFailure>([&] { first(file + "x", 100); }, "more bytes of data"));
  CHECK(throws([&] { first(file, 0); }, "0 elements"));
  // A file that claims terabytes.
  const Bytes endless = gzipped(idx({0xffffffff, 0x400}, Bytes(1 << 22, 'x')));
  CHECK(first(endless, 4).shape() == Shape{4, 0x400});
}

TEST_CASE("only the requested samples of MNIST are read, and counts still have to agree") {
  const Folder folder;
  folder.write("train-images-idx3-ubyte.gz", gzipped(images(5)));
  folder.write("train-labels-idx1-ubyte", label_file("\1\2\3\4\5"));
  const Dataset data = read_mnist(folder.path(), true, 2);
  CHECK(data.targets.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 2});
  CHECK(data.inputs.shape() == Shape{2, 1, 28, 28});
  CHECK(read_mnist(folder.path(), true, 1000).size() == 5);
  folder.write("train-labels-idx1-ubyte", label_file("\1\2\3\4"));
  CHECK(throws<SystemFailure>([&] { read_mnist(folder.path(), true, 2); }, "5 images"));
  // A shape that is not MNIST's is refused before anything of its size is read.
  folder.write("train-images-idx3-ubyte.gz", gzipped(idx({1, 0xffffffff, 0x7fffffff}, "")));
  CHECK(throws<SystemFailure>([&] { read_mnist(folder.path(), true, 2); }, "expected (n, 28, 28)"));
}

TEST_CASE("a FIFO among the data is refused and keeps nobody waiting") {
  const Folder folder;
  REQUIRE(::mkfifo((folder.path() + "/train-images-idx3-ubyte").c_str(), 0600) == 0);
  folder.write("train-labels-idx1-ubyte", label_file("\1"));
  CHECK(throws<SystemFailure>([&] { read_mnist(folder.path(), true); }, "a FIFO"));
}

TEST_CASE("a missing file or folder is named") {
  CHECK(throws<SystemFailure>([&] { read_idx("/nowhere/file"); }, "/nowhere/file: No such file"));
  CHECK(throws<SystemFailure>([&] { read_mnist("/nowhere", true); }, "/nowhere: no such folder"));
  const Folder folder;
  folder.write("train-images-idx3-ubyte", images(1));
  CHECK(throws<SystemFailure>([&] { read_mnist(folder.path(), true); }, "train-labels"));
  CHECK_THROWS_AS(read_idx(folder.path()), SystemFailure);
  const std::string loop = folder.path() + "/loop";
  std::filesystem::create_symlink("loop", loop);
  CHECK(throws<SystemFailure>([&] { read_mnist(loop, true); },
                              "read: " + loop + ": Too many levels of symbolic links"));
}

TEST_CASE("MNIST has its published counts, mean and deviation") {
  const std::string folder = mnist_folder();
  if (folder.empty()) {
    WARN("skipped: no MNIST under SOTTO_SHARED/data/mnist");
    return;
  }
  check_mnist(read_mnist(folder, true), 60000);
  check_mnist(read_mnist(folder, false), 10000);
}
