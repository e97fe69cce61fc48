// The result of a convolution for one sample does not depend on the other samples or on repetition.
// File tags: [engine][optimised]
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/conv_cases.h"

using namespace sotto;

TEST_CASE("a NaN in one sample leaves the bits of the other samples") {
  for_each_engine([](Backend& engine) {
    Random random(5);
    for (const ConvCase& c :
         {image_case(7, {5, 6}, 6, square(3, 1, 1)), image_case(40, {1, 16}, 28, square(8, 2, 3)),
          image_case(13, {32, 40}, 16, square(3, 1, 1)), random_case(random, 5)}) {
      const Tensor x = random_tensor(random, c.x, channels_last_order, Dtype::f32);
      const Tensor dy = random_tensor(random, c.y, channels_last_order, Dtype::f32);
      const Tensor w = random_tensor(random, c.w, {0, 1, 2, 3, 4}, Dtype::f32);
      const auto run = [&] {
        std::vector<Tensor> results{unwritten(c.y, channels_last_order, Dtype::f32),
                                    unwritten(c.x, channels_last_order, Dtype::f32),
                                    unwritten(rows_shape(c), Dtype::f32)};
        engine.conv(x.view(), w.view(), View{}, c.window, results[0].view());
        engine.conv_data(dy.view(), w.view(), c.window, results[1].view());
        engine.conv_weight_rows(dy.view(), x.view(), c.window, results[2].view(), View{});
        return results;
      };
      const std::vector<Tensor> before = run();
      constexpr std::int64_t bad = 3;
      for (const Tensor& t : {x, dy}) fill(t.select(0, bad), [] { return std::nan(""); });
      const std::vector<Tensor> after = run();
      for (std::size_t i = 0; i < before.size(); ++i) {
        const Tensor &a = before[i], &b = after[i];
        CHECK(same_bits(a.slice(0, 0, bad), b.slice(0, 0, bad)));
        CHECK(same_bits(a.slice(0, bad + 1, c.x[0]), b.slice(0, bad + 1, c.x[0])));
        CHECK_FALSE(same_bits(a.select(0, bad), b.select(0, bad)));
      }
    }
  });
}

namespace {

struct Sizes {
  Shape channels;
  std::int64_t side, groups = 1;
};

}  // namespace

TEST_CASE("a sample has the same bits in any batch on the CPU", "[gate]") {
  for (const CpuEngine engine : {CpuEngine::portable, CpuEngine::onednn}) {
    if (has_cpu_engine(engine)) set_cpu_engine(engine);
    Random random(8);
    constexpr std::int64_t samples = 71;
    for (const auto& [channels, side, groups] :
         {Sizes{{6, 16}, 9}, {{32, 64}, 8}, {{128, 32}, 16}, {{256, 32}, 8}, {{40, 40}, 9, 40}}) {
      Window window = square(3, 1, 1);
      window.groups = groups;
      const ConvCase c = image_case(samples, channels, side, window);
      INFO(to_string(c.x) << " w " << to_string(c.w));
      const Tensor x = random_tensor(random, c.x, channels_last_order, Dtype::f32);
      const Tensor dy = random_tensor(random, c.y, channels_last_order, Dtype::f32);
      const Tensor w = random_tensor(random, c.w, {0, 1, 2, 3, 4}, Dtype::f32);
      const auto run = [&](std::int64_t first, std::int64_t last) {
        Shape y_shape = c.y, x_shape = c.x;
        y_shape[0] = x_shape[0] = last - first;
        std::array results{unwritten(y_shape, channels_last_order, Dtype::f32),
                           unwritten(x_shape, channels_last_order, Dtype::f32)};
        backend(cpu).conv(x.slice(0, first, last).view(), w.view(), View{}, c.window,
                          results[0].view());
        backend(cpu).conv_data(dy.slice(0, first, last).view(), w.view(), c.window,
                               results[1].view());
        return results;
      };
      const auto all = run(0, samples);
      for (const auto& [first, last] :
           {std::pair<std::int64_t, std::int64_t>{0, 1}, {3, 12}, {30, 70}, {70, 71}}) {
        for (std::size_t i = 0; i < all.size(); ++i)
          CHECK(same_bits(run(first, last)[i], all[i].slice(0, first, last)));
      }
    }
  }
}

TEST_CASE("equal inputs give equal bits") {
  for_each_engine([](Backend& engine) {
    Random random(6);
    const ConvCase c = image_case(37, {4, 12}, 12, square(3, 2, 1));
    const Tensor x = random_tensor(random, c.x, channels_last_order, Dtype::f32);
    const Tensor dy = random_tensor(random, c.y, channels_last_order, Dtype::f32);
    const Tensor first = unwritten(c.w, Dtype::f32);
    engine.conv_weight(dy.view(), x.view(), c.window, 0, first.view());
    for (int round = 0; round < 10; ++round) {
      const Tensor again = unwritten(c.w, Dtype::f32);
      engine.conv_weight(dy.view(), x.view(), c.window, 0, again.view());
      CHECK(same_bits(first, again));
    }
  });
}
