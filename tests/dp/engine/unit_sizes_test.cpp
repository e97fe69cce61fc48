// The bits of a unit's gradient do not depend on how many rows other units have: not its norm, and
// not what it adds to the sum.
#include <numeric>

#include "autograd/ops.h"
#include "core/random/philox.h"
#include "dp/engine/unit_batches.h"
#include "dp/sampling/make_sampler.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"

namespace sotto {
namespace {

constexpr std::int64_t units = 24, most = 40;  // rows of unit 0, whose gradients are zero

// Unit k > 0 has 1 to 5 rows.
std::vector<std::int64_t> rows_of(std::int64_t unit, std::int64_t rows_of_first) {
  const std::int64_t rows = unit == 0 ? rows_of_first : 1 + unit % 5;
  std::vector<std::int64_t> all(static_cast<std::size_t>(rows));
  std::iota(all.begin(), all.end(), most * unit);
  return all;
}

// What one model computes with the factors of each row, [rows, ...].
struct Case {
  const char* name;
  Shape weight, x, dy;
  std::function<Var(Tape&, Parameter&, const Tensor&)> forward;
};

std::vector<Case> cases() {
  const auto linear_of = [](Tape& tape, Parameter& w, const Tensor& x) {
    return linear(tape.input(x), tape.use(w));
  };
  const auto conv_of = [](Tape& tape, Parameter& w, const Tensor& x) {
    return conv(tape.input(x), tape.use(w), std::nullopt, {});
  };
  const auto bias_of = [](Tape& tape, Parameter& w, const Tensor& x) {
    return tape.input(x) * tape.use(w);
  };
  return {{"linear", {6, 9}, {9}, {6}, linear_of},
          {"linear over positions", {6, 9}, {11, 9}, {11, 6}, linear_of},
          {"convolution", {4, 3, 3, 3}, {3, 8, 8}, {4, 6, 6}, conv_of},
          {"elementwise", {9}, {9}, {9}, bias_of}};
}

Tensor normal_values(const Shape& of_row, std::int64_t row, bool zero) {
  PublicRandom random(static_cast<std::uint64_t>(row) + 5);
  std::vector<float> values(static_cast<std::size_t>(of_row.numel()));
  for (float& value : values) value = zero ? 0 : static_cast<float>(random.normal());
  return Tensor::from(values, of_row);
}

Tensor stacked(const Shape& of_row, std::span<const std::int64_t> rows, bool zero_first) {
  Shape shape = of_row;
  shape.insert(0, std::ssize(rows));
  const Tensor all = zeros(shape);
  for (std::int64_t k = 0; k < std::ssize(rows); ++k) {
    const std::int64_t row = rows[static_cast<std::size_t>(k)];
    copy_into(normal_values(of_row, row, zero_first && row < most), all.select(0, k));
  }
  return all;
}

struct Clipped {
  std::vector<double> sum, norms;  // norms without that of unit 0, in rising order
};

Clipped clipped(const Case& c, std::int64_t rows_of_first, bool mean, std::int64_t rows) {
  EngineOptions options;
  options.rows_of_unit = [&](std::int64_t unit) { return rows_of(unit, rows_of_first); };
  options.mean_of_rows = mean;
  const auto sampler = make_sampler(units, {.sampling = Sampling::full_batch});
  UnitBatches batches(options, *sampler, cpu);
  batches.set_rows(rows);
  Parameter w(normal_values(c.weight, 1000, false));
  Clipper clipper(flat_group({&w}, 1), {.sum_size = {.block = 1}});
  const SampledBatch batch = sampler->draw();
  batches.over(batch, clipper, [&](const PhysicalBatch& physical) {
    if (physical.rows.empty()) return clipper.add_zeros(physical.grouping.units);
    Tape tape({.private_data = true});
    const Var y = c.forward(tape, w, stacked(c.x, physical.rows, false));
    clipper.add(tape, sum_per_sample(y * tape.input(stacked(c.dy, physical.rows, true))),
                &physical.grouping);
  });
  std::vector<double> norms = clipper.statistics().norms[0];
  std::ranges::sort(norms);
  norms.erase(norms.begin());
  return {to_dtype(clipper.clipped_sums()[0].second, Dtype::f64).to_vector<double>(), norms};
}

TEST_CASE("a unit's number of rows shows in no bit of what others add") {
  for (const Case& c : cases()) {
    for (const bool mean : {false, true}) {
      const Clipped one = clipped(c, 1, mean, 200);
      for (const std::int64_t rows_of_first : {0, 2, 3, 9, 40}) {
        const Clipped other = clipped(c, rows_of_first, mean, 200);
        INFO(c.name << ", " << rows_of_first << " rows, mean " << mean);
        CHECK(other.norms == one.norms);
        CHECK(other.sum == one.sum);
      }
    }
  }
}

TEST_CASE("the size of physical batches shows in no bit of a sum over units of several rows") {
  for (const Case& c : cases()) {
    const Clipped whole = clipped(c, 7, false, 200);
    for (const std::int64_t rows : {1, 8, 33}) {
      const Clipped parts = clipped(c, 7, false, rows);
      INFO(c.name << ", " << rows << " rows at once");
      CHECK(parts.norms == whole.norms);
      CHECK(parts.sum == whole.sum);
    }
  }
}

}  // namespace
}  // namespace sotto
