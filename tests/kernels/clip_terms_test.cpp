// What clipping computes from norms, and checks and zeros of several arrays, on every engine.
// File tags: [gpu]
#include <limits>

#include "kernels/backend.h"
#include "kernels/host_device/row_arrays.h"
#include "kernels/host_device/term_bounds.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Positive numbers, some of them 0.
Tensor squares(Random& random, const Shape& shape) {
  const Tensor x = Tensor::empty(shape, Dtype::f64);
  return fill(x, [&] { return static_cast<double>(between(random, 0, 4)); });
}

struct Bounds {
  std::vector<double> errors, term_norms, lost;
};

struct Squares {
  View a, b;
};

// The bounds of 30 parameters with the same terms, which are more than a launch holds.
Bounds run(const TermBounds& bounds, const Squares& terms, std::int64_t samples) {
  const Tensor errors = unwritten({30, samples}, Dtype::f64),
               norms = unwritten({30, samples}, Dtype::f64),
               lost = full({30, samples}, 1, Dtype::f64);
  std::vector<BoundedTerms> all;
  for (std::int64_t k = 0; k < 30; ++k) {
    all.push_back({bounds, terms.a, terms.b, errors.select(0, k).view(), norms.select(0, k).view(),
                   lost.select(0, k).view()});
  }
  backend(cpu).term_bounds(all);
  for (const Tensor& y : {errors, norms, lost}) {
    for (std::int64_t k = 1; k < 30; ++k) CHECK(same_bits(y.select(0, k), y.select(0, 0)));
  }
  return {values(errors.select(0, 0)), values(norms.select(0, 0)), values(lost.select(0, 0))};
}

void check_near(const std::vector<double>& got, const std::vector<double>& expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t n = 0; n < got.size(); ++n) CHECK(got[n] == Approx(expected[n]).epsilon(1e-14));
}

// Calls f on the CPU's engine, and with the GPU's kernels in its place.
void on_each(const std::function<void()>& f) {
  f();
  for_each_device_code(f);
}

}  // namespace

TEST_CASE("bounds of products' terms are the formulas, of the terms that are not 0") {
  on_each([] {
    Random random(5);
    for (const std::int64_t t : {1, 2, 7, 40, 1500}) {
      const std::int64_t n = 4;
      const Tensor a = squares(random, {n, t}), b = squares(random, {n, t});
      const TermBounds rule{.roundoff = 0x1p-24,
                            .split = 0x1p-15,
                            .chain = 30,
                            .gram = 0.5,
                            .max_cancellation = 64,
                            .underflow_a = 3,
                            .underflow_b = 5};
      Bounds expected;
      for (std::int64_t k = 0; k < n; ++k) {
        double norms = 0, count = 0, of_a = 0, of_b = 0;
        for (std::int64_t s = 0; s < t; ++s) {
          const double x = a.data<double>()[k * t + s], y = b.data<double>()[k * t + s];
          norms += std::sqrt(x) * std::sqrt(y);
          count += x > 0 && y > 0 ? 1 : 0;
          of_a += x;
          of_b += y;
        }
        const double roots = std::sqrt(count);
        const double added = count <= 30 ? count : 30 + std::ceil(count / 10);
        expected.errors.push_back(0x1p-23 * (added + 1) * norms + 0x1p-15 * norms +
                                  3 * std::sqrt(of_a) + 5 * std::sqrt(of_b));
        expected.lost.push_back(1 + norms * norms / 2);
        expected.term_norms.push_back(
            norms / std::max(4 * roots, std::min(64.0, 8 * std::max(roots, 1.0))));
      }
      const Bounds got = run(rule, {a.view(), b.view()}, n);
      check_near(got.errors, expected.errors);
      check_near(got.term_norms, expected.term_norms);
      check_near(got.lost, expected.lost);
    }
  });
}

