// Reductions, copies and row-wise primitives against loops in double, in any memory order.
// File tags: [optimised]
#include <cstdlib>
#include <map>
#include <numeric>

#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/threads.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

constexpr Reduction reductions[] = {Reduction::sum, Reduction::max, Reduction::min,
                                    Reduction::product};

double fold(Reduction op, double a, double b) {
  switch (op) {
    case Reduction::sum: return a + b;
    case Reduction::max: return std::max(a, b);
    case Reduction::min: return std::min(a, b);
    default: return a * b;
  }
}

double start(Reduction op) {
  switch (op) {
    case Reduction::sum: return 0;
    case Reduction::max: return -HUGE_VAL;
    case Reduction::min: return HUGE_VAL;
    default: return 1;
  }
}

Shape sizes(Random& random, int rank, std::int64_t min, std::int64_t max) {
  Shape shape;
  for (int i = 0; i < rank; ++i) shape.push_back(between(random, min, max));
  return shape;
}

// A view with gaps, with repeats, or with neither.
Tensor any_view(Random& random, const Shape& shape, Dtype dtype) {
  if (shape.empty()) return random_tensor(random, shape, dtype);
  const int axis = static_cast<int>(between(random, 0, shape.rank() - 1));
  Shape stored = shape;
  switch (between(random, 0, 2)) {
    case 0:
      stored[axis] = 2 * shape[axis] + 1;
      return random_tensor(random, stored, dtype).slice(axis, 0, 2 * shape[axis], 2);
    case 1: stored[axis] = 1; return random_tensor(random, stored, dtype).expand(shape);
    default: return random_tensor(random, shape, dtype);
  }
}

// The results by row-major index of y, which has size 1 at the reduced axes.
std::vector<double> reduced(Reduction op, const Tensor& x, const Shape& y) {
  std::vector<double> result(static_cast<std::size_t>(y.numel()), start(op));
  const std::vector<double> all = values(x);
  const Shape strides = contiguous_strides(x.shape());
  for (std::size_t k = 0; k < all.size(); ++k) {
    std::int64_t at = 0;
    for (int i = 0; i < y.rank(); ++i) {
      const std::int64_t here = static_cast<std::int64_t>(k) / strides[i] % x.shape()[i];
      at = at * y[i] + (y[i] == 1 ? 0 : here);
    }
    double& slot = result[static_cast<std::size_t>(at)];
    slot = fold(op, slot, all[k]);
  }
  return result;
}

}  // namespace

TEST_CASE("the environment variable disables instruction sets", "[simd]") {
  const char* const wanted = std::getenv("SOTTO_SIMD");
  if (!wanted) return;
  constexpr std::string_view rising[] = {"portable", "avx2", "avx512", "avx512_bf16"};
  const bool found[] = {has_avx2(), has_avx512(), has_avx512_bf16(), has_amx()};
  for (std::size_t k = 0; k < 4; ++k) {
    if (rising[k] == wanted) CHECK(std::none_of(found + k, found + 4, [](bool b) { return b; }));
  }
}

TEST_CASE("reductions over any axes and strides agree with loops", "[simd]") {
  Random random(41);
  for (int i = 0; i < 600; ++i) {
    const Dtype dtype = float_dtypes[i % 4];
    const Shape shape =
        sizes(random, static_cast<int>(between(random, 0, 5)), 1, i % 10 == 0 ? 20 : 6);
    const Tensor x = any_view(random, shape, dtype);
    Shape kept = shape;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (between(random, 0, 1) == 0) kept[axis] = 1;
    }
    for (const Reduction op : reductions) {
      const Tensor y = unwritten(kept, random_order(random, kept.rank()), dtype);
      backend(cpu).reduce(op, x.view(), y.view());
      check_close(y, reduced(op, x, kept));
    }
  }
}

TEST_CASE("sums over no elements are zero, products one, extreme values an error", "[simd]") {
  const Tensor x = zeros({3, 0, 2});
  CHECK(values(sum(x, {1})) == std::vector<double>(6, 0.0));
  CHECK(values(reduce(Reduction::product, x, {1}, true)) == std::vector<double>(6, 1.0));
  CHECK(sum(x, {0}).shape() == Shape{0, 2});
  CHECK(sum(x).item() == 0);
  CHECK_THROWS_AS(reduce(Reduction::max, x, {1}, false), std::invalid_argument);
}

