// Sums of columns by the GPU's kernels, run on the host and on every GPU: packs of columns where
// these are aligned, single ones elsewhere, with the same bits.
// File tags: [gpu][sanitized]
#include "kernels/cuda/reduce.h"
#include "kernels/cuda/weighted_rows.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

// [rows, width] of any values, rows `pitch` elements apart, from element `first` of memory on.
Tensor placed(const Tensor& x, std::int64_t pitch, std::int64_t first) {
  const Tensor memory = full({x.size(0) * pitch + first}, 7, x.dtype());
  const Tensor rows =
      reshape(memory.slice(0, first, first + x.size(0) * pitch), {x.size(0), pitch});
  const Tensor y = rows.slice(1, 0, x.size(1));
  backend(cpu).copy(x.view(), y.view());
  return y;
}

// The sums of the columns of [rows, width], in double.
std::vector<double> summed(const Tensor& x, const std::vector<double>& weights) {
  const std::vector<double> all = values(x);
  std::vector<double> y(static_cast<std::size_t>(x.size(1)));
  for (std::size_t k = 0; k < all.size(); ++k) {
    const double weight = weights.empty() ? 1 : weights[k / y.size()];
    if (weight != 0) y[k % y.size()] += weight * all[k];
  }
  return y;
}

constexpr std::int64_t sizes[][2] = {{1, 8},   {5, 1},   {33, 16}, {70, 3},
                                     {200, 8}, {41, 40}, {64, 41}, {7, 130}};

}  // namespace

TEST_CASE("column sums have the same bits wherever the columns lie") {
  Random random(61);
  for (const auto [rows, width] : sizes) {
    for (const Dtype dtype : float_dtypes) {
      const Tensor x = random_tensor(random, {rows, width}, {0, 1}, dtype);
      for_each_device_code([&] {
        const Tensor sum = unwritten({1, width}, arithmetic_type(dtype));
        backend(cpu).reduce(Reduction::sum, x.view(), sum.view());
        check_close(sum, summed(x, {}));
        for (const auto& [pitch, first] :
             {std::pair(width, 1), std::pair(width + 1, 0), std::pair(width + 8, 0)}) {
          const Tensor same = unwritten({1, width}, arithmetic_type(dtype));
          backend(cpu).reduce(Reduction::sum, placed(x, pitch, first).view(), same.view());
          CHECK(same_bits(sum, same));
        }
      });
    }
  }
}

TEST_CASE("sums over images of channels that lie last, of several axes, are those of loops") {
  Random random(62);
  for (const Dtype dtype : float_dtypes) {
    for (const std::int64_t channels : {8, 16, 5}) {
      const Tensor x = random_tensor(random, {3, channels, 7, 9}, {0, 2, 3, 1}, dtype);
      // Gaps between images: two reduced axes.
      const Tensor some = x.slice(2, 1, 6);
      for (const Shape& kept : {Shape{1, channels, 1, 1}, Shape{3, channels, 1, 1},
                                Shape{1, channels, 1, 9}, Shape{1, 1, 1, 1}}) {
        check_on_devices(unwritten(kept, arithmetic_type(dtype)), [&](Backend& on, const View& y) {
          on.reduce(Reduction::sum, some.view(), y);
        });
        check_on_devices(unwritten(kept, arithmetic_type(dtype)), [&](Backend& on, const View& y) {
          on.reduce(Reduction::max, some.view(), y);
        });
      }
    }
  }
}

TEST_CASE("columns are taken in packs where rows and columns are aligned, and nowhere else") {
  const auto packs = [](const Tensor& x) {
    const Tensor y = zeros({1, x.size(1)}, x.dtype());
    return packed_columns(ReductionPlan(x.view(), y.view(), TermOrder::memory),
                          x.view().as<float>());
  };
  const Tensor x = zeros({3, 16});
  CHECK(packs(x));
  CHECK(packs(placed(x, 20, 0)));
  CHECK_FALSE(packs(placed(x, 18, 0)));
  CHECK_FALSE(packs(placed(x, 16, 1)));
  CHECK_FALSE(packs(x.slice(1, 0, 14)));
  CHECK_FALSE(packs(x.slice(1, 0, 16, 2)));
  CHECK(packed_rows_of<float>(16, x.view().data, zeros({2}, Dtype::f64).view().as<double>()));
  CHECK_FALSE(
      packed_rows_of<float>(16, x.view().data, zeros({2}, Dtype::f64).view().as<double>() + 1));
}

TEST_CASE("columns are cut into parts of rows where these fill a GPU, and where a launch pays") {
  CHECK(count_row_parts<bf16>(16'384, 768) == 683);
  CHECK(count_row_parts<float>(16'384, 768) == 342);
  CHECK(count_row_parts<bf16>(128, 1) == 8);
  CHECK(count_row_parts<bf16>(127, 1) == 1);
  CHECK(count_row_parts<bf16>(256, 4 * busy_threads - 8) == 3);
  CHECK(count_row_parts<bf16>(256, 4 * busy_threads) == 1);
}

TEST_CASE("many parts of a sum, and few, are folded with every one of them") {
  Random random(63);
  for (const std::int64_t parts : {7, 8, 9, 14, 700}) {
    const Tensor x = random_tensor(random, {parts * thread_work, 5}, {0, 1}, Dtype::f32);
    for_each_device_code([&] {
      const Tensor sum = unwritten({1, 5}, Dtype::f32), top = unwritten({1, 5}, Dtype::f32);
      backend(cpu).reduce(Reduction::sum, x.view(), sum.view());
      check_close(sum, summed(x, {}));
      const Tensor marked = clone(x);
      set_value(marked, 5 * (parts * thread_work - 1) + 3, 9);
      backend(cpu).reduce(Reduction::max, marked.view(), top.view());
      CHECK(values(top)[3] == 9);
    });
  }
}

TEST_CASE("weighted and rounded sums of rows anywhere, with NaN where the weight is zero") {
  Random random(64);
  for (const auto [samples, width] : sizes) {
    for (const Dtype dtype : float_dtypes) {
      const Tensor x = random_tensor(random, {samples, width}, {0, 1}, dtype),
                   all = random_tensor(random, {2 * samples}, Dtype::f64);
      for (std::int64_t n = 0; n < samples; n += 3) {
        set_value(all, 2 * n, 0);
        fill(x.slice(0, n, n + 1), [] { return std::nan(""); });
      }
      const Tensor apart = all.slice(0, 0, 2 * samples, 2), w = contiguous(apart),
                   narrow = to_dtype(w, Dtype::f32);
      for (const std::int64_t first : {0, 1}) {
        const Tensor rows = placed(x, width, first);
        for (const Tensor& weights : {w, apart, narrow}) {
          const Tensor start = random_tensor(random, {width}, Dtype::f64), rounded = clone(start);
          backend(cpu).add_rounded(rows.view(), weights.view(), 0x1p-30, rounded.view());
          for_each_device_code([&] {
            const Tensor y = clone(start), sum = unwritten({width}, arithmetic_type(dtype));
            backend(cpu).add_rounded(rows.view(), weights.view(), 0x1p-30, y.view());
            CHECK(same_bits(y, rounded));
            backend(cpu).weighted_sum(rows.view(), weights.view(), 0, sum.view());
            check_close(sum, summed(x, values(weights)));
          });
        }
      }
    }
  }
}