TEST_CASE("bounds of a table's terms count the ids that are not negative") {
  on_each([] {
    const Tensor ids = Tensor::from(std::vector<std::int64_t>{3, -1, 3, 0, -1, -1}, {2, 3}),
                 own = Tensor::from(std::vector<double>{4, 9, 0, 1, 0, 0}, {2, 3}),
                 one = Tensor::from(std::vector<double>{4, 9}, {2, 1});
    const TermBounds rule{.roundoff = 1};
    // Of each term a weight and a product are rounded, and so is the sum, twice for its norm.
    // A row of its own for each position; those without an id are zeros in practice.
    check_near(run(rule, {ids.view(), own.view()}, 2).errors, {4 * std::sqrt(13.0), 4});
    // One row for all positions of a sample: T terms add up to sqrt(T) times the root of T squares.
    check_near(run(rule, {ids.view(), one.view()}, 2).errors, {4 * 2 * 2, 4 * 3});
    check_near(run(rule, {ids.view(), one.view()}, 2).term_norms,
               {2 * std::sqrt(2.0) / (4 * std::sqrt(2.0)), 3.0 / 4});
    // Gradients that arose as they are.
    check_near(run(rule, {{}, one.view()}, 2).errors, {4 * 2, 4 * 3});
    check_near(run(rule, {{}, one.view()}, 2).lost, {1, 1});
  });
}

TEST_CASE("bounds of images count all positions, and one product rounds by underflow alone") {
  on_each([] {
    const Tensor norms = Tensor::from(std::vector<double>{7, 4, 9, 7, 16, 25}, {2, 3});
    const View dy = norms.slice(1, 1, 2).view(), x = norms.slice(1, 2, 3).view();
    const TermBounds images{.roundoff = 1,
                            .windows = 9,
                            .positions = 4,
                            .min_positions = 25,
                            .chain = 100,
                            .max_cancellation = 64};
    check_near(run(images, {x, dy}, 2).errors, {52 * 2 * 9.0, 52 * 4 * 15.0});
    check_near(run(images, {x, dy}, 2).term_norms, {2 * 9.0 / 16, 4 * 15.0 / 16});
    const TermBounds product{.roundoff = 1, .underflow_a = 2, .rounds_once = true};
    check_near(run(product, {x, dy}, 2).errors, {6, 10});
    check_near(run(product, {x, dy}, 2).term_norms, {0, 0});
  });
}

TEST_CASE("bounds of samples with NaN or infinity are not finite") {
  on_each([] {
    for (const double bad : {std::nan(""), infinity}) {
      const Tensor a = Tensor::from(std::vector<double>{1, bad, 1, 1}, {2, 2});
      const Bounds got = run({.roundoff = 0x1p-23, .max_cancellation = 64},
                             {a.view(), full({2, 2}, 1, Dtype::f64).view()}, 2);
      CHECK(!std::isfinite(got.errors[0]));
      CHECK(!std::isfinite(got.term_norms[0]));
      CHECK(std::isfinite(got.errors[1]));
    }
  });
}

TEST_CASE("squares below a share of their factors' bound are marked, NaN is not") {
  on_each([] {
    const Tensor squares = Tensor::from(std::vector<double>{5, 7, std::nan(""), 0, 0}, {5}),
                 a = Tensor::from(std::vector<double>{2, 2, 2, 2, 0}, {5}),
                 b = Tensor::from(std::vector<double>{3, 3, 3, 3, 3}, {5}),
                 marks = full({5}, 1, Dtype::f64);
    backend(cpu).mark_cancelled({squares.view(), a.view(), b.view(), 4, 0.25}, marks.view());
    CHECK(values(marks) == std::vector<double>{2, 1, 1, 2, 1});
    backend(cpu).mark_cancelled({squares.view(), {}, b.view(), 8, 0.25}, marks.view());
    CHECK(values(marks) == std::vector<double>{3, 1, 1, 3, 2});
  });
}