TEST_CASE("a long sum of floats is rounded once", "[simd]") {
  Random random(42);
  for (const bool columns : {false, true}) {
    const Tensor x = columns ? random_tensor(random, {100000, 2}, {0, 1}, Dtype::f32)
                             : random_tensor(random, {2, 100000}, {0, 1}, Dtype::f32);
    const std::vector<double> exact =
        reduced(Reduction::sum, x, columns ? Shape{1, 2} : Shape{2, 1});
    const std::vector<double> found = values(sum(x, {columns ? 0 : 1}));
    for (std::size_t k = 0; k < 2; ++k)
      CHECK(std::abs(found[k] - exact[k]) <= 0x1p-23 * std::abs(exact[k]));
  }
}

TEST_CASE("extreme values and sums show a NaN wherever it stands", "[simd]") {
  for (std::int64_t at = 0; at < 19; ++at) {
    Tensor x = full({19, 3}, 1);
    x.data<float>()[at * 3 + 1] = std::nanf("");
    for (const Reduction op : reductions) {
      // Reduces columns, and rows.
      for (const Tensor& view : {x, contiguous(x.transpose(0, 1)).transpose(0, 1)}) {
        const std::vector<double> y = values(reduce(op, view, {0}, false));
        CHECK((!std::isnan(y[0]) && std::isnan(y[1]) && !std::isnan(y[2])));
      }
    }
  }
}

TEST_CASE("argmax finds the first largest value of a row") {
  Random random(43);
  for (int i = 0; i < 50; ++i) {
    const Tensor x = random_tensor(random, sizes(random, 3, 1, 7), Dtype::f32);
    const std::vector<double> all = values(x);
    const std::vector<std::int64_t> found = argmax(x).to_vector<std::int64_t>();
    const auto width = static_cast<std::ptrdiff_t>(x.size(-1));
    for (std::size_t r = 0; r < found.size(); ++r) {
      const auto row = all.begin() + static_cast<std::ptrdiff_t>(r) * width;
      CHECK(found[r] == std::max_element(row, row + width) - row);
    }
  }
  CHECK(argmax(Tensor::from({1, 3, 3, 2}, {4}, Dtype::f32)).to_vector<std::int64_t>()[0] == 1);
}

TEST_CASE("argmax along an axis is that of the axis brought to the end") {
  Random random(44);
  const Tensor x = random_tensor(random, {3, 4, 2, 5}, Dtype::f32);
  CHECK(argmax(x, 0).shape() == Shape{4, 2, 5});
  for (std::int64_t i = 0; i < 3; ++i) {
    for (std::int64_t j = 0; j < 5; ++j) {
      const Tensor row = x.select(0, i).select(1, 1).select(1, j);  // [4], along axis 1
      CHECK(argmax(x, 1).at({i, 1, j}) == argmax(row).item());
      CHECK(argmax(x, -3).at({i, 1, j}) == argmax(row).item());
    }
  }
  CHECK(argmax(x, 1).contiguous());
  CHECK(throws([&] { argmax(x, 4); }, "axis 4"));
  CHECK(throws([&] { argmax(Tensor::empty({2, 0, 3}), 1); }, "argmax: over axis 1 of (2, 0, 3)"));
  CHECK(throws([&] { argmax(full({}, 1)); }, "argmax: over axis -1 of ()"));
}

