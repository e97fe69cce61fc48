// File tags: [optimised][sanitized]
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/conv_cases.h"

using namespace sotto;

namespace {

// A case whose weight gradients have long contiguous rows.
ConvCase wide_case(Random& random, std::int64_t samples) {
  ConvCase c;
  do c = random_case(random, samples);
  while (c.window.groups > 1 || c.window.dilation[2] > 1);
  c.x[1] = c.w[1] = between(random, 8, 40);
  c.y[1] = c.w[0] = between(random, 4, 30);
  return c;
}

std::size_t flat(const Shape& shape, std::initializer_list<std::int64_t> at) {
  std::int64_t index = 0;
  int axis = 0;
  for (const std::int64_t i : at) index = index * shape[axis++] + i;
  return static_cast<std::size_t>(index);
}

// Calls f(x index, w index, y index, sample) for every product of the convolution.
template <class F>
void for_each_product(const ConvCase& c, F&& f) {
  const Window& w = c.window;
  const Shape outer{c.y[0], c.y[1], c.w[1]};
  const Shape inner{c.y[2], c.y[3], c.y[4], c.w[2], c.w[3], c.w[4]};
  for_each_offset(outer, contiguous_strides(outer), [&](std::int64_t i) {
    const std::int64_t n = i / (c.y[1] * c.w[1]), o = i / c.w[1] % c.y[1], part = i % c.w[1];
    const std::int64_t channel = o / (c.y[1] / w.groups) * c.w[1] + part;
    std::int64_t at[6] = {};
    for (std::int64_t left = inner.numel(); left > 0; --left) {
      std::int64_t p[3];
      bool inside = true;
      for (int a = 0; a < 3; ++a) {
        p[a] = at[a] * w.stride[a] - w.before[a] + at[a + 3] * w.dilation[a];
        inside = inside && p[a] >= 0 && p[a] < c.x[a + 2];
      }
      if (inside) {
        f(flat(c.x, {n, channel, p[0], p[1], p[2]}), flat(c.w, {o, part, at[3], at[4], at[5]}),
          flat(c.y, {n, o, at[0], at[1], at[2]}), static_cast<std::size_t>(n));
      }
      for (int a = 5; a >= 0 && ++at[a] == inner[a]; --a) at[a] = 0;
    }
  });
}

std::vector<double> zeros_of(const Shape& shape) {
  return std::vector<double>(static_cast<std::size_t>(shape.numel()), 0.0);
}

// Half of the images are channels-last, the others in any order.
Tensor image(Random& random, const Shape& shape, Dtype dtype) {
  return random() % 2 ? random_tensor(random, shape, channels_last_order, dtype)
                      : random_tensor(random, shape, dtype);
}
Tensor unwritten_image(Random& random, const Shape& shape, Dtype dtype) {
  return unwritten(shape, random() % 2 ? channels_last_order : random_order(random, 5), dtype);
}

void check_conv(Backend& engine, Random& random, const ConvCase& c, Dtype dtype) {
  const Tensor x = image(random, c.x, dtype), w = random_tensor(random, c.w, dtype);
  const Tensor bias = random_tensor(random, {c.w[0]}, dtype);
  const Tensor y = unwritten_image(random, c.y, dtype);
  const std::vector<double> xs = values(x), ws = values(w), bs = values(bias);
  std::vector<double> expected = zeros_of(c.y);
  for_each_product(c, [&](auto i, auto j, auto k, auto) { expected[k] += xs[i] * ws[j]; });
  engine.conv(x.view(), w.view(), View{}, c.window, y.view());
  check_close(y, expected);
  const auto positions = static_cast<std::size_t>(c.y[2] * c.y[3] * c.y[4]);
  const auto outputs = static_cast<std::size_t>(c.y[1]);
  for (std::size_t k = 0; k < expected.size(); ++k) expected[k] += bs[k / positions % outputs];
  engine.conv(x.view(), w.view(), bias.view(), c.window, y.view());
  check_close(y, expected);
}

void check_conv_data(Backend& engine, Random& random, const ConvCase& c, Dtype dtype) {
  const Tensor dy = image(random, c.y, dtype), w = random_tensor(random, c.w, dtype);
  const Tensor dx = unwritten_image(random, c.x, dtype);
  const std::vector<double> dys = values(dy), ws = values(w);
  std::vector<double> expected = zeros_of(c.x);
  for_each_product(c, [&](auto i, auto j, auto k, auto) { expected[i] += dys[k] * ws[j]; });
  engine.conv_data(dy.view(), w.view(), c.window, dx.view());
  check_close(dx, expected);
}

void check_conv_norms(const ConvCase& c, const Tensor& dy, const Tensor& x,
                      const std::vector<double>& rows, const Tensor& norms) {
  const auto squared = [](const std::vector<double>& all, std::size_t n, std::size_t count) {
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(n * count);
    return std::inner_product(first, first + static_cast<std::ptrdiff_t>(count), first, 0.0);
  };
  const std::vector<double> dys = values(dy), xs = values(x), got = values(norms);
  const auto samples = static_cast<std::size_t>(c.x[0]);
  for (std::size_t n = 0; n < samples; ++n) {
    const double grads = squared(dys, n, dys.size() / samples);
    const double inputs = squared(xs, n, xs.size() / samples);
    const double norm = squared(rows, n, rows.size() / samples);
    CHECK(got[3 * n] == Approx(norm).epsilon(1e-4).margin(1e-6 * grads * inputs));
    CHECK(got[3 * n + 1] == Approx(grads).epsilon(1e-5));
    CHECK(got[3 * n + 2] == Approx(inputs).epsilon(1e-5));
  }
}

// Checks conv_gram_norms() for windows that move by one, if the backend has it.
void check_gram_norms(Backend& engine, const ConvCase& c, const Tensor& dy, const Tensor& x,
                      const std::vector<double>& rows) {
  const Window& w = c.window;
  const bool by_one = w.stride[0] * w.stride[1] * w.stride[2] == 1;
  const bool offered = by_one && engine.costs(Dtype::f32).shifted_adds > 0;
  const Tensor norms = unwritten({c.x[0]}, Dtype::f64);
  CHECK(engine.conv_gram_norms(dy.view(), x.view(), w, norms.view()) == offered);
  if (!offered) return;
  const std::vector<double> got = values(norms);
  for (std::size_t n = 0; n < got.size(); ++n) {
    double expected = 0;
    for (std::size_t k = 0; k < rows.size() / got.size(); ++k)
      expected += std::pow(rows[n * (rows.size() / got.size()) + k], 2);
    CHECK(got[n] == Approx(expected).epsilon(1e-4));
  }
}

// Checks add_rounded_weights(), if the backend has it for the images. Samples of weight 0 hold NaN
// afterwards.
void check_rounded_weights(Backend& engine, const ConvCase& c, const Tensor& dy, const Tensor& x,
                           const std::vector<double>& rows) {
  constexpr double spacing = 0x1p-20;
  const std::int64_t samples = c.x[0];
  if (samples == 0) return;
  std::vector<double> weights, expected(rows.size() / static_cast<std::size_t>(samples), 1.0);
  for (std::int64_t n = 0; n < samples; ++n) {
    weights.push_back(n % 3 == 0 ? 0.7 : n % 3 == 1 ? 0 : -1.3);
    if (weights.back() == 0) engine.fill(NAN, dy.select(0, n).view());
    for (std::size_t j = 0; j < expected.size() && weights.back() != 0; ++j)
      expected[j] += weights.back() * rows[static_cast<std::size_t>(n) * expected.size() + j];
  }
  const Tensor w = Tensor::from(weights, {samples}), sum = full(c.w, 1, Dtype::f64);
  if (!engine.add_rounded_weights(dy.view(), x.view(), c.window, w.view(), spacing, sum.view()))
    return;
  const std::vector<double> got = values(sum);
  for (std::size_t j = 0; j < got.size(); ++j) {
    CHECK(got[j] == Approx(expected[j]).epsilon(1e-4).margin(1e-4));
    CHECK(got[j] / spacing == std::nearbyint(got[j] / spacing));
  }
}

void check_conv_weight(Backend& engine, Random& random, const ConvCase& c, Dtype dtype) {
  const Tensor dy = image(random, c.y, dtype), x = image(random, c.x, dtype);
  const std::vector<double> dys = values(dy), xs = values(x);
  std::vector<double> rows = zeros_of(rows_shape(c)), sum = zeros_of(c.w);
  for_each_product(c, [&](auto i, auto j, auto k, auto n) {
    rows[n * sum.size() + j] += dys[k] * xs[i];
    sum[j] += dys[k] * xs[i];
  });
  const Tensor dw = unwritten(c.w, dtype), dw_rows = unwritten(rows_shape(c), dtype);
  engine.conv_weight(dy.view(), x.view(), c.window, 0, dw.view());
  check_close(dw, sum);
  engine.conv_weight_rows(dy.view(), x.view(), c.window, dw_rows.view(), View{});
  check_close(dw_rows, rows);
  const Tensor norms = unwritten({c.x[0], 3}, Dtype::f64), with_rows = clone(norms);
  const Tensor wide_rows = unwritten(rows_shape(c), arithmetic_type(dtype));
  engine.conv_weight_rows(dy.view(), x.view(), c.window, wide_rows.view(), with_rows.view());
  check_close(wide_rows, rows);
  check_conv_norms(c, dy, x, rows, with_rows);
  engine.conv_weight_norms(dy.view(), x.view(), c.window, norms.view());
  check_conv_norms(c, dy, x, rows, norms);
  check_gram_norms(engine, c, dy, x, rows);
  // The weight gradient of 16-bit images may be f32.
  const Tensor more = random_tensor(random, c.w, {0, 1, 2, 3, 4}, arithmetic_type(dtype));
  const std::vector<double> before = values(more);
  for (std::size_t j = 0; j < sum.size(); ++j) sum[j] += before[j];
  engine.conv_weight(dy.view(), x.view(), c.window, 1, more.view());
  check_close(more, sum);
  check_rounded_weights(engine, c, dy, x, rows);
}

void check_all(Backend& engine, Random& random, const ConvCase& c, Dtype dtype) {
  INFO(name(dtype) << " x " << to_string(c.x) << " w " << to_string(c.w) << " y "
                   << to_string(c.y));
  check_conv(engine, random, c, dtype);
  check_conv_data(engine, random, c, dtype);
  check_conv_weight(engine, random, c, dtype);
}

}  // namespace

