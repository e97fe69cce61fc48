// The division of privacy units into physical batches.
#include "dp/engine/unit_batches.h"

#include <numeric>

#include "dp/sampling/make_sampler.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

using Rows = std::vector<std::int64_t>;

// The physical batches of all 10 units.
std::vector<PhysicalBatch> batches_of_all(const EngineOptions& options, std::int64_t rows,
                                          Device device) {
  const auto sampler = make_sampler(10, {.sampling = Sampling::full_batch});
  UnitBatches batches(options, *sampler, device);
  CHECK(!batches.rows());
  batches.set_rows(rows);
  Parameter weight(zeros({1}));
  Clipper clipper({{{&weight}, 1}}, {.sum_size = {.block = 96}});
  std::vector<PhysicalBatch> all;
  const SampledBatch batch = sampler->draw();
  batches.over(batch, clipper, [&](PhysicalBatch physical) {
    clipper.add_zeros(physical.grouping.units);
    all.push_back(std::move(physical));
  });
  return all;
}

// Unit k has the row 2 k twice, and the row 2 k + 1.
EngineOptions three_rows_each() {
  return {.rows_of_unit = [](std::int64_t unit) { return Rows{2 * unit, 2 * unit, 2 * unit + 1}; }};
}

}  // namespace

TEST_CASE("padding rows are copies of the first row and belong to no unit") {
  PhysicalBatch batch{{4, 7}, {14, 17}, {.unit_of_row = {0, 1}, .units = 2}};
  batch.pad(2);
  CHECK(batch.rows == Rows{4, 7});
  batch.pad(4);
  CHECK(batch.rows == Rows{4, 7, 4, 4});
  CHECK(batch.draws == Rows{14, 17, 14, 14});
  CHECK(batch.grouping.unit_of_row == Rows{0, 1, -1, -1});
  CHECK(batch.grouping.units == 2);
}

TEST_CASE("the rows of a unit are in one physical batch, and equal ones have draws of their own") {
  const std::vector<PhysicalBatch> all = batches_of_all(three_rows_each(), 7, cpu);
  REQUIRE(all.size() == 5);
  constexpr std::int64_t again = std::int64_t{1} << 40;
  for (std::size_t k = 0; k < all.size(); ++k) {
    const auto first = static_cast<std::int64_t>(4 * k);
    CHECK(all[k].rows == Rows{first, first, first + 1, first + 2, first + 2, first + 3});
    // By the unit and the place within it.
    const auto unit = static_cast<std::int64_t>(2 * k);
    CHECK(all[k].draws == Rows{unit, unit + again, unit + 2 * again, unit + 1, unit + 1 + again,
                               unit + 1 + 2 * again});
    CHECK(all[k].grouping.unit_of_row == Rows{0, 0, 0, 1, 1, 1});
  }
}

TEST_CASE("on a GPU all physical batches have one size, on the CPU they have no padding") {
  const Device gpu{DeviceKind::cuda, 0};
  for (const PhysicalBatch& batch : batches_of_all(three_rows_each(), 7, gpu)) {
    CHECK(batch.rows.size() == 7);
    CHECK(batch.grouping.unit_of_row.back() == -1);
  }
  std::size_t rows = 0;
  for (const PhysicalBatch& batch : batches_of_all({}, 4, cpu)) {
    CHECK(batch.rows.size() <= 4);
    CHECK(batch.rows == batch.draws);
    rows += batch.rows.size();
  }
  CHECK(rows == 10);
}

TEST_CASE("a physical batch has units of one padded size, the next power of two") {
  const std::vector<std::int64_t> sizes{0, 3, 1, 4, 2, 1, 0, 5, 8, 1};
  const EngineOptions options{.rows_of_unit = [&](std::int64_t unit) {
    Rows rows(static_cast<std::size_t>(sizes[static_cast<std::size_t>(unit)]));
    std::iota(rows.begin(), rows.end(), 10 * unit);
    return rows;
  }};
  std::vector<Rows> units;
  std::vector<std::int64_t> widths;
  for (const PhysicalBatch& batch : batches_of_all(options, 8, cpu)) {
    widths.push_back(batch.grouping.width);
    Rows& own = units.emplace_back();
    for (const std::int64_t row : batch.rows)
      if (own.empty() || own.back() != row / 10) own.push_back(row / 10);
  }
  CHECK(widths == std::vector<std::int64_t>{0, 1, 2, 4, 8, 8});
  CHECK(units == std::vector<Rows>{{}, {2, 5, 9}, {4}, {1, 3}, {7}, {8}});
}

