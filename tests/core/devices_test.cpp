// Devices and their names, on machines with and without a GPU.
// File tags: [gpu][gpus][sanitized]
#include "core/devices.h"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>

#include "core/cuda/upload.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/data/batch_loader.h"
#include "tests/support/catch.h"
#include "tests/support/fake_gpu_counts.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

std::vector<Device> gpus() {
  std::vector<Device> all;
  for (const DeviceInfo& info : devices()) {
    if (info.device != cpu) all.push_back(info.device);
  }
  return all;
}

// The numbers begin, begin + 1, ... as f32.
Tensor counting(const Shape& shape, double begin) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  std::iota(values.begin(), values.end(), static_cast<float>(begin));
  return Tensor::from(values, shape);
}

void write(Upload& upload, const Tensor& values) {
  upload.begin(values.shape(), values.dtype());
  std::memcpy(upload.room(), values.view().data, values.bytes());
  upload.send();
}

Dataset numbered(std::int64_t samples) {
  std::vector<std::int64_t> labels(static_cast<std::size_t>(samples));
  std::iota(labels.begin(), labels.end(), std::int64_t{0});
  std::vector<std::uint8_t> marks(labels.size());
  for (std::size_t k = 0; k < marks.size(); ++k) marks[k] = static_cast<std::uint8_t>(3 * k + 1);
  return {.inputs = counting({samples, 3}, 0),
          .targets = Tensor::from(labels, {samples}),
          .fields = {{"marks", Tensor::from(marks, {samples})}},
          .units = {labels.rbegin(), labels.rend()}};
}

// Checks that each of the batches, requested in order, is the data set's. The device computes with
// it at once, in memory that was freed before.
void check_batches(BatchLoader& loader, const Dataset& data,
                   const std::vector<std::vector<std::int64_t>>& parts) {
  for (const auto& rows : parts) {
    const Dataset got = loader.batch(rows), expected = data.batch(rows);
    const Tensor twice = add(got.inputs, got.inputs);
    CHECK(twice.to_vector<float>() == add(expected.inputs, expected.inputs).to_vector<float>());
    CHECK(got.targets.to_vector<std::int64_t>() == expected.targets.to_vector<std::int64_t>());
    CHECK(got.field("marks").to_vector<std::uint8_t>() ==
          expected.field("marks").to_vector<std::uint8_t>());
    CHECK(got.units == expected.units);
    CHECK(got.targets.device() == got.inputs.device());
    CHECK(got.field("marks").device() == got.inputs.device());
  }
}

std::vector<std::int64_t> rows_between(std::int64_t begin, std::int64_t end) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(end - begin));
  std::iota(rows.begin(), rows.end(), begin);
  return rows;
}

}  // namespace

TEST_CASE("the CPU is the first device, and every device is found by its name") {
  const std::vector<DeviceInfo> all = devices();
  REQUIRE(!all.empty());
  CHECK(all[0].device == cpu);
  CHECK(all[0].memory > 0);
  for (const DeviceInfo& info : all) {
    CHECK(parse_device(name(info.device)) == info.device);
    CHECK(!info.name.empty());
  }
}

TEST_CASE("a GPU that cannot be used is refused with the reason, in one line") {
  const std::string reason = cuda_reason();
  CHECK(reason.empty() == (devices().size() > 1));
  CHECK(reason.find('\n') == std::string::npos);
  if (std::getenv("SOTTO_CUDA_LIBRARY")) CHECK(reason.find("librar") == std::string::npos);
  if (reason.empty()) return;
  CHECK(throws([] { parse_device("cuda"); }, reason));
  CHECK(throws([] { cuda_runtime(); }, reason));
  CHECK(throws([] { Tensor::empty({2}, Dtype::f32, {DeviceKind::cuda, 0}); }, reason));
  CHECK(throws([] { Tensor::empty({2}).to({DeviceKind::cuda, 0}); }, reason));
}

TEST_CASE("without a driver CUDA's libraries are not loaded") {
  if (std::getenv("SOTTO_CUDA_LIBRARY") || !cuda_reason().starts_with("no driver")) return;
  std::ifstream maps("/proc/self/maps");
  const std::string loaded{std::istreambuf_iterator<char>(maps), {}};
  CHECK(loaded.find("libsotto.so") != std::string::npos);
  CHECK(loaded.find("libsotto_cuda.so") == std::string::npos);
}

TEST_CASE("a name that is no device's is refused") {
  for (const char* wrong : {"", "gpu", "cud", "cuda:", "cuda:x", "cuda:-1", "cuda0", "cpu:1"}) {
    CHECK(throws([&] { parse_device(wrong); }, "is none of cpu, cuda and cuda:N"));
  }
  CHECK_THROWS_AS(parse_device("cuda:99"), std::invalid_argument);
}

TEST_CASE("tensors go to every device and back with their strides") {
  const Tensor whole = Tensor::from({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4}, Dtype::f32);
  const Tensor part = whole.transpose(0, 1).slice(0, 1, 4, 2);
  for (const DeviceInfo& info : devices()) {
    const Tensor there = part.to(info.device);
    CHECK(there.device() == info.device);
    CHECK(there.shares_storage(part) == (info.device == cpu));
    CHECK(there.strides() == part.strides());
    CHECK(there.to_vector<float>() == std::vector<float>{2, 6, 4, 8});
    CHECK(there.select(0, 1).select(0, 1).item() == 8);
    CHECK(Tensor::empty({0, 3}).to(info.device).numel() == 0);
  }
}

