#include "nn/data/images/cifar.h"

#include <sstream>
#include <string>
#include <vector>

#include "tests/support/catch.h"

#include "core/error.h"
#include "tests/support/tar_file.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

// A record with these labels, whose byte k is (first + k) % 251.
std::string record(const std::string& labels, int first = 0) {
  std::string y = labels;
  for (int k = 0; k < 3072; ++k) y += static_cast<char>((first + k) % 251);
  return y;
}

Dataset parse(const std::string& bytes, CifarKind kind, std::int64_t max = 100) {
  std::istringstream in(bytes);
  return read_cifar(in, "test", kind, max);
}

const std::string three = record("\3") + record("\x09", 7) + record(std::string(1, '\0'));

}  // namespace

TEST_CASE("a record of CIFAR-10 is a label and three planes") {
  const Dataset data = parse(three, CifarKind::cifar10);
  CHECK(data.size() == 3);
  CHECK(data.inputs.shape() == Shape{3, 3, 32, 32});
  CHECK(data.targets.to_vector<std::int64_t>() == std::vector<std::int64_t>{3, 9, 0});
  CHECK(data.inputs.at({1, 2, 5, 6}) == Approx((7 + 2 * 1024 + 5 * 32 + 6) % 251 / 255.0));
  CHECK(data.fields.empty());
}

TEST_CASE("a record of CIFAR-100 has a coarse and a fine label") {
  const Dataset data = parse(record("\x13\x63") + record("\1\2", 5), CifarKind::cifar100);
  CHECK(data.targets.to_vector<std::int64_t>() == std::vector<std::int64_t>{99, 2});
  CHECK(data.field("coarse").to_vector<std::int64_t>() == std::vector<std::int64_t>{19, 1});
  CHECK(data.inputs.at({1, 0, 0, 1}) == Approx(6 / 255.0));
}

TEST_CASE("a damaged file of CIFAR is refused by the record") {
  const auto refused = [](const std::string& bytes, CifarKind kind, const std::string& why) {
    return throws<SystemFailure>([&] { parse(bytes, kind); }, why);
  };
  CHECK(refused("", CifarKind::cifar10, "cifar: test: the file is empty"));
  CHECK(refused(three.substr(0, 3073 + 5), CifarKind::cifar10,
                "record 1 has 5 bytes, expected 3073"));
  CHECK(refused(three + "\1", CifarKind::cifar10, "record 3 has 1 bytes"));
  CHECK(refused(record("\1") + record("\x0a"), CifarKind::cifar10,
                "label 10 of record 1 is not below 10"));
  CHECK(refused(record("\x14\1"), CifarKind::cifar100, "coarse label 20 of record 0"));
  CHECK(refused(record("\1\x64"), CifarKind::cifar100, "fine label 100 of record 0"));
  CHECK(throws([] { parse(three, CifarKind::cifar10, 0); }, "reading 0 records"));
}

TEST_CASE("a folder's batches are read in their order, and no more than asked") {
  const TemporaryFolder folder;
  for (const std::string number : {"1", "2", "3", "4", "5"}) {
    folder.write("data_batch_" + number + ".bin", record({static_cast<char>(number[0] - '0')}));
  }
  folder.write("test_batch.bin", three);
  const Dataset train = read_cifar10(folder.path(), true);
  CHECK(train.targets.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 2, 3, 4, 5});
  CHECK(read_cifar10(folder.path(), true, 2).size() == 2);
  CHECK(read_cifar10(folder.path(), false).size() == 3);
  std::filesystem::remove(folder.path("data_batch_4.bin"));
  CHECK(throws<SystemFailure>([&] { read_cifar10(folder.path(), true); }, "data_batch_4.bin"));
  CHECK(throws<SystemFailure>([&] { read_cifar100(folder.path(), true); }, "train.bin"));
  CHECK(throws<SystemFailure>([] { read_cifar10("/nowhere", true); },
                              "/nowhere: no such folder or archive"));
  const std::string loop = folder.path("loop");
  std::filesystem::create_symlink("loop", loop);
  CHECK(throws<SystemFailure>([&] { read_cifar10(loop, true); },
                              "read: " + loop + ": Too many levels of symbolic links"));
}

TEST_CASE("an archive is read as the folder in it, in the order of the batches") {
  const TemporaryFolder folder;
  std::string ten = tar_entry("cifar-10-batches-bin/", "", '5');
  for (const std::string number : {"4", "2", "5", "1", "3"}) {
    ten += tar_entry("cifar-10-batches-bin/data_batch_" + number + ".bin",
                     record({static_cast<char>(number[0] - '0')}));
  }
  ten += tar_entry("cifar-10-batches-bin/batches.meta.txt", "airplane\n");
  const std::string test = tar_entry("test_batch.bin", three);
  folder.write("10.tar", ten + test);
  const std::string path = folder.path("10.tar");
  const Dataset train = read_cifar10(path, true);
  CHECK(train.targets.to_vector<std::int64_t>() == std::vector<std::int64_t>{1, 2, 3, 4, 5});
  CHECK(read_cifar10(path, true, 2).size() == 2);
  CHECK(read_cifar10(path, false).size() == 3);
  CHECK(kind_of_cifar_archive(path) == CifarKind::cifar10);
  folder.write("100.tar", tar_entry("cifar-100-binary/train.bin", record("\1\2")));
  CHECK(read_cifar100(folder.path("100.tar"), true).field("coarse").at({0}) == 1);
  CHECK(kind_of_cifar_archive(folder.path("100.tar")) == CifarKind::cifar100);
  folder.write("python.tar", tar_entry("cifar-10-batches-py/data_batch_1", "x"));
  CHECK_FALSE(kind_of_cifar_archive(folder.path("python.tar")).has_value());
}

TEST_CASE("an archive of CIFAR that is damaged, or lacks a file, is refused") {
  const auto refused = [](const std::string& bytes, const std::string& why) {
    return throws<SystemFailure>(
        [&] {
          std::istringstream in(bytes);
          read_cifar_archive(in, "a", CifarKind::cifar10, false);
        },
        why);
  };
  const std::string test = tar_entry("b/test_batch.bin", three);
  CHECK(refused("", "cifar: a: test_batch.bin is not in it"));
  CHECK(refused(tar_entry("data_batch_1", "x"), "the binary version is needed"));
  CHECK(refused(test + test, "cifar: a: test_batch.bin is in it twice"));
  CHECK(refused(test.substr(0, 5000), "tar: a: the archive ends within b/test_batch.bin"));
  CHECK(refused(tar_entry("test_batch.bin", record("\x0a")),
                "a: test_batch.bin: label 10 of record 0"));
  CHECK(refused(three, "tar: a: no header of an archive at byte 0"));
}