TEST_CASE("NaN and infinity are found in any of many arrays, wherever they are") {
  on_each([] {
    Random random(9);
    constexpr std::int64_t count = 205, at_most = 70'000;  // several launches, arrays in parts
    std::vector<Tensor> arrays;
    std::vector<View> views;
    std::vector<double> expected;
    for (std::int64_t k = 0; k < count; ++k) {
      const Dtype dtype = float_dtypes[static_cast<std::size_t>(k % 4)];
      const std::int64_t size = k % 50 == 7 ? at_most : between(random, k % 9 == 0 ? 0 : 1, 40);
      const Tensor x = full({size + 1}, 3, dtype).slice(0, k % 2, k % 2 + size);
      const bool bad = size > 0 && random() % 3 == 0;
      if (bad) {
        const std::int64_t at = random() % 2 == 0 ? size - 1 : between(random, 0, size - 1);
        set_value(x, at,
                  random() % 3 == 0   ? std::nan("")
                  : random() % 2 == 0 ? infinity
                                      : -infinity);
      }
      expected.push_back(bad ? 1 : 0);
      arrays.push_back(x);
      views.push_back(x.view());
    }
    const Tensor marks = unwritten({count}, Dtype::f64);
    backend(cpu).mark_nonfinite(views, marks.view());
    CHECK(values(marks) == expected);
  });
}

TEST_CASE("the largest and smallest finite numbers are finite") {
  on_each([] {
    const Tensor x = Tensor::from(std::vector<double>{std::numeric_limits<double>::max(),
                                                      -std::numeric_limits<double>::max(),
                                                      std::numeric_limits<double>::denorm_min()},
                                  {3}),
                 y = Tensor::from(std::vector<float>{std::numeric_limits<float>::max(),
                                                     -std::numeric_limits<float>::max()},
                                  {2}),
                 marks = unwritten({2}, Dtype::f64);
    const std::vector<View> views{x.view(), y.view()};
    backend(cpu).mark_nonfinite(views, marks.view());
    CHECK(values(marks) == std::vector<double>{0, 0});
  });
}