TEST_CASE("gather and scatter move rows along any axis", "[simd]") {
  Random random(44);
  for (int i = 0; i < 300; ++i) {
    const Dtype dtype = float_dtypes[i % 4];
    const Shape shape = sizes(random, static_cast<int>(between(random, 1, 4)), 1, 6);
    const int axis = static_cast<int>(between(random, 0, shape.rank() - 1));
    const Tensor x = any_view(random, shape, dtype);
    std::vector<std::int64_t> ids;
    for (std::int64_t k = between(random, 0, 8); k > 0; --k)
      ids.push_back(between(random, -1, shape[axis] - 1));
    const Tensor index = Tensor::from(ids, {static_cast<std::int64_t>(ids.size())});
    const Tensor y = gather(x, index, axis);
    const Tensor wide = to_dtype(any_view(random, y.shape(), dtype), Dtype::f64);
    const Tensor z = scatter_add(wide, index, axis, shape[axis]);
    Tensor expected = zeros(shape, Dtype::f64);
    for (std::size_t k = 0; k < ids.size(); ++k) {
      const auto at = static_cast<std::int64_t>(k);
      const Tensor slice = y.slice(axis, at, at + 1);
      if (ids[k] < 0) {
        CHECK(values(slice) == std::vector<double>(static_cast<std::size_t>(slice.numel()), 0.0));
        continue;
      }
      CHECK(same_bits(slice, x.slice(axis, ids[k], ids[k] + 1)));
      const Tensor to = expected.slice(axis, ids[k], ids[k] + 1);
      copy_into(add(contiguous(to), wide.slice(axis, at, at + 1)), to);
    }
    check_close(z, values(expected));
    CHECK_THROWS_AS(gather(x, Tensor::from(std::vector<std::int64_t>{shape[axis]}, {1}), axis),
                    std::invalid_argument);
  }
}

// Rows of many terms, so that several threads share the work; three ids per slice.
TEST_CASE("a scatter adds in the order of the ids, by any number of threads") {
  Random random(46);
  constexpr std::int64_t slices = 7'001, each = 3, rows = 90, width = 5;
  const Tensor x = random_tensor(random, {slices, width}, {0, 1}, Dtype::f32);
  std::vector<std::int64_t> ids;
  for (std::int64_t k = 0; k < slices * each; ++k) ids.push_back(between(random, -1, rows - 1));
  const Tensor index = Tensor::from(ids, {slices, each});
  std::vector<float> expected(rows * width);
  for (std::size_t k = 0; k < ids.size(); ++k) {
    for (std::size_t i = 0; ids[k] >= 0 && i < width; ++i)
      expected[static_cast<std::size_t>(ids[k]) * width + i] +=
          x.data<float>()[k / each * width + i];
  }
  for (const int threads : {1, 2, 3, 8}) {
    const Threads setting(threads);
    CHECK(scatter_add(x, index, 0, rows).to_vector<float>() == expected);
  }
}

// Ids that collide in any small hash table, some of them padding; samples follow each other.
TEST_CASE("the norm of a table's gradient with one row a sample counts equal ids") {
  Random random(47);
  constexpr std::int64_t n = 50, positions = 40, width = 6;
  const Tensor b = random_tensor(random, {n, 1, width}, {0, 1, 2}, Dtype::f64);
  std::vector<std::int64_t> ids;
  for (std::int64_t k = 0; k < n * positions; ++k)
    ids.push_back(between(random, -1, 3 + k / positions) << between(random, 0, 1) * 40);
  const Tensor index = Tensor::from(ids, {n, positions});
  for (const int threads : {1, 3}) {
    const Threads setting(threads);
    const Tensor y = zeros({n}, Dtype::f64);
    backend(cpu).onehot_dot(index.view(), b.view(), index.view(), b.view(), y.view());
    for (std::int64_t sample = 0; sample < n; ++sample) {
      std::map<std::int64_t, double> times;
      for (std::int64_t t = 0; t < positions; ++t) {
        const std::int64_t id = ids[static_cast<std::size_t>(sample * positions + t)];
        if (id >= 0) ++times[id];
      }
      double expected = 0;
      for (const auto& [id, count] : times) expected += count * count;
      double square = 0;
      for (std::int64_t i = 0; i < width; ++i)
        square += std::pow(b.data<double>()[sample * width + i], 2);
      CHECK(y.data<double>()[sample] == Approx(expected * square).epsilon(1e-12));
    }
  }
}

TEST_CASE("softmax of rows agrees with its definition", "[simd]") {
  Random random(45);
  for (int i = 0; i < 200; ++i) {
    const Dtype dtype = float_dtypes[i % 4];
    const std::int64_t rows = between(random, 1, 5), k = between(random, 1, 40);
    const Tensor x = random_tensor(random, {rows, k}, {0, 1}, dtype);
    const std::vector<double> a = values(x);
    std::vector<double> soft(a.size()), logs(a.size());
    for (std::int64_t r = 0; r < rows; ++r) {
      double total = 0;
      const auto at = [&](std::int64_t c) { return static_cast<std::size_t>(r * k + c); };
      for (std::int64_t c = 0; c < k; ++c) total += std::exp(a[at(c)]);
      for (std::int64_t c = 0; c < k; ++c) {
        soft[at(c)] = std::exp(a[at(c)]) / total;
        logs[at(c)] = a[at(c)] - std::log(total);
      }
    }
    const Tensor y = unwritten({rows, k}, dtype);
    backend(cpu).softmax(x.view(), false, y.view());
    check_close(y, soft);
    backend(cpu).softmax(x.view(), true, y.view());
    check_close(y, logs);
  }
}

