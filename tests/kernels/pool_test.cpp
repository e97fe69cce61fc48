// File tags: [optimised][sanitized][simd]
#include <limits>

#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

struct Case {
  Window window;
  Shape x, y;
  bool channels_last = false;  // of all images; otherwise each has its own order
  Shape order(Random& random) const {
    return channels_last ? Shape{0, 2, 3, 4, 1} : random_order(random, 5);
  }
};

Case random_case(Random& random) {
  Case c;
  c.channels_last = random() % 2 == 0;
  c.x = {between(random, 0, 3), between(random, 1, 70)};
  c.y = c.x;
  const std::int64_t axes = between(random, 1, 3);
  for (int axis = 0; axis < 3; ++axis) {
    std::int64_t in = 1;
    if (axis >= 3 - axes) {
      c.window.kernel[axis] = between(random, 1, 3);
      c.window.stride[axis] = between(random, 1, 3);
      c.window.dilation[axis] = between(random, 1, 2);
      c.window.before[axis] = between(random, 0, 2);
      c.window.after[axis] = between(random, 0, 4);
      in = between(random, c.window.dilation[axis] * (c.window.kernel[axis] - 1) + 1, 7);
    }
    c.x.push_back(in);
    c.y.push_back(c.window.output_size(axis, in));
  }
  return c;
}

// A tap's position along one axis; `inside` the image, or `counted` with the padding at the start
// and as much at the end.
struct Place {
  std::int64_t index = 0;
  bool inside = true;
  bool counted = true;
};

// Calls f(y index, tap, place) for every output and every tap of its window.
template <class F>
void for_each_tap(const Case& c, F&& f) {
  const Window& w = c.window;
  for (std::int64_t k = 0; k < c.y.numel(); ++k) {
    std::int64_t o[3] = {k / (c.y[4] * c.y[3]) % c.y[2], k / c.y[4] % c.y[3], k % c.y[4]};
    const std::int64_t image = k / (c.y[2] * c.y[3] * c.y[4]);
    for (std::int64_t tap = 0; tap < w.positions(); ++tap) {
      const std::int64_t t[3] = {tap / (w.kernel[1] * w.kernel[2]), tap / w.kernel[2] % w.kernel[1],
                                 tap % w.kernel[2]};
      Place place{.index = image};
      for (int a = 0; a < 3; ++a) {
        const std::int64_t at = o[a] * w.stride[a] - w.before[a] + t[a] * w.dilation[a];
        place.index = place.index * c.x[a + 2] + at;
        place.inside = place.inside && at >= 0 && at < c.x[a + 2];
        place.counted = place.counted && at < c.x[a + 2] + w.before[a];
      }
      f(static_cast<std::size_t>(k), tap, place);
    }
  }
}

std::vector<double> filled(const Shape& shape, double value) {
  return std::vector<double>(static_cast<std::size_t>(shape.numel()), value);
}

// Integers, so that equal values occur.
Tensor coarse(Random& random, const Case& c, Dtype dtype) {
  return fill(Tensor::empty_ordered(c.x, c.order(random), dtype, cpu),
              [&] { return static_cast<double>(between(random, -4, 4)); });
}

void check_max(Backend& engine, Random& random, const Case& c, Dtype dtype) {
  const Tensor x = coarse(random, c, dtype);
  const Tensor y = unwritten(c.y, c.order(random), dtype);
  const Tensor argmax =
      Tensor::empty_ordered(c.y, c.order(random), random() % 2 ? Dtype::u8 : Dtype::i32, cpu);
  engine.max_pool(x.view(), c.window, y.view(), argmax.view());
  const Tensor dy = random_tensor(random, c.y, c.order(random), dtype);
  const Tensor dx = unwritten(c.x, c.order(random), dtype);
  engine.max_pool_grad(dy.view(), argmax.view(), c.window, dx.view());

  const std::vector<double> xs = values(x), dys = values(dy), taps = values(argmax);
  const double none = -std::numeric_limits<double>::infinity();
  std::vector<double> best = filled(c.y, none), tap_of = filled(c.y, 0), expected = filled(c.x, 0);
  for_each_tap(c, [&](std::size_t k, std::int64_t tap, const Place& p) {
    if (!p.inside || xs[static_cast<std::size_t>(p.index)] <= best[k]) return;
    best[k] = xs[static_cast<std::size_t>(p.index)];
    tap_of[k] = static_cast<double>(tap);
  });
  for_each_tap(c, [&](std::size_t k, std::int64_t tap, const Place& p) {
    if (p.inside && static_cast<double>(tap) == tap_of[k]) {
      expected[static_cast<std::size_t>(p.index)] += dys[k];
    }
  });
  std::replace(best.begin(), best.end(), none, 0.0);
  CHECK(values(y) == best);
  CHECK(taps == tap_of);
  check_close(dx, expected);
}

void check_average(Backend& engine, Random& random, const Case& c, Dtype dtype) {
  for (const bool count_padding : {false, true}) {
    const Tensor x = random_tensor(random, c.x, c.order(random), dtype);
    const Tensor dy = random_tensor(random, c.y, c.order(random), dtype);
    const Tensor y = unwritten(c.y, c.order(random), dtype);
    const Tensor dx = unwritten(c.x, c.order(random), dtype);
    engine.avg_pool(x.view(), c.window, count_padding, y.view());
    engine.avg_pool_grad(dy.view(), c.window, count_padding, dx.view());

    const std::vector<double> xs = values(x), dys = values(dy);
    std::vector<double> sum = filled(c.y, 0), count = filled(c.y, 0), expected = filled(c.x, 0);
    for_each_tap(c, [&](std::size_t k, std::int64_t, const Place& p) {
      count[k] += count_padding ? p.counted : p.inside;
      if (p.inside) sum[k] += xs[static_cast<std::size_t>(p.index)];
    });
    for_each_tap(c, [&](std::size_t k, std::int64_t, const Place& p) {
      if (p.inside) expected[static_cast<std::size_t>(p.index)] += dys[k] / count[k];
    });
    for (std::size_t k = 0; k < sum.size(); ++k) sum[k] = count[k] == 0 ? 0 : sum[k] / count[k];
    check_close(y, sum);
    check_close(dx, expected);
  }
}

