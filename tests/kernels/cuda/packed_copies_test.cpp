// Copies, conversions and patches by the GPU's kernels, run on the host and on every GPU, of sizes
// and alignments that allow packs of 16 bytes, and of those beside them.
// File tags: [gpu][sanitized]
#include "kernels/cuda/cuda_elementwise.h"
#include "kernels/cuda/unfold.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

// A tensor of random values stored in an order, with `gap` elements after each run of the innermost
// axis, from element `first` of memory on.
Tensor stored(Random& random, const Shape& shape, const Shape& order, Dtype dtype, std::int64_t gap,
              std::int64_t first) {
  Shape sizes = shape;
  sizes[order[order.rank() - 1]] += gap;
  const std::int64_t count = sizes.numel();
  const Tensor memory = random_tensor(random, {first + count}, Dtype::f64);
  Tensor y = to_dtype(scale(memory, 100), dtype).slice(0, first, first + count);
  Shape in_memory;
  for (int i = 0; i < order.rank(); ++i) in_memory.push_back(sizes[order[i]]);
  y = reshape(y, in_memory);
  // Axis k of the result is where the order has it.
  Shape places = order;
  for (int i = 0; i < order.rank(); ++i) places[order[i]] = i;
  y = y.permute(places);
  for (int axis = 0; axis < shape.rank(); ++axis) y = y.slice(axis, 0, shape[axis]);
  return y;
}

constexpr Dtype types[] = {Dtype::f64, Dtype::i32, Dtype::bf16, Dtype::u8};

template <class F>
void for_each_order(F&& f) {
  Shape order{0, 1, 2};
  do f(order);
  while (std::next_permutation(&order[0], &order[0] + 3));
}

}  // namespace

TEST_CASE("copies between any orders of axes move every element to its place, in blocks or not") {
  Random random(81);
  int turn = 0;
  for (const Dtype dtype : types) {
    for (const Shape& shape : {Shape{2, 16, 24}, Shape{3, 8, 8}, Shape{4, 12, 5}}) {
      for_each_order([&](const Shape& from) {
        // Whole blocks, blocks with gaps between them, and none.
        constexpr std::int64_t placings[][2] = {{0, 0}, {16, 0}, {3, 1}};
        const auto [gap, first] = placings[turn++ % 3];
        const Tensor x = stored(random, shape, from, dtype, gap, first);
        for_each_order([&](const Shape& to) {
          for_each_device_code([&] {
            const Tensor y = stored(random, shape, to, dtype, gap, 0);
            backend(cpu).copy(x.view(), y.view());
            CHECK(same_bits(y, x));
          });
        });
      });
      ++turn;  // the next shape has other pairs of orders and places
    }
  }
}

TEST_CASE("a transposing copy takes blocks where both sides are aligned, and nowhere else") {
  const auto axis = [](const Tensor& x, const Tensor& y) {
    return transposed_axis(LoopNest<2>(std::array{x.view(), y.view()}), x.view(), y.view(), 8);
  };
  const auto zeros_in = [](const Shape& shape, const Shape& order) {
    return Tensor::empty_ordered(shape, order, Dtype::bf16, cpu);
  };
  const Tensor x = zeros_in({2, 16, 24}, {0, 1, 2}), turned = zeros_in({2, 16, 24}, {0, 2, 1});
  CHECK(axis(x, turned) == 1);
  CHECK(axis(turned, x) == 1);
  CHECK(axis(x, zeros_in({2, 16, 24}, {1, 2, 0})) == -1);  // two elements side by side
  CHECK(axis(x.slice(2, 0, 16), turned.slice(2, 0, 16)) == 1);
  CHECK(axis(x.slice(2, 1, 17), turned.slice(2, 0, 16)) == -1);
  CHECK(axis(x.slice(2, 0, 20), turned.slice(2, 0, 20)) == -1);
  CHECK(axis(zeros_in({2, 16, 23}, {0, 1, 2}).slice(2, 0, 16), turned.slice(2, 0, 16)) == -1);
}

TEST_CASE("conversions of rows with gaps have the values of conversions one by one") {
  Random random(82);
  for (const Dtype from : float_dtypes) {
    for (const Dtype to : float_dtypes) {
      for (const auto& [gap, first] :
           {std::pair(0, 0), std::pair(8, 0), std::pair(1, 0), std::pair(0, 1)}) {
        const Shape shape{3, 5, 16}, order{0, 1, 2};
        const Tensor x = stored(random, shape, order, from, gap, first);
        check_on_devices(stored(random, shape, order, to, gap, 0),
                         [&](Backend& b, const View& y) { b.copy(x.view(), y); });
        // One row for all, and one column.
        for (const int axis : {0, 2}) {
          const Tensor one = x.slice(axis, 0, 1).expand(shape);
          check_on_devices(stored(random, shape, order, to, gap, 0),
                           [&](Backend& b, const View& y) { b.copy(one.view(), y); });
        }
      }
    }
  }
}

TEST_CASE("patches of images with channels last are those of images in any order") {
  Random random(83);
  for (const Dtype dtype : float_dtypes) {
    for (const std::int64_t channels : {8, 24, 6}) {
      for (const std::int64_t kernel : {1, 3, 2}) {
        for (const std::int64_t stride : {1, 2}) {
          const Window window{.kernel = {1, kernel, kernel},
                              .stride = {1, stride, stride},
                              .before = {0, kernel / 2, kernel / 2},
                              .after = {0, kernel / 2, 0},
                              .dilation = {1, 1, stride}};
          const Tensor x = random_tensor(random, {3, channels, 1, 7, 6}, {0, 2, 3, 4, 1}, dtype);
          const std::int64_t positions = window.output_size(1, 7) * window.output_size(2, 6);
          const Tensor expected = unwritten({3, positions, channels * kernel * kernel}, dtype);
          backend(cpu).unfold(x.view(), window, expected.view());
          for_each_device_code([&] {
            const Tensor got = unwritten(expected.shape(), dtype);
            backend(cpu).unfold(x.view(), window, got.view());
            CHECK(same_bits(got, expected));
          });
        }
      }
    }
  }
}

TEST_CASE("patches come in packs of channels where these are aligned, and nowhere else") {
  const Window window{.kernel = {1, 3, 3}};
  const auto packs = [&](const Tensor& x, std::int64_t first) {
    const Tensor patches = zeros({5'000}, Dtype::bf16);
    const Geometry g(x.view(), zeros({2, 1, 1, 3, 3}).view(), window);
    return unfolds_channels(g, x.view(), patches.view().as<std::uint16_t>() + first, 8);
  };
  const auto images = [](std::int64_t channels, const Shape& order) {
    return Tensor::empty_ordered({2, channels, 1, 5, 5}, order, Dtype::bf16, cpu);
  };
  const Shape last{0, 2, 3, 4, 1}, first{0, 1, 2, 3, 4};
  CHECK(packs(images(16, last), 0));
  CHECK(packs(images(16, last).slice(1, 8, 16), 0));
  CHECK_FALSE(packs(images(16, last), 1));
  CHECK_FALSE(packs(images(16, last).slice(1, 4, 12), 0));
  CHECK_FALSE(packs(images(12, last), 0));
  CHECK_FALSE(packs(images(16, first), 0));
}
