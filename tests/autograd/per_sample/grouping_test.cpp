// Privacy units of several rows: their gradients against loops, to the bit where rows are in order.
// File tags: [sanitized]
#include "autograd/per_sample/grouping.h"

#include <cmath>

#include "autograd/per_sample/per_sample_grad.h"
#include "core/random/philox.h"
#include "tests/support/per_sample_uses.h"
#include "tests/support/throws.h"

using namespace sotto;

TEST_CASE("a privacy unit's gradient is the sum or the mean of its rows") {
  for_each_use([](const PerSampleGrad& f, PublicRandom& random) {
    Grouping grouping{.unit_of_row = {}, .units = draw(random, 1, 4), .mean = one_in(random, 2)};
    for (std::int64_t n = 0; n < f.samples(); ++n)
      grouping.unit_of_row.push_back(draw(random, -1, grouping.units - 1));
    const auto rows = rows_of(f);
    std::vector<std::vector<double>> units(
        static_cast<std::size_t>(grouping.units),
        std::vector<double>(static_cast<std::size_t>(f.shape().numel()), 0.0));
    std::vector<double> count(units.size(), 0.0);
    for (std::size_t n = 0; n < rows.size(); ++n) {
      if (grouping.unit_of_row[n] < 0) continue;
      const auto unit = static_cast<std::size_t>(grouping.unit_of_row[n]);
      ++count[unit];
      for (std::size_t k = 0; k < rows[n].size(); ++k) units[unit][k] += rows[n][k];
    }
    std::vector<double> flat, weights;
    for (std::size_t u = 0; u < units.size(); ++u) {
      for (double& value : units[u])
        flat.push_back(value /= grouping.mean && count[u] > 0 ? count[u] : 1);
      weights.push_back(one_in(random, 3) ? 0 : random.uniform());
    }
    const PerSampleGrad grouped = f.group(grouping);
    REQUIRE(grouped.samples() == grouping.units);
    CHECK(grouped.shape() == f.shape());
    check_close(grouped.materialize(), flat);
    check_close(grouped.sum(Tensor::from(weights, {grouping.units})),
                weighted(units, weights, f.shape().numel()));
    for (const NormMethod norm_method : norm_methods)
      check_close(dot(grouped, grouped, norm_method), products(units, units));
  });
}

TEST_CASE("units whose rows follow one another have the bits of units whose rows are gathered") {
  for_each_use([](const PerSampleGrad& f, PublicRandom& random) {
    const std::int64_t each = draw(random, 1, std::max<std::int64_t>(1, f.samples())),
                       units = f.samples() / each;
    Grouping in_order{.unit_of_row = {}, .units = units, .mean = one_in(random, 2)};
    for (std::int64_t row = 0; row < f.samples(); ++row)
      in_order.unit_of_row.push_back(row < units * each ? row / each : -1);
    CHECK(in_order.rows_each() == each);
    // One more unit, without rows, has all rows gathered.
    Grouping gathered = in_order;
    gathered.units = units + 1;
    gathered.width = each;
    CHECK(gathered.rows_each() == 0);
    const PerSampleGrad x = f.group(in_order), y = f.group(gathered);
    CHECK(same_bits(x.materialize(), y.materialize().slice(0, 0, units)));
    for (const NormMethod norm_method : norm_methods) {
      CHECK(same_bits(dot(x, x, norm_method), dot(y, y, norm_method).slice(0, 0, units)));
    }
  });
}

TEST_CASE("the number of rows that units in order have") {
  const auto each = [](std::vector<std::int64_t> unit_of_row, std::int64_t units,
                       std::int64_t width = 0) {
    return Grouping{.unit_of_row = std::move(unit_of_row), .units = units, .width = width}
        .rows_each();
  };
  CHECK(each({0, 0, 1, 1}, 2) == 2);
  CHECK(each({0, 0, 1, 1, -1}, 2) == 2);
  CHECK(each({0, 0, 1, 1}, 2, 2) == 2);
  CHECK(each({0, 1}, 2) == 1);
  CHECK(each({-1, -1}, 0) == 1);
  CHECK(each({}, 0) == 1);
  CHECK(each({0, 0, 1, 1}, 2, 3) == 0);     // padded
  CHECK(each({0, 0, 1}, 2) == 0);           // a unit with fewer
  CHECK(each({0, 1, 0, 1}, 2) == 0);        // not in order
  CHECK(each({-1, 0, 0}, 1) == 0);          // a row before the first unit's
  CHECK(each({0, 0, -1, 1, 1}, 2) == 0);    // a row between
  CHECK(each({0, 0, 1, 1, 2, 2}, 2) == 0);  // a row of a unit past the last
  CHECK(each({-1, -1}, 1) == 0);            // a unit without rows
}

TEST_CASE("a grouping names every row and no unit past the last") {
  PublicRandom random(1);
  const PerSampleGrad f = random_dense(random, {.n = 3, .o = 2, .i = 2});
  CHECK(throws(
      [&] {
        f.group({.unit_of_row = {0, 0}, .units = 1});
      },
      "2 rows in the grouping, 3 in the batch"));
  CHECK(throws([&] { f.group({.unit_of_row = {0, 0, 1}, .units = 1}); }, "unit 1 of 1"));
}

namespace {

// Two pictures of one pixel, whose gradients nearly cancel, are one unit.
struct TwoPictures {
  static constexpr std::int64_t channels = 120, outputs = 2;
  std::vector<float> x;

  explicit TwoPictures(PublicRandom& random) : x(2 * channels) {
    for (std::size_t k = 0; k < channels; ++k) {
      x[k] = static_cast<float>(1 + 0.3 * random.uniform());
      const double apart = (k % 2 == 0 ? -0.35 : 0.35) * (0.8 + 0.4 * random.uniform());
      x[channels + k] = static_cast<float>(x[k] * (1 + apart));
    }
  }
  // The norm of the unit's gradient over the norm that is charged for it, less 1.
  double excess() const {
    const PerSampleGrad rows = PerSampleGrad::patches(
        Tensor::from(std::vector<float>{1, 1, -1, -1}, {2, outputs, 1, 1, 1}),
        Tensor::from(x, {2, channels, 1, 1, 1}), Window{}, {outputs, channels});
    NormErrorBounds bounds;
    const Tensor squares =
        squared_norm({rows.group({.unit_of_row = {0, 0}, .units = 1})}, NormMethod::ghost, &bounds);
    double square = 0;
    for (std::size_t k = 0; k < channels; ++k)
      square += outputs * std::pow(double{x[k]} - double{x[channels + k]}, 2);
    return std::sqrt(square) / (std::sqrt(squares.item()) + bounds.error_bounds[0]) - 1;
  }
};

}  // namespace

TEST_CASE("the rounding of Gram products of joined pictures is within what is charged") {
  constexpr double margin = 0x1p-20;
  PublicRandom random(1);
  TwoPictures best(random);
  double most = best.excess();
  for (int tries = 0; tries < 3000; ++tries) {
    TwoPictures other = best;
    const double change = std::ldexp(random.uniform() - 0.5, -draw(random, 0, 19));
    other.x[random.below(other.x.size())] *= static_cast<float>(1 + change);
    const double excess = other.excess();
    if (excess > most) most = excess, best = other;
  }
  CHECK(most <= margin);
}