TEST_CASE("many arrays become zeros, and nothing beside them") {
  on_each([] {
    std::vector<Tensor> all;
    std::vector<View> inner;
    for (std::int64_t k = 0; k < 101; ++k) {
      all.push_back(
          full({k == 50 ? 70'000 : k + 2}, 7, float_dtypes[static_cast<std::size_t>(k % 4)]));
      inner.push_back(all.back().slice(0, 1, all.back().size(0) - 1).view());
    }
    backend(cpu).zero_all(inner);
    for (const Tensor& x : all) {
      std::vector<double> expected(static_cast<std::size_t>(x.numel()));
      expected.front() = expected.back() = 7;
      CHECK(values(x) == expected);
    }
  });
}

TEST_CASE("a rounded term is that of the rounded product, on every device") {
  // Exactly, the products are more than half a spacing; rounded to f64 they are half of one.
  std::vector<double> weights;
  std::vector<float> factors;
  for (int factor = 3; factor < 200; factor += 2) {
    const double weight = 0.5 / factor;
    if (weight * factor != 0.5 || std::fma(weight, factor, -0.5) <= 0) continue;
    weights.push_back(weight);
    factors.push_back(static_cast<float>(factor));
  }
  const std::int64_t samples = std::ssize(weights);
  CHECK(samples > 20);
  const Tensor w = Tensor::from(weights, {samples}), x = Tensor::from(factors, {samples, 1});
  on_each([&] {
    for (const Dtype dtype : {Dtype::f32, Dtype::f64}) {
      const Tensor sum = full({1}, 0, Dtype::f64), rows = to_dtype(x, dtype);
      backend(cpu).add_rounded(rows.view(), w.view(), 1, sum.view());
      CHECK(sum.item() == 0);
      backend(cpu).add_all_rounded(std::vector<RoundedRows>{{rows.view(), 1, sum.view()}},
                                   w.view());
      CHECK(sum.item() == 0);
    }
  });
}

TEST_CASE("many arrays are copied, converted and added as one at a time, and nothing beside them") {
  on_each([] {
    Random random(15);
    for (const bool add : {false, true}) {
      std::vector<std::pair<Tensor, Tensor>> pairs;
      std::vector<Tensor> expected;
      for (std::int64_t k = 0; k < 210; ++k) {
        const std::int64_t size = k == 50   ? 70'000
                                  : k == 51 ? 8'192
                                            : between(random, 0, 40),
                           gap = k % 3 == 0 ? 0 : 1;  // packs, or one by one
        const Dtype from = float_dtypes[static_cast<std::size_t>(k % 4)],
                    to = add ? from : float_dtypes[static_cast<std::size_t>(k / 4 % 4)];
        const Tensor x = random_tensor(random, {size + 2 * gap}, {0}, from),
                     y = random_tensor(random, {size + 2 * gap}, {0}, to);
        expected.push_back(clone(y));
        const auto inner = [&](const Tensor& whole) { return whole.slice(0, gap, gap + size); };
        if (add)
          axpby(1, inner(x), 1, inner(expected.back()));
        else
          copy_into(inner(x), inner(expected.back()));
        pairs.emplace_back(x, y);
      }
      std::vector<std::pair<Tensor, Tensor>> inner;
      for (std::size_t k = 0; k < pairs.size(); ++k) {
        const std::int64_t gap = k % 3 == 0 ? 0 : 1;
        const auto& [x, y] = pairs[k];
        inner.emplace_back(x.slice(0, gap, x.size(0) - gap), y.slice(0, gap, y.size(0) - gap));
      }
      copy_all(inner, add);
      for (std::size_t k = 0; k < pairs.size(); ++k) {
        CAPTURE(add, k);
        CHECK(same_bits(pairs[k].second, expected[k]));
      }
    }
  });
}

TEST_CASE("arrays of integers, of other orders and none at all are copied together") {
  on_each([] {
    const Tensor ids = Tensor::from(std::vector<std::int64_t>{-5, 1LL << 40, 3}, {3}),
                 x = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}),
                 to_ids = zeros({3}, Dtype::i64), y = zeros({2, 3}),
                 turned = Tensor::empty_ordered({2, 3}, {1, 0}, Dtype::f32, cpu);
    copy_all({{ids, to_ids}, {x, y}, {x, turned}});
    CHECK(to_ids.to_vector<std::int64_t>() == ids.to_vector<std::int64_t>());
    CHECK(values(y) == values(x));
    CHECK(values(turned) == values(x));
    copy_all({});
    CHECK(throws([&] { copy_all({{ids, y}}); }, "copy_all: (3) to (2, 3)"));
  });
}

TEST_CASE("rows of several arrays have the norms, and the rounded sums, of one array at a time") {
  on_each([] {
    Random random(13);
    constexpr std::int64_t samples = 5, count = 110;  // several launches
    const Tensor w = Tensor::from(std::vector<double>{0.5, 0, 1, 2, 0.25}, {samples});
    std::vector<Tensor> kept;
    std::vector<RowNorms> norms;
    std::vector<RoundedRows> sums;
    for (std::int64_t k = 0; k < count; ++k) {
      // Rows for a warp, for a block, and of several parts.
      const std::int64_t width = k == 3 ? 17'000 : k % 25 == 9 ? 1030 : between(random, 1, 70);
      const Dtype dtype = float_dtypes[static_cast<std::size_t>(k % 4)];
      const Tensor x = random_tensor(random, {samples, width}, {0, 1}, dtype),
                   norm = unwritten({samples}, Dtype::f64), sum = full({width}, 3, Dtype::f64);
      norms.push_back({x.view(), norm.view()});
      sums.push_back({x.view(), k % 7 == 0 ? 0 : 0x1p-20, sum.view()});
      kept.insert(kept.end(), {x, norm, sum});
    }
    const Tensor none = zeros({0, 7}), no_norms = Tensor::empty({0}, Dtype::f64);
    norms.insert(norms.begin(), {none.view(), no_norms.view()});
    backend(cpu).squared_row_norms(norms);
    norms.erase(norms.begin());
    backend(cpu).add_all_rounded(sums, w.view());
    for (std::size_t k = 0; k < norms.size(); ++k) {
      const Tensor norm = unwritten({samples}, Dtype::f64),
                   sum = full({sums[k].y.size[0]}, 3, Dtype::f64);
      backend(cpu).row_dot(norms[k].x, norms[k].x, norm.view());
      backend(cpu).add_rounded(sums[k].x, w.view(), sums[k].spacing, sum.view());
      CHECK(same_bits(kept[3 * k + 1], norm));
      CHECK(same_bits(kept[3 * k + 2], sum));
    }
  });
}
