#include "nn/data/batch_loader.h"

#include <atomic>
#include <numeric>
#include <stdexcept>
#include <thread>

#include "nn/data/tables/table_reader.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

using Rows = std::vector<std::int64_t>;

Rows between(std::int64_t begin, std::int64_t end) {
  Rows rows(static_cast<std::size_t>(end - begin));
  std::iota(rows.begin(), rows.end(), begin);
  return rows;
}

// Makes rows out of their numbers, and notes what was asked of it.
struct Source {
  std::vector<Rows> asked = {};
  std::thread::id thread = {};  // of the last call
  std::atomic<int> inside = 0;
  bool overlapped = false;

  Dataset operator()(std::span<const std::int64_t> rows) {
    overlapped = overlapped || inside++ > 0;
    asked.emplace_back(rows.begin(), rows.end());
    thread = std::this_thread::get_id();
    for (const std::int64_t row : rows)
      if (row == 13) throw std::runtime_error("row 13 is damaged");
    const Rows numbers(rows.begin(), rows.end());
    const Dataset made{.inputs = Tensor::from(numbers, {std::ssize(numbers), 1}),
                       .targets = Tensor::from(numbers, {std::ssize(numbers)}),
                       .units = numbers};
    --inside;
    return made;
  }
};

bool is(const Dataset& batch, const Rows& rows) {
  return batch.targets.to_vector<std::int64_t>() == rows && batch.units == rows &&
         batch.inputs.shape() == Shape{std::ssize(rows), 1};
}

}  // namespace

TEST_CASE("a source's batches are made ahead on a thread, in physical batches of any size") {
  Source source;
  {
    BatchLoader loader([&](auto rows) { return source(rows); }, cpu);
    CHECK(is(loader.batch(Rows{3, 1}), {3, 1}));
    CHECK(source.thread == std::this_thread::get_id());
    CHECK(loader.hits() == 0);
    loader.prefetch(between(20, 40), between(50, 53));
    CHECK(is(loader.batch(between(20, 28)), between(20, 28)));
    CHECK(is(loader.batch(between(28, 36)), between(28, 36)));
    // Memory ran short: a part of what was made ahead, and the rest.
    CHECK(is(loader.batch(between(36, 38)), between(36, 38)));
    CHECK(is(loader.batch(between(38, 40)), between(38, 40)));
    CHECK(is(loader.batch(between(50, 52)), between(50, 52)));
    CHECK(loader.hits() == 4);
    // Not what was announced.
    CHECK(is(loader.batch(Rows{7}), {7}));
    CHECK(loader.hits() == 4);
    loader.prefetch(between(60, 70));
    CHECK(is(loader.batch(between(60, 65)), between(60, 65)));
  }
  CHECK_FALSE(source.overlapped);
  CHECK(source.asked.back() == between(65, 70));
  CHECK(source.thread != std::this_thread::get_id());
}

TEST_CASE("a batch that was not announced is not taken for one made ahead") {
  Source source;
  BatchLoader loader([&](auto rows) { return source(rows); }, cpu);
  loader.prefetch(between(0, 6));
  CHECK(is(loader.batch(between(0, 3)), between(0, 3)));
  CHECK(is(loader.batch(Rows{7, 4}), {7, 4}));
  CHECK(loader.hits() == 0);
  CHECK(is(loader.batch(between(3, 6)), between(3, 6)));
  CHECK_FALSE(source.overlapped);
}

TEST_CASE("a source's failure shows where its rows are asked for") {
  Source source;
  BatchLoader loader([&](auto rows) { return source(rows); }, cpu);
  loader.prefetch(between(10, 16));
  CHECK(is(loader.batch(between(10, 12)), between(10, 12)));
  CHECK(throws<std::runtime_error>([&] { loader.batch(between(12, 14)); }, "row 13 is damaged"));
  CHECK(is(loader.batch(between(14, 16)), between(14, 16)));
  BatchLoader wrong([&](auto) { return source(Rows{1, 2}); }, cpu);
  CHECK(throws([&] { wrong.batch(Rows{1}); }, "the source made 2 samples for 1 rows"));
}

TEST_CASE("rows of mapped files that were announced are read as they are") {
  const TemporaryFolder folder;
  std::string rows = "x,y\n";
  for (int k = 0; k < 5000; ++k) rows += fmt::format("{},{}\n", k, k);
  folder.write("t.csv", rows);
  const TableSchema schema = TableSchema::from_json(R"({"columns": [
      {"name": "x", "kind": "number", "mean": 0, "deviation": 1},
      {"name": "y", "kind": "label", "mean": 0, "deviation": 1}]})");
  const Dataset data = read_table(folder.path("t.csv"), schema, {}, folder.path());
  CHECK(data.inputs.in_block());
  BatchLoader loader(data, cpu);
  const Rows asked{4999, 0, 2500, 2500};
  loader.prefetch(asked, Rows{-1, 5000});
  CHECK(loader.batch(asked).inputs.to_vector<float>() == std::vector<float>{4999, 0, 2500, 2500});
  CHECK_FALSE(read_table(folder.path("t.csv"), schema).inputs.in_block());
}

}  // namespace sotto