TEST_CASE("convolutions and their gradients are the sums of products that define them", "[gate]") {
  for_each_engine([](Backend& engine) {
    Random random(1);
    for (int round = 0; round < 40; ++round) {
      const ConvCase c = random_case(random, between(random, 1, 4));
      for (const Dtype dtype : float_dtypes) check_all(engine, random, c, dtype);
    }
  });
}

TEST_CASE("depthwise convolutions are the sums that define them, whatever the channels", "[gate]") {
  for_each_engine([](Backend& engine) {
    Random random(5);
    for (const std::int64_t channels : {2, 16, 19, 37}) {
      for (int round = 0; round < 8; ++round) {
        ConvCase c = random_case(random, between(random, 1, 3));
        c.window.groups = c.x[1] = c.y[1] = c.w[0] = channels;
        c.w[1] = 1;
        for (const Dtype dtype : float_dtypes) check_all(engine, random, c, dtype);
      }
    }
  });
}

TEST_CASE("weight gradients in bf16 over very many positions are the sums that define them",
          "[gate]") {
  for_each_engine([](Backend& engine) {
    Random random(8);
    check_conv_weight(engine, random, image_case(2, {4, 5}, 97, square(1, 1, 0)), Dtype::bf16);
  });
}

TEST_CASE("convolutions of more taps and positions than a product has in a block", "[gate]") {
  for_each_engine([](Backend& engine) {
    Random random(9);
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16})
      check_all(engine, random, image_case(5, {55, 9}, 26, square(3, 1, 1)), dtype);
  });
}