Window line(std::int64_t kernel, std::int64_t stride, std::int64_t before, std::int64_t after) {
  Window w;
  w.kernel[2] = kernel;
  w.stride[2] = stride;
  w.before[2] = before;
  w.after[2] = after;
  return w;
}

}  // namespace

TEST_CASE("maxima, their taps and their gradients are those of the definition") {
  for_each_engine([](Backend& engine) {
    Random random(1);
    for (int round = 0; round < 60; ++round) {
      const Case c = random_case(random);
      INFO("x " << to_string(c.x) << " y " << to_string(c.y));
      for (const Dtype dtype : float_dtypes) check_max(engine, random, c, dtype);
    }
  });
}

TEST_CASE("averages and their gradients are those of the definition", "[gate]") {
  for_each_engine([](Backend& engine) {
    Random random(2);
    for (int round = 0; round < 60; ++round) {
      const Case c = random_case(random);
      INFO("x " << to_string(c.x) << " y " << to_string(c.y));
      for (const Dtype dtype : float_dtypes) check_average(engine, random, c, dtype);
    }
  });
}

TEST_CASE("the first NaN is the maximum, and infinities are values like others") {
  for_each_engine([](Backend& engine) {
    const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
    const Tensor x =
        Tensor::from({1, nan, nan, 2, -infinity, -infinity, 3, infinity, 4, nan, nan, 5},
                     {1, 1, 1, 1, 12}, Dtype::f32);
    const Tensor y = unwritten({1, 1, 1, 1, 4}, Dtype::f32);
    const Tensor argmax = Tensor::empty({1, 1, 1, 1, 4}, Dtype::u8);
    engine.max_pool(x.view(), line(3, 3, 0, 0), y.view(), argmax.view());
    CHECK(argmax.to_vector<std::uint8_t>() == std::vector<std::uint8_t>{1, 0, 1, 0});
    CHECK(std::isnan(values(y)[3]));
    CHECK(std::isnan(values(y)[0]));
    CHECK(values(y)[1] == 2);
    CHECK(values(y)[2] == infinity);
    const Tensor low = Tensor::from({-infinity, -infinity}, {1, 1, 1, 1, 2}, Dtype::f32);
    const Tensor one = unwritten({1, 1, 1, 1, 1}, Dtype::f32);
    const Tensor tap = Tensor::empty({1, 1, 1, 1, 1}, Dtype::u8);
    engine.max_pool(low.view(), line(3, 1, 1, 0), one.view(), tap.view());
    CHECK(one.item() == -infinity);
    CHECK(tap.item() == 1);
  });
}

TEST_CASE("a last window that only rounding up made room for counts the nominal padding") {
  for_each_engine([](Backend& engine) {
    // Five ones, windows of 3 with stride 2 and padding 1: the third window covers positions 3, 4,
    // 5, and the fourth 5, 6, 7, of which only 5 is padding; 6 and 7 are outside of the padded
    // input.
    const Tensor x = Tensor::from({1, 1, 1, 1, 1}, {1, 1, 1, 1, 5}, Dtype::f64);
    const Tensor y = unwritten({1, 1, 1, 1, 4}, Dtype::f64);
    engine.avg_pool(x.view(), line(3, 2, 1, 3), true, y.view());
    check_close(y, {2.0 / 3, 1, 2.0 / 3, 0});
    const Tensor short_x = Tensor::from({1, 1, 1, 1}, {1, 1, 1, 1, 4}, Dtype::f64);
    const Tensor short_y = unwritten({1, 1, 1, 1, 3}, Dtype::f64);
    engine.avg_pool(short_x.view(), line(3, 2, 1, 2), true, short_y.view());
    check_close(short_y, {2.0 / 3, 1, 0.5});
  });
}

TEST_CASE("pooling a NaN in one sample leaves the bits of the other samples") {
  for_each_engine([](Backend& engine) {
    Random random(3);
    const Tensor x = random_tensor(random, {3, 5, 1, 6, 6}, {0, 2, 3, 4, 1}, Dtype::f32);
    Window window = line(2, 2, 0, 0);
    const auto run = [&] {
      const Tensor y = unwritten({3, 5, 1, 6, 3}, Dtype::f32),
                   mean = unwritten({3, 5, 1, 6, 3}, Dtype::f32);
      const Tensor argmax = Tensor::empty({3, 5, 1, 6, 3}, Dtype::u8);
      engine.max_pool(x.view(), window, y.view(), argmax.view());
      engine.avg_pool(x.view(), window, true, mean.view());
      return std::vector<Tensor>{y, mean};
    };
    const std::vector<Tensor> before = run();
    fill(x.select(0, 1), [] { return std::nan(""); });
    const std::vector<Tensor> after = run();
    for (std::size_t i = 0; i < 2; ++i) {
      for (const std::int64_t n : {0, 2}) {
        CHECK(same_bits(before[i].select(0, n), after[i].select(0, n)));
      }
      CHECK_FALSE(same_bits(before[i].select(0, 1), after[i].select(0, 1)));
    }
  });
}