namespace {

// Results of kernels on inputs large enough to be split over threads.
std::vector<Tensor> some_results() {
  Random random(46);
  const Tensor x = random_tensor(random, {70, 900}, {0, 1}, Dtype::f32),
               w = random_tensor(random, {70}, Dtype::f32);
  const Tensor ids = Tensor::from(std::vector<std::int64_t>(70, 3), {70});
  Tensor soft = zeros(x.shape()), dots = zeros({70}, Dtype::f64), total = zeros({900});
  std::vector<RowDraws> rows;
  for (std::uint64_t row = 0; row < 70; ++row) rows.push_back({row, 5});
  const Tensor mask = bernoulli({1, 2}, rows, 0.3, x.shape(), cpu);
  backend(cpu).softmax(x.view(), false, soft.view());
  backend(cpu).row_dot(x.view(), x.view(), dots.view());
  backend(cpu).weighted_sum(x.view(), w.view(), 0, total.view());
  Tensor grams = zeros({2}, Dtype::f64);
  const Tensor factor = reshape(x, {2, 35, 900});
  backend(cpu).gram_dot(factor.view(), factor.view(), factor.view(), factor.view(), grams.view());
  Window window;
  window.kernel[1] = window.kernel[2] = 3;
  const Tensor image = random_tensor(random, {6, 8, 1, 18, 18}, Dtype::f32);
  const Tensor weight = random_tensor(random, {16, 8, 1, 3, 3}, Dtype::f32);
  const Tensor dy = random_tensor(random, {6, 16, 1, 16, 16}, Dtype::f32);
  return {mask,
          soft,
          dots,
          total,
          grams,
          sum(x),
          sum(x, {0}),
          sum(x, {1}),
          mul(x, x),
          gather(x, ids, 0),
          gemm(x, x.transpose(0, 1)),
          conv(image, weight, Tensor(), window),
          conv_data(dy, weight, window, image.shape()),
          conv_weight_rows(dy, image, window, weight.shape()),
          conv_weight_norms(dy, image, window),
          unfold(image, window)};
}

}  // namespace

TEST_CASE("results do not depend on the number of threads", "[simd]") {
  const int before = thread_count();
  for_each_engine([&](Backend&) {
    set_thread_count(1);
    const std::vector<Tensor> one = some_results();
    for (const int threads : {2, 3}) {
      set_thread_count(threads);
      const std::vector<Tensor> more = some_results();
      for (std::size_t i = 0; i < one.size(); ++i) {
        INFO("result " << i << " on " << threads << " threads");
        CHECK(same_bits(one[i], more[i]));
      }
    }
  });
  set_thread_count(before);
}

TEST_CASE("slices of equal ids are added in their order, to the CPU's bits") {
  Random random(58);
  for (const Dtype dtype : float_dtypes) {
    for (const std::int64_t width : {1, 5, 130, 300}) {
      constexpr std::int64_t count = 120, rows = 6;
      std::vector<std::int64_t> ids;
      // Half of all ids are one row's, as padding's are, and some are none.
      for (std::int64_t k = 0; k < count; ++k)
        ids.push_back(random() % 2 == 0 ? 4 : between(random, -1, rows - 1));
      const Tensor x = random_tensor(random, {count / 2, width}, {0, 1}, dtype),
                   from = Tensor::from(ids, {count}),
                   start = random_tensor(random, {rows, width}, {0, 1}, dtype);
      const auto added = [&] {
        const Tensor y = clone(start);
        backend(cpu).scatter_add(x.view(), from.view(), 0, y.view());
        return y;
      };
      const Tensor expected = added();
      for_each_device_code([&] { CHECK(same_bits(added(), expected)); });
    }
  }
}
