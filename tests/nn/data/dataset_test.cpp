#include "nn/data/dataset.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

// Sample k holds 10 k, 10 k + 1, 10 k + 2 and has the target 100 + k.
Dataset numbered(std::int64_t count) {
  std::vector<float> inputs;
  std::vector<std::int64_t> targets;
  for (std::int64_t k = 0; k < count; ++k) {
    for (int j = 0; j < 3; ++j) inputs.push_back(static_cast<float>(10 * k + j));
    targets.push_back(100 + k);
  }
  return {Tensor::from(inputs, {count, 3, 1}), Tensor::from(targets, {count})};
}

using Rows = std::vector<std::int64_t>;

// The rows of one epoch, batch after batch.
Rows epoch(ShuffledBatches& batches) {
  Rows rows;
  for (std::int64_t k = 0; k < batches.batches(); ++k) {
    const Rows next = batches.next();
    rows.insert(rows.end(), next.begin(), next.end());
  }
  return rows;
}

}  // namespace

TEST_CASE("a batch holds the chosen samples in the chosen order") {
  const Dataset data = numbered(7);
  const Dataset batch = data.batch(Rows{6, 0, 6, 3});
  CHECK(batch.size() == 4);
  CHECK(batch.inputs.shape() == Shape{4, 3, 1});
  CHECK(batch.inputs.to_vector<float>() ==
        std::vector<float>{60, 61, 62, 0, 1, 2, 60, 61, 62, 30, 31, 32});
  CHECK(batch.targets.to_vector<std::int64_t>() == Rows{106, 100, 106, 103});
  CHECK_FALSE(batch.inputs.shares_storage(data.inputs));
}

TEST_CASE("a large batch equals its samples taken one at a time") {
  const Dataset data = numbered(1000);
  Rows rows(3000);
  for (std::size_t k = 0; k < rows.size(); ++k) rows[k] = static_cast<std::int64_t>(k * 617 % 1000);
  const std::vector<float> inputs = data.batch(rows).inputs.to_vector<float>();
  for (std::size_t k = 0; k < rows.size(); ++k) {
    REQUIRE(inputs[3 * k + 2] == static_cast<float>(10 * rows[k] + 2));
  }
}

TEST_CASE("a batch of no samples keeps the shape of one") {
  const Dataset batch = numbered(4).batch(Rows{});
  CHECK(batch.size() == 0);
  CHECK(batch.inputs.shape() == Shape{0, 3, 1});
  CHECK(batch.targets.shape() == Shape{0});
  CHECK(batch.batch(Rows{}).size() == 0);
  CHECK_THROWS_AS(batch.batch(Rows{0}), std::invalid_argument);
}

TEST_CASE("rows outside the data set are refused") {
  const Dataset data = numbered(4);
  CHECK_THROWS_WITH(data.batch(Rows{1, 4}), "batch: row 4 of 4 samples");
  CHECK_THROWS_WITH(data.batch(Rows{-1}), "batch: row -1 of 4 samples");
}

TEST_CASE("a slice is a part of the same storage, and batches are taken from it") {
  const Dataset data = numbered(6);
  const Dataset part = data.slice(2, 5);
  CHECK(part.size() == 3);
  CHECK(part.inputs.shares_storage(data.inputs));
  CHECK(part.batch(Rows{2}).targets.to_vector<std::int64_t>() == Rows{104});
  CHECK(part.batch(Rows{0}).inputs.to_vector<float>() == std::vector<float>{20, 21, 22});
  CHECK_THROWS_AS(part.batch(Rows{3}), std::invalid_argument);
  CHECK(data.slice(6, 6).size() == 0);
  CHECK_THROWS_AS(data.slice(4, 7), std::invalid_argument);
  CHECK_THROWS_AS(data.slice(4, 3), std::invalid_argument);
  CHECK_THROWS_AS(data.slice(-1, 3), std::invalid_argument);
}

