#include "nn/data/images/cifar.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <span>
#include <sstream>
#include <utility>
#include <vector>

#include "core/error.h"
#include "nn/data/expect.h"
#include "nn/data/gzip.h"
#include "nn/data/images/scaled_bytes.h"
#include "nn/data/input_file.h"
#include "nn/data/tar.h"

namespace sotto {

namespace {

namespace fs = std::filesystem;

constexpr std::int64_t side = 32;
constexpr std::size_t image_bytes = 3 * 32 * 32;

// A label of each record: the number of its classes.
struct Label {
  const char* name;
  std::uint8_t classes;
};

std::vector<Label> labels_of(CifarKind kind) {
  if (kind == CifarKind::cifar10) return {{"label", 10}};
  return {{"coarse label", 20}, {"fine label", 100}};
}

// The records read so far.
class Records {
 public:
  Records(CifarKind kind, std::int64_t max)
      : labels_(labels_of(kind)), values_(labels_.size()), max_(max) {
    check(max >= 1, "cifar: reading {} records", max);
  }

  bool full() const { return count() == max_; }

  void read(GzipReader& in) {
    std::vector<std::uint8_t> record(labels_.size() + image_bytes);
    std::int64_t number = 0;
    for (; !full(); ++number) {
      const std::size_t got = in.read(record);
      if (got == 0) break;
      expect(got == record.size(), "cifar: {}: record {} has {} bytes, expected {}", in.name(),
             number, got, record.size());
      append(record, in.name(), number);
    }
    expect(number > 0, "cifar: {}: the file is empty", in.name());
  }

  // The last of a record's labels is the finest.
  Dataset data() const {
    const Shape shape{count(), 3, side, side};
    Dataset y{scaled_bytes(Tensor::from(pixels_, shape)), Tensor::from(values_.back(), {count()})};
    if (values_.size() == 2) y.fields["coarse"] = Tensor::from(values_.front(), {count()});
    return y;
  }

 private:
  std::int64_t count() const { return std::ssize(values_.front()); }

  void append(std::span<const std::uint8_t> record, const std::string& name, std::int64_t number) {
    for (std::size_t k = 0; k < labels_.size(); ++k) {
      expect(record[k] < labels_[k].classes, "cifar: {}: {} {} of record {} is not below {}", name,
             labels_[k].name, record[k], number, labels_[k].classes);
    }
    for (std::size_t k = 0; k < labels_.size(); ++k) values_[k].push_back(record[k]);
    pixels_.insert(pixels_.end(), record.begin() + std::ssize(labels_), record.end());
  }

  std::vector<Label> labels_;
  std::vector<std::uint8_t> pixels_;
  std::vector<std::vector<std::int64_t>> values_;  // of each label
  std::int64_t max_;
};

std::vector<std::string> file_names(CifarKind kind, bool train) {
  if (kind == CifarKind::cifar100) return {train ? "train.bin" : "test.bin"};
  if (!train) return {"test_batch.bin"};
  std::vector<std::string> names;
  for (int batch = 1; batch <= 5; ++batch) names.push_back(fmt::format("data_batch_{}.bin", batch));
  return names;
}

std::string last_part(const std::string& name) { return fs::path(name).filename().string(); }

// The archive's files are in any order, the records in that of the names.
Dataset read_archive(GzipReader& in, CifarKind kind, bool train, std::int64_t max) {
  constexpr std::size_t max_file = std::size_t{1} << 30;
  const std::vector<std::string> names = file_names(kind, train);
  std::map<std::string, std::string> files;
  TarReader archive(in);
  while (const auto entry = archive.next()) {
    const std::string name = last_part(entry->name);
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    const bool first = files.emplace(name, archive.contents(max_file)).second;
    expect(first, "cifar: {}: {} is in it twice", in.name(), name);
  }
  Records records(kind, max);
  for (const std::string& name : names) {
    if (records.full()) break;
    const auto found = files.find(name);
    expect(found != files.end(), "cifar: {}: {} is not in it (the binary version is needed)",
           in.name(), name);
    std::istringstream bytes(std::move(found->second));
    GzipReader file(bytes, in.name() + ": " + name);
    records.read(file);
  }
  return records.data();
}

Dataset read_files(const std::string& path, CifarKind kind, bool train, std::int64_t max) {
  const fs::file_type type = file_type_at(path);
  expect(type != fs::file_type::not_found, "cifar: {}: no such folder or archive", path);
  if (type != fs::file_type::directory) {
    InputFile file(path);
    return read_archive(file.reader(), kind, train, max);
  }
  Records records(kind, max);
  for (const std::string& name : file_names(kind, train)) {
    if (records.full()) break;
    const fs::path plain = fs::path(path) / name;
    const fs::path packed = plain.string() + ".gz";
    const bool is_plain = file_type_at(plain) != fs::file_type::not_found;
    const bool is_packed = !is_plain && file_type_at(packed) != fs::file_type::not_found;
    InputFile file((is_packed ? packed : plain).string());
    records.read(file.reader());
  }
  return records.data();
}

}  // namespace

Dataset read_cifar(std::istream& in, const std::string& name, CifarKind kind, std::int64_t max) {
  GzipReader reader(in, name);
  Records records(kind, max);
  records.read(reader);
  return records.data();
}

Dataset read_cifar10(const std::string& path, bool train, std::int64_t max) {
  return read_files(path, CifarKind::cifar10, train, max);
}

Dataset read_cifar100(const std::string& path, bool train, std::int64_t max) {
  return read_files(path, CifarKind::cifar100, train, max);
}

Dataset read_cifar_archive(std::istream& in, const std::string& name, CifarKind kind, bool train,
                           std::int64_t max) {
  GzipReader reader(in, name);
  return read_archive(reader, kind, train, max);
}

std::optional<CifarKind> kind_of_cifar_archive(const std::string& path) {
  InputFile file(path);
  TarReader archive(file.reader());
  while (const auto entry = archive.next()) {
    const std::string name = last_part(entry->name);
    for (const CifarKind kind : {CifarKind::cifar10, CifarKind::cifar100}) {
      for (const bool train : {true, false}) {
        const std::vector<std::string> names = file_names(kind, train);
        if (std::find(names.begin(), names.end(), name) != names.end()) return kind;
      }
    }
  }
  return std::nullopt;
}

}  // namespace sotto