TEST_CASE("norms of weight gradients are those of the materialized ones, however large", "[gate]") {
  for_each_engine([](Backend& engine) {
    Random random(7);
    for (int round = 0; round < 60; ++round) {
      ConvCase c = wide_case(random, 2);
      if (round % 10 < 2) c = image_case(2, {5, 7}, 40, square(4, 1, 2));  // many positions
      const Dtype dtype = float_dtypes[round % std::size(float_dtypes)];
      const Tensor x = image(random, c.x, dtype), dy = image(random, c.y, dtype);
      INFO(name(dtype) << " x " << to_string(c.x) << " w " << to_string(c.w));
      std::vector<double> rows = zeros_of(rows_shape(c)), dys = values(dy), xs = values(x);
      for_each_product(c, [&](auto i, auto j, auto k, auto n) {
        rows[n * rows.size() / 2 + j] += dys[k] * xs[i];
      });
      const Tensor norms = unwritten({2, 3}, Dtype::f64), others = clone(norms);
      engine.conv_weight_norms(dy.view(), x.view(), c.window, norms.view());
      check_conv_norms(c, dy, x, rows, norms);
      if (dtype != Dtype::f32) continue;
      // The squares are outside of float's range.
      for (const double size : {0x1p-80, 0x1p80}) {
        const Tensor scaled = scale(dy, size);
        engine.conv_weight_norms(scaled.view(), x.view(), c.window, others.view());
        CHECK(values(others)[0] == Approx(values(norms)[0] * size * size).epsilon(1e-5));
      }
    }
  });
}