TEST_CASE("inputs and targets that do not belong together are refused") {
  const Dataset data = numbered(6);
  CHECK_THROWS_WITH((Dataset{data.inputs, data.slice(0, 5).targets}.size()),
                    "dataset: sample counts differ: inputs (6, 3, 1), targets (5)");
  CHECK_THROWS_AS((Dataset{data.inputs, Tensor()}.size()), std::invalid_argument);
  CHECK_THROWS_AS((Dataset{Tensor::empty({}), data.targets}.size()), std::invalid_argument);
  CHECK_THROWS_AS((Dataset{Tensor::empty({4, 6}).transpose(0, 1), data.targets}.size()),
                  std::invalid_argument);
}

namespace {

// The same samples with lengths 1000 + k and units of one, two or three samples, interleaved.
Dataset with_fields(std::int64_t count) {
  Dataset data = numbered(count);
  std::vector<std::int64_t> lengths;
  for (std::int64_t k = 0; k < count; ++k) {
    lengths.push_back(1000 + k);
    data.units.push_back(50 - (k * k) % 17);
  }
  data.fields["lengths"] = Tensor::from(lengths, {count});
  return data;
}

// Checks that all tensors of each sample still belong together; returns the samples.
Rows samples_of(const Dataset& data, const Dataset& all) {
  const Rows targets = data.targets.to_vector<std::int64_t>();
  const Rows lengths = data.field("lengths").to_vector<std::int64_t>();
  const std::vector<float> inputs = data.inputs.to_vector<float>();
  Rows samples;
  for (std::size_t k = 0; k < targets.size(); ++k) {
    const std::int64_t sample = targets[k] - 100;
    CHECK(lengths[k] == 1000 + sample);
    CHECK(inputs[3 * k] == static_cast<float>(10 * sample));
    CHECK(data.units[k] == all.units[static_cast<std::size_t>(sample)]);
    samples.push_back(sample);
  }
  return samples;
}

}  // namespace

TEST_CASE("a data set's hash is of every sample, its place, its fields and its unit") {
  const Dataset data = with_fields(40);
  const std::uint64_t hash = data.hash();
  CHECK(with_fields(40).hash() == hash);
  CHECK(data.hash(1) != hash);
  std::vector<Dataset> others(6, data);
  others[0] = data.slice(0, 39);
  others[1] = data.shuffle(3);
  others[2].units[7] += 1;
  others[3].fields["widths"] = others[3].fields["lengths"];
  others[3].fields.erase("lengths");
  others[4].inputs = reshape(data.inputs, {40, 1, 3});
  others[5].units.clear();
  for (const Dataset& other : others) CHECK(other.hash() != hash);
}

TEST_CASE("fields and units go with their samples") {
  const Dataset data = with_fields(20);
  CHECK(samples_of(data.batch(Rows{7, 0, 7}), data) == Rows{7, 0, 7});
  CHECK(samples_of(data.slice(3, 6), data) == Rows{3, 4, 5});
  CHECK(samples_of(data.slice(2, 9).batch(Rows{1, 6}), data) == Rows{3, 8});
  CHECK(throws([&] { data.field("masks"); }, "dataset: no field masks among: lengths"));
}

TEST_CASE("fields and units of another number of samples are refused") {
  Dataset data = with_fields(6);
  data.fields["short"] = Tensor::empty({5});
  CHECK(throws([&] { data.size(); }, "sample counts differ: inputs (6, 3, 1), short (5)"));
  data.fields = {{"none", Tensor()}};
  CHECK(throws([&] { data.batch(Rows{0}); }, "none need a sample axis"));
  data.fields = {};
  data.units.pop_back();
  CHECK(throws([&] { data.size(); }, "6 samples and the units of 5"));
}

TEST_CASE("units have their samples in rising order") {
  Dataset data = numbered(5);
  CHECK(data.unit_count() == 5);
  CHECK(data.rows_of_units() == std::vector<Rows>{{0}, {1}, {2}, {3}, {4}});
  data.units = {9, -1, 9, 4, -1};
  CHECK(data.unit_count() == 3);
  CHECK(data.rows_of_units() == std::vector<Rows>{{1, 4}, {3}, {0, 2}});
}

