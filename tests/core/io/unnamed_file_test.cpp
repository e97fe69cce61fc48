// File tags: [sanitized]
#include "core/io/unnamed_file.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include <sys/stat.h>

#include "tests/support/catch.h"

#include "core/error.h"
#include "core/tensor.h"
#include "tests/support/gzipped.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

using namespace sotto;

TEST_CASE("bytes that were appended to an unnamed file are those that are mapped") {
  const TemporaryFolder folder;
  std::optional<UnnamedFile> file(folder.path());
  std::vector<float> values(5000);
  for (std::size_t k = 0; k < values.size(); ++k) values[k] = static_cast<float>(k);
  for (std::size_t k = 0; k < values.size(); k += 50) {
    file->append(std::as_bytes(std::span(values).subspan(k, 50)));
  }
  CHECK(file->size() == 20'000);
  const Tensor x = Tensor::from_block(file->map(), {100, 50}, Dtype::f32);
  file.reset();
  CHECK(x.to_vector<float>() == values);
  CHECK(x[99].slice(0, 0, 2).to_vector<float>() == std::vector<float>{4950, 4951});
  CHECK(x.device() == cpu);
  CHECK(x.sole());
}

TEST_CASE("an unnamed file is not to be found in its folder") {
  const TemporaryFolder folder;
  UnnamedFile file(folder.path());
  file.append(std::as_bytes(std::span("secret")));
  CHECK(std::filesystem::is_empty(folder.path()));
}

TEST_CASE("a change of mapped bytes stays in the mapping") {
  const TemporaryFolder folder;
  UnnamedFile file(folder.path());
  file.append(std::as_bytes(std::span("abc", 3)));
  const auto first = file.map(), second = file.map();
  *static_cast<char*>(first.get()) = 'x';
  CHECK(*static_cast<char*>(second.get()) == 'a');
}

TEST_CASE("a folder that is not there is named") {
  CHECK(throws<SystemFailure>([] { UnnamedFile("/no/such/folder"); }, "/no/such/folder"));
}

TEST_CASE("a tensor's block lives as long as the tensor's storage, and no allocator counts it") {
  const auto block = std::make_shared<std::vector<double>>(6, 1.5);
  Tensor view;
  {
    const Tensor x = Tensor::from_block({block, block->data()}, {2, 3}, Dtype::f64);
    view = x.select(1, 0);
    CHECK(x.at({1, 2}) == 1.5);
    CHECK(x.memory_label() == MemoryLabel{});
  }
  CHECK(block.use_count() == 2);
  view = Tensor();
  CHECK(block.use_count() == 1);
}