TEST_CASE("convolutions of the sizes that networks have", "[nightly]") {
  for_each_engine([](Backend& engine) {
    Random random(2);
    Window depthwise = square(3, 1, 1);
    depthwise.groups = 24;
    for (const ConvCase& c :
         {image_case(9, {1, 16}, 28, square(8, 2, 3)), image_case(5, {16, 32}, 13, square(4, 2, 0)),
          image_case(70, {3, 8}, 8, square(3, 1, 1)), image_case(3, {24, 24}, 10, depthwise),
          image_case(3, {40, 48}, 7, square(1, 1, 0)), image_case(11, {64, 32}, 8, square(3, 1, 1)),
          image_case(3, {160, 32}, 9, square(3, 1, 1)),
          image_case(2, {32, 48}, 17, square(3, 1, 1)),
          image_case(2, {64, 32}, 12, square(3, 1, 0))}) {
      check_all(engine, random, c, Dtype::f32);
    }
    // Cases whose data pass may be a forward pass with reversed weights, and cases where it may
    // not.
    Window uneven = square(3, 1, 1);
    uneven.kernel[2] = 4;
    uneven.before[2] = 0;
    uneven.dilation[1] = 2;
    Window out_of_sight = square(2, 1, 2);
    for (const Window& window : {square(5, 1, 2), uneven, out_of_sight}) {
      ConvCase c = image_case(2, {6, 32}, 11, window);
      c.y[3] = window.output_size(1, 11);
      check_all(engine, random, c, Dtype::f32);
    }
    // So large that devices process it in chunks.
    check_conv_weight(engine, random, image_case(5, {16, 32}, 13, square(4, 2, 0)), Dtype::bf16);
    // A convolution that is a product for channels-last images: some of the random layouts are.
    for (int round = 0; round < 8; ++round)
      check_conv_weight(engine, random, image_case(3, {10, 12}, 7, square(1, 1, 0)), Dtype::f16);
  });
}

TEST_CASE("a batch of no samples has no outputs and a weight gradient of zero") {
  for_each_engine([](Backend& engine) {
    Random random(3);
    for (const Dtype dtype : float_dtypes) check_all(engine, random, random_case(random, 0), dtype);
  });
}

TEST_CASE("unfold gives the inputs under each window, channels first") {
  for_each_engine([](Backend& engine) {
    Random random(4);
    for (int round = 0; round < 30; ++round) {
      ConvCase c = random_case(random, between(random, 0, 3));
      c.window.groups = 1;
      c.w = {1, c.x[1], c.w[2], c.w[3], c.w[4]};
      c.y[1] = 1;
      for (const Dtype dtype : float_dtypes) {
        const Tensor x = image(random, c.x, dtype);
        const std::int64_t positions = c.y[2] * c.y[3] * c.y[4], taps = c.w.numel();
        const Tensor patches = unwritten({c.x[0], positions, taps}, dtype);
        engine.unfold(x.view(), c.window, patches.view());
        std::vector<double> expected = zeros_of(patches.shape());
        const std::vector<double> xs = values(x);
        for_each_product(c, [&](auto i, auto j, auto k, auto) {
          expected[k * static_cast<std::size_t>(taps) + j] = xs[i];
        });
        CHECK(values(patches) == expected);
      }
    }
  });
}