TEST_CASE("a tensor that goes to another GPU may be released, and its memory used, at once") {
  for (const Device from : gpus()) {
    for (const Device to : gpus()) {
      Tensor x = full({1000}, 3).to(from);
      const void* const memory = x.view().data;
      const Tensor there = x.to(to);
      if (to == from) continue;
      x = {};
      const Tensor next = full({1000}, 4, Dtype::f32, from);
      CHECK(next.view().data == memory);
      run_ahead(from.index);
      CHECK(there.to_vector<float>() == std::vector<float>(1000, 3));
    }
  }
}

TEST_CASE("a tensor goes to another GPU after the work that computes it") {
  for (const Device from : gpus()) {
    for (const Device to : gpus()) {
      const Tensor x = full({1000}, 3).to(from);
      const Tensor there = add(x, x).to(to);
      run_ahead(to.index);
      CHECK(there.to_vector<float>() == std::vector<float>(1000, 6));
    }
  }
}

TEST_CASE("an asynchronous copy is complete for the work that asks for it") {
  for (const Device device : gpus()) {
    Upload upload(device);
    for (int round = 0; round < 3; ++round) {
      const Tensor values = counting({4, 5}, round);
      write(upload, values);
      const Tensor there = upload.arrive();
      CHECK(there.device() == device);
      CHECK(add(there, there).to_vector<float>() == add(values, values).to_vector<float>());
    }
    CHECK(throws([&] { upload.arrive(); }, "upload: nothing was sent"));
    upload.begin({0, 2}, Dtype::f32);
    upload.room();
    upload.send();
    CHECK(upload.arrive().numel() == 0);
  }
  CHECK(throws([] { Upload{cpu}; }, "upload: to cpu, which is no GPU"));
}

TEST_CASE("an asynchronous copy comes after the work that used its memory") {
  for (const Device device : gpus()) {
    Upload upload(device);
    for (int round = 0; round < 3; ++round) {
      // Freed while the device still had to work on it: the upload gets the same memory.
      const Tensor sum = [&] {
        const Tensor used = counting({64}, 0).to(device);
        return add(used, used);
      }();
      write(upload, counting({64}, 1));
      CHECK(upload.arrive().to_vector<float>()[63] == 64);
      CHECK(sum.to_vector<float>()[63] == 126);
    }
  }
}

TEST_CASE("a dropped upload does not overwrite the next tensor in its memory") {
  for (const Device device : gpus()) {
    Upload upload(device);
    write(upload, counting({1000}, 5));
    upload.begin({3}, Dtype::f32);
    const Tensor same_bytes = zeros({1000}, Dtype::f32, device);
    write(upload, counting({3}, 7));  // rewrites the pinned memory that the first copy reads
    CHECK(upload.arrive().to_vector<float>() == std::vector<float>{7, 8, 9});
    CHECK(same_bytes.to_vector<float>() == std::vector<float>(1000, 0));
  }
}

TEST_CASE("pinned memory is counted, and kept for the next time") {
  for (const Device device : gpus()) {
    const Allocator& pinned = pinned_allocator(device.index);
    const std::size_t before = pinned.statistics().current;
    for (int round = 0; round < 2; ++round) {
      Upload upload(device);
      write(upload, counting({5000}, 0));
      CHECK(pinned.statistics().current == before + Allocator::size_class(20'000));
    }
    CHECK(pinned.statistics().current == before);
    CHECK(pinned.statistics().cached >= 20'000);
  }
}

TEST_CASE("prefetched batches are the data set's, in physical batches of any size") {
  const Dataset data = numbered(40);
  const auto batches = [&](Device device) {
    BatchLoader loader(data, device);
    // No batch was announced.
    check_batches(loader, data, {{3, 1, 2}, {}, {5}});
    CHECK(loader.hits() == 0);
    // Physical batches of equal size, of decreasing size, and the beginning of the next batch.
    loader.prefetch(rows_between(0, 20), rows_between(20, 26));
    check_batches(
        loader, data,
        {rows_between(0, 6), rows_between(6, 12), rows_between(12, 17), rows_between(17, 20)});
    loader.prefetch(rows_between(20, 26));
    check_batches(loader, data, {rows_between(20, 26)});
    // A physical batch that was too large is requested again in two parts; at the end the batch
    // restarts from its first row.
    loader.prefetch(rows_between(10, 30));
    check_batches(loader, data,
                  {rows_between(10, 20), rows_between(10, 15), rows_between(15, 20),
                   rows_between(20, 25), rows_between(10, 12), rows_between(12, 14)});
    // An unannounced batch in between.
    check_batches(loader, data, {{39, 0}, rows_between(14, 16)});
    // A row that does not exist is not prefetched either.
    loader.prefetch(std::vector<std::int64_t>{0, 1, std::int64_t{1} << 40});
    check_batches(loader, data, {{0, 1}});
    CHECK(throws([&] { loader.batch(std::vector<std::int64_t>{40}); }, "row 40 of 40 samples"));
    return loader.hits();
  };
  CHECK(batches(cpu) == 0);
  for (const Device device : gpus()) CHECK(batches(device) == 7);
}

TEST_CASE("without free memory on a GPU, no batch is prefetched") {
  const Dataset data = numbered(2000);
  for (const Device device : gpus()) {
    Allocator& memory = allocator(device);
    BatchLoader loader(data, device);
    loader.prefetch(rows_between(0, 2000));
    memory.release_cached();
    memory.set_limit(memory.statistics().current + 30'000);
    const Tensor first = loader.batch(rows_between(0, 1000)).inputs;
    const Tensor second = loader.batch(rows_between(0, 500)).inputs;
    memory.set_limit(0);
    CHECK(loader.hits() == 0);
    CHECK(first.to_vector<float>()[2999] == 2999);
    CHECK(second.to_vector<float>()[1499] == 1499);
  }
}