TEST_CASE("a split parts samples, and never a unit") {
  const Dataset data = with_fields(60);
  for (const double fraction : {0.0, 0.3, 0.5, 1.0}) {
    const auto [first, second] = data.split(fraction, 3);
    CHECK(first.unit_count() == std::llround(fraction * static_cast<double>(data.unit_count())));
    CHECK(first.unit_count() + second.unit_count() == data.unit_count());
    Rows samples = samples_of(first, data);
    CHECK(std::is_sorted(samples.begin(), samples.end()));
    const Rows others = samples_of(second, data);
    samples.insert(samples.end(), others.begin(), others.end());
    std::sort(samples.begin(), samples.end());
    CHECK(samples == samples_of(data, data));
  }
  const Dataset plain = numbered(60);
  const Rows first = plain.split(0.5, 3).first.targets.to_vector<std::int64_t>();
  CHECK(first.size() == 30);
  CHECK(first == plain.split(0.5, 3).first.targets.to_vector<std::int64_t>());
  CHECK(first != plain.split(0.5, 4).first.targets.to_vector<std::int64_t>());
  CHECK(throws([&] { plain.split(1.1, 3); }, "split: a fraction of 1.1"));
}

TEST_CASE("shuffling changes the order of samples and nothing else") {
  const Dataset data = with_fields(40);
  const Dataset shuffled = data.shuffle(8);
  Rows samples = samples_of(shuffled, data);
  CHECK(samples != samples_of(data, data));
  CHECK(samples == samples_of(data.shuffle(8), data));
  CHECK(samples != samples_of(data.shuffle(9), data));
  std::sort(samples.begin(), samples.end());
  CHECK(samples == samples_of(data, data));
}

TEST_CASE("every epoch hands out each row once, in an order of its own") {
  ShuffledBatches batches(103, 10, 5);
  CHECK(batches.batches() == 11);
  const Rows first = epoch(batches);
  CHECK(batches.position() == ShuffledBatches::Position{1, 0});
  const Rows second = epoch(batches);
  CHECK(first != second);
  Rows all(103);
  std::iota(all.begin(), all.end(), 0);
  CHECK(first != all);
  for (Rows rows : {first, second}) {
    std::sort(rows.begin(), rows.end());
    CHECK(rows == all);
  }
}

TEST_CASE("batches have the requested size, and the last one the remaining rows") {
  ShuffledBatches batches(7, 3, 1);
  CHECK(batches.next().size() == 3);
  CHECK(batches.next().size() == 3);
  CHECK(batches.next().size() == 1);
  ShuffledBatches large(7, 30, 1);
  CHECK(large.next().size() == 7);
  CHECK(large.next().size() == 7);
}

TEST_CASE("peek() returns the batch that next() will return, also over the end of an epoch") {
  ShuffledBatches batches(10, 4, 3), same(10, 4, 3);
  for (int k = 0; k < 7; ++k) {
    const auto position = batches.position();
    const std::vector<std::int64_t> next = batches.peek();
    CHECK(batches.position() == position);
    CHECK(batches.next() == next);
    CHECK(same.next() == next);
  }
}

TEST_CASE("the order is a function of the seed") {
  ShuffledBatches a(50, 8, 3);
  ShuffledBatches b(50, 8, 3);
  ShuffledBatches c(50, 8, 4);
  const Rows order = epoch(a);
  CHECK(order == epoch(b));
  CHECK(order != epoch(c));
}

TEST_CASE("a run resumed at a position draws what the unbroken run draws") {
  ShuffledBatches unbroken(25, 4, 9);
  for (int k = 0; k < 20; ++k) {
    ShuffledBatches resumed(25, 4, 9);
    resumed.seek(unbroken.position());
    ShuffledBatches other = unbroken;
    for (int j = 0; j < 9; ++j) REQUIRE(resumed.next() == other.next());
    unbroken.next();
  }
}

TEST_CASE("positions where no batch begins are refused") {
  ShuffledBatches batches(25, 4, 9);
  CHECK_THROWS_AS(batches.seek({0, 25}), std::invalid_argument);
  CHECK_THROWS_AS(batches.seek({0, 3}), std::invalid_argument);
  CHECK_THROWS_AS(batches.seek({-1, 0}), std::invalid_argument);
  CHECK_THROWS_AS(batches.seek({0, -4}), std::invalid_argument);
  CHECK_THROWS_AS(ShuffledBatches(0, 4, 9), std::invalid_argument);
  CHECK_THROWS_AS(ShuffledBatches(4, 0, 9), std::invalid_argument);
}