TEST_CASE("a physical batch has units of one bucket, whole blocks of them") {
  const auto bucket = [](std::int64_t unit) { return unit * 7 % 3; };
  for (EngineOptions options : {EngineOptions(), three_rows_each()}) {
    options.bucket_of_unit = bucket;
    std::vector<std::int64_t> buckets, units;
    for (const PhysicalBatch& batch : batches_of_all(options, 64, cpu)) {
      buckets.push_back(bucket(batch.draws[0]));
      for (const std::int64_t unit : batch.draws) {
        if (unit >= 10) continue;  // a further row
        CHECK(bucket(unit) == buckets.back());
        units.push_back(unit);
      }
    }
    CHECK(buckets == std::vector<std::int64_t>{0, 1, 2});
    CHECK(units == std::vector<std::int64_t>{0, 3, 6, 9, 1, 4, 7, 2, 5, 8});
  }
  EngineOptions wrong;
  wrong.bucket_of_unit = [](std::int64_t unit) { return unit - 4; };
  CHECK(throws([&] { batches_of_all(wrong, 4, cpu); }, "the bucket of unit 0 is -4"));
}

TEST_CASE("the rows to prefetch are those of the physical batches, padding included") {
  for (const Device device : {cpu, Device{DeviceKind::cuda, 0}}) {
    Rows told, computed;
    EngineOptions options = three_rows_each();
    options.prefetch_rows = [&](std::span<const std::int64_t> rows) {
      told.assign(rows.begin(), rows.end());
    };
    for (const PhysicalBatch& batch : batches_of_all(options, 7, device))
      computed.insert(computed.end(), batch.rows.begin(), batch.rows.end());
    CHECK(told == computed);
  }
}

namespace {

// Draws the units that it is told.
class ChosenUnits final : public Sampler {
 public:
  explicit ChosenUnits(Rows units)
      : Sampler(200, {.sampling = Sampling::poisson, .sampling_rate = 0.5}),
        units_(std::move(units)) {}
  double expected_batch_size() const override { return 100; }

 protected:
  Rows sample(std::int64_t /*index_in_epoch*/) override { return units_; }
  bool secure() const override { return false; }

 private:
  Rows units_;
};

// The rows of each rank.
std::vector<Rows> rows_of_ranks(const EngineOptions& options, const Rows& units, int ranks) {
  std::vector<Rows> all;
  for (int rank = 0; rank < ranks; ++rank) {
    ChosenUnits sampler(units);
    UnitBatches batches(options, sampler, cpu);
    batches.set_rows(16);
    Parameter weight(zeros({1}));
    Clipper clipper({{{&weight}, 1}}, {.sum_size = {.block = 96}});
    Rows rows;
    const auto note = [&](const PhysicalBatch& batch) {
      clipper.add_zeros(batch.grouping.units);
      rows.insert(rows.end(), batch.rows.begin(), batch.rows.end());
    };
    batches.over(sampler.draw(), clipper, note, {rank, ranks});
    all.push_back(std::move(rows));
  }
  return all;
}

}  // namespace

TEST_CASE("a unit that leaves a batch moves no other unit to another rank") {
  EngineOptions in_buckets;
  in_buckets.bucket_of_unit = [](std::int64_t unit) { return unit % 5; };
  for (const EngineOptions& options : {EngineOptions(), three_rows_each(), in_buckets}) {
    for (const int ranks : {2, 3, 7}) {
      CAPTURE(ranks, static_cast<bool>(options.rows_of_unit),
              static_cast<bool>(options.bucket_of_unit));
      Rows units;
      for (std::int64_t unit = 0; unit < 200; unit += 1 + unit % 3) units.push_back(unit);
      const std::vector<Rows> all = rows_of_ranks(options, units, ranks);
      std::size_t computed = 0;
      for (const Rows& of_rank : all) {
        CHECK(!of_rank.empty());
        computed += of_rank.size();
      }
      CHECK(computed == units.size() * (options.rows_of_unit ? 3 : 1));
      for (std::size_t left_out = 0; left_out < units.size(); ++left_out) {
        Rows rest = units;
        rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(left_out));
        std::vector<Rows> expected = all;
        for (Rows& rows : expected)
          std::erase_if(rows, [&](std::int64_t row) {
            return (options.rows_of_unit ? row / 2 : row) == units[left_out];
          });
        CHECK(rows_of_ranks(options, rest, ranks) == expected);
      }
    }
  }
}
