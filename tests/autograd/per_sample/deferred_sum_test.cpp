// A sum that is computed some rows at a time has the bits of one that is computed at once.
#include "autograd/per_sample/deferred_sum.h"

#include <algorithm>

#include "autograd/per_sample/per_sample_grad.h"
#include "core/random/philox.h"
#include "kernels/host_device/geometry.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"

namespace sotto {
namespace {

constexpr double spacing = 0x1p-30;

class Draws {
 public:
  Tensor normal(const Shape& shape) {
    std::vector<float> all(static_cast<std::size_t>(shape.numel()));
    for (float& value : all) value = static_cast<float>(random_.normal());
    return Tensor::from(all, shape);
  }
  // Numbers of a table's rows, some of them repeated and some -1.
  Tensor ids(const Shape& shape, std::int64_t rows) {
    std::vector<std::int64_t> all(static_cast<std::size_t>(shape.numel()));
    for (std::int64_t& id : all)
      id = static_cast<std::int64_t>(random_.word() % static_cast<std::uint64_t>(rows + 1)) - 1;
    return Tensor::from(all, shape);
  }
  // One sample's weight is 0.
  Tensor weights(std::int64_t samples) {
    std::vector<double> all;
    for (std::int64_t n = 0; n < samples; ++n) all.push_back(n == 1 ? 0 : random_.uniform());
    return Tensor::from(all, {samples});
  }

 private:
  PublicRandom random_{7};
};

BlockEnds pairs(std::int64_t samples) {
  return [samples](std::int64_t max) {
    std::vector<std::int64_t> ends;
    const std::int64_t step = std::min<std::int64_t>(max, 2);
    for (std::int64_t at = step; at < samples; at += step) ends.push_back(at);
    ends.push_back(samples);
    return ends;
  };
}

std::vector<double> at_once(const std::vector<PerSampleGrad>& uses, const Tensor& weights,
                            const BlockEnds& ends) {
  const RoundedSum sum{zeros(uses[0].shape(), Dtype::f64), spacing};
  for (const PerSampleGrad& use : uses) use.add_to(sum, weights, ends, std::ssize(uses));
  return sum.total.to_vector<double>();
}

std::vector<double> by_rows(const DeferredSum& sum, std::int64_t step) {
  const std::int64_t rows = sum.shape()[0];
  const Tensor all = zeros({rows, sum.shape().numel() / rows}, Dtype::f64);
  for (std::int64_t at = 0; at < rows; at += step)
    sum.add_rows(at, std::min(rows, at + step), all.slice(0, at, std::min(rows, at + step)));
  return all.to_vector<double>();
}

void check_rows(const std::vector<PerSampleGrad>& uses, const Tensor& weights) {
  for (const BlockEnds& ends : {BlockEnds(), pairs(weights.numel())}) {
    const auto sum = DeferredSum::of(uses, weights, ends, spacing);
    REQUIRE(sum != nullptr);
    const std::vector<double> expected = at_once(uses, weights, ends);
    for (const std::int64_t step : {1, 7, 1000}) {
      const bool same = by_rows(*sum, step) == expected;
      CHECK(same);
    }
    const bool whole = sum->whole().to_vector<double>() == expected;
    CHECK(whole);
  }
}

TEST_CASE("rows of a deferred sum have the bits of the whole one, in every form") {
  Draws draw;
  const Tensor weights = draw.weights(5);
  for (const std::int64_t positions : {1, 3, 40, 500}) {
    const auto outer = PerSampleGrad::outer(draw.normal({5, positions, 61}),
                                            draw.normal({5, positions, 20}), {61, 20});
    check_rows({outer}, weights);
    const auto table = PerSampleGrad::onehot(draw.ids({5, positions}, 61),
                                             draw.normal({5, positions, 20}), {61, 20});
    check_rows({table}, weights);
    check_rows({table, outer, outer}, weights);  // a table that is tied to an output
    check_rows({PerSampleGrad::materialized(draw.normal({5, 61, 20})), outer}, weights);
  }
}

TEST_CASE("a table's sum is kept as the rows that its ids name") {
  Draws draw;
  const auto table =
      PerSampleGrad::onehot(draw.ids({4, 6}, 100'000), draw.normal({4, 6, 8}), {100'000, 8});
  const auto sum = DeferredSum::of({table}, draw.weights(4), {}, spacing);
  REQUIRE(sum != nullptr);
  CHECK(sum->bytes() <= 4 * 6 * 8 * sizeof(double));
}

TEST_CASE("an id beyond a table is refused before its sum is kept") {
  const auto table = PerSampleGrad::onehot(Tensor::from(std::vector<std::int64_t>{0, 3}, {1, 2}),
                                           full({1, 2, 8}, 1), {3, 8});
  CHECK_THROWS_WITH(DeferredSum::of({table}, full({1}, 1, Dtype::f64), {}, spacing),
                    "deferred sum: id 3 in a table of 3 rows");
}

// In a table of few rows a sample of many positions is one term: this is decided by the rows of the
// table, not by those that are kept.
TEST_CASE("a term of a table is the same whether all of its rows are kept or some") {
  Draws draw;
  const Tensor ids = draw.ids({2, 3000}, 3), b = draw.normal({2, 3000, 4});
  for (const std::int64_t rows : {16, 4000})
    check_rows({PerSampleGrad::onehot(ids, b, {rows, 4})}, draw.weights(2));
}

TEST_CASE("a deferred sum knows the memory that it reads") {
  Draws draw;
  const Tensor value = draw.normal({3, 2, 1, 4, 4});
  const auto images =
      PerSampleGrad::patches(draw.normal({3, 2, 1, 4, 4}), value, Window{}, {2, 2, 1, 1});
  const auto sum = DeferredSum::of({images}, draw.weights(3), {}, spacing);
  CHECK(sum->reads(value.select(0, 0)));
  CHECK_FALSE(sum->reads(clone(value)));
}

TEST_CASE("a sum whose rows cannot be computed alone is computed at once") {
  Draws draw;
  const Tensor weights = draw.weights(3), b = draw.normal({3, 2, 6}), a = draw.normal({3, 2, 4});
  const auto check_whole = [&](const PerSampleGrad& use) {
    const auto sum = DeferredSum::of({use}, weights, pairs(3), spacing);
    REQUIRE(sum != nullptr);
    CHECK_FALSE(sum->has_rows());
    const bool same = sum->whole().to_vector<double>() == at_once({use}, weights, pairs(3));
    CHECK(same);
  };
  CHECK(DeferredSum::of({PerSampleGrad::outer(b, a, {6, 4})}, weights, {}, spacing)->has_rows());
  check_whole(PerSampleGrad::outer(b, a, {3, 8}));
  check_whole(PerSampleGrad::outer(to_dtype(b, Dtype::bf16), a, {6, 4}));
  check_whole(PerSampleGrad::patches(draw.normal({3, 2, 1, 4, 4}), draw.normal({3, 2, 1, 4, 4}),
                                     Window{}, {2, 2, 1, 1}));
  const auto wide = PerSampleGrad::outer(to_dtype(b, Dtype::f64), to_dtype(a, Dtype::f64), {6, 4});
  CHECK(DeferredSum::of({wide}, weights, {}, spacing) == nullptr);
}

}  // namespace
}  // namespace sotto
