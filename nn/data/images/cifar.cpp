#include "nn/data/images/cifar.h"

#include <filesystem>
#include <span>
#include <vector>

#include "core/error.h"
#include "nn/data/expect.h"
#include "nn/data/gzip.h"
#include "nn/data/images/scaled_bytes.h"
#include "nn/data/input_file.h"

namespace sotto {

namespace {

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

Dataset read_files(const std::string& folder, const std::vector<std::string>& names, CifarKind kind,
                   std::int64_t max) {
  namespace fs = std::filesystem;
  expect(fs::is_directory(folder), "cifar: {}: no such folder", folder);
  Records records(kind, max);
  for (const std::string& name : names) {
    if (records.full()) break;
    const fs::path plain = fs::path(folder) / name;
    const fs::path packed = plain.string() + ".gz";
    InputFile file((fs::exists(packed) && !fs::exists(plain) ? packed : plain).string());
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

Dataset read_cifar10(const std::string& folder, bool train, std::int64_t max) {
  if (!train) return read_files(folder, {"test_batch.bin"}, CifarKind::cifar10, max);
  std::vector<std::string> names;
  for (int batch = 1; batch <= 5; ++batch) names.push_back(fmt::format("data_batch_{}.bin", batch));
  return read_files(folder, names, CifarKind::cifar10, max);
}

Dataset read_cifar100(const std::string& folder, bool train, std::int64_t max) {
  return read_files(folder, {train ? "train.bin" : "test.bin"}, CifarKind::cifar100, max);
}

}  // namespace sotto
