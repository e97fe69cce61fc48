// Clipped sums of convolutions that may use Winograd tiles: their errors stay within clipping's
// allowance, and no sample moves them by more than the bound.
#include <cmath>

#include "autograd/ops.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/support/catch.h"
#include "tests/support/dp_models.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/threads.h"

namespace sotto {
namespace {

struct ImageFactors {
  Tensor x, dy;  // [n, c, side, side], [n, k, side, side]
};

constexpr std::int64_t samples = 32;  // as many as a thread needs for tiles

Window same_size() { return {.kernel = {1, 3, 3}, .before = {0, 1, 1}, .after = {0, 1, 1}}; }

// value(channel, row, column) for one sample, zero in all others.
template <class F>
Tensor of_sample(std::int64_t place, std::int64_t n, std::int64_t channels, std::int64_t side,
                 F&& value) {
  std::vector<float> values(static_cast<std::size_t>(n * channels * side * side));
  float* to = values.data() + place * channels * side * side;
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t h = 0; h < side; ++h) {
      for (std::int64_t w = 0; w < side; ++w) *to++ = value(c, h, w);
    }
  }
  return Tensor::from(values, {n, channels, side, side});
}

PerSampleGrad gradient(const ImageFactors& images, Dtype dtype) {
  const std::int64_t n = images.x.size(0), c = images.x.size(1), k = images.dy.size(1),
                     side = images.x.size(2);
  const auto volume = [&](const Tensor& t, std::int64_t channels) {
    return channels_last(to_dtype(reshape(t, {n, channels, 1, side, side}), dtype));
  };
  return PerSampleGrad::patches(volume(images.dy, k), volume(images.x, c), same_size(),
                                {k, c, 3, 3});
}

double length(const Tensor& x) {
  double square = 0;
  for (const double v : to_dtype(x, Dtype::f64).to_vector<double>()) square += v * v;
  return std::sqrt(square);
}

// The error of the sum in the first sample's gradient, relative to clipping's allowance.
double share_of_allowance(const ImageFactors& images) {
  const PerSampleGrad use = gradient(images, Dtype::f32);
  NormErrorBounds bounds;
  squared_norm({use}, NormMethod::automatic, &bounds);
  const Tensor exact = gradient(images, Dtype::f64).sum();
  return length(sub(to_dtype(use.sum(), Dtype::f64), exact)) / bounds.error_bounds[0];
}

// Patterns for which tiles lose most digits: few nonzero pixels per tile, of very different sizes,
// equal in all channels.
ImageFactors steep_tile(PublicRandom& random, std::int64_t side) {
  const auto steep = [&](std::int64_t end) {
    std::vector<float> tile(static_cast<std::size_t>(end * end));
    for (float& v : tile) {
      const double size = std::exp(2.3 * random.normal());
      v = static_cast<float>(random.below(3) == 0 ? 0 : random.below(2) == 0 ? size : -size);
    }
    return [=](std::int64_t c, std::int64_t h, std::int64_t w) {
      const float near = 1 + 1e-3f * static_cast<float>((c * 37 + h * 11 + w * 5) % 17);
      return h < end && w < end ? near * tile[static_cast<std::size_t>(h * end + w)] : 0;
    };
  };
  return {of_sample(0, samples, 32, side, steep(4)), of_sample(0, samples, 32, side, steep(4))};
}

struct Setting {
  NormMethod norm_method;
  ClipPasses passes;
};
constexpr Setting settings[] = {{NormMethod::automatic, ClipPasses::one},
                                {NormMethod::ghost, ClipPasses::one},
                                {NormMethod::materialize, ClipPasses::one},
                                {NormMethod::automatic, ClipPasses::two}};

std::vector<double> clipped_sum(const ImageFactors& images, const Setting& setting, double bound) {
  Parameter w(zeros({images.dy.size(1), images.x.size(1), 3, 3}));
  Clipper clipper(flat_group({&w}, bound), {.norm_method = setting.norm_method}, setting.passes);
  Tape tape({.private_data = true});
  const ConvOptions options{.padding = {1, 1}};
  const Var y = conv(tape.input(images.x), tape.use(w), std::nullopt, options);
  clipper.add(tape, sum_per_sample(mul(y, tape.input(images.dy))));
  return flat(clipper.clipped_sums());
}

// The distance, in bounds, that the clipped sum moves if one sample becomes zero.
double influence(const ImageFactors& images, const Setting& setting, std::int64_t place,
                 double bound) {
  const ImageFactors without{clone(images.x), clone(images.dy)};
  copy_into(zeros({}), without.x.select(0, place));
  copy_into(zeros({}), without.dy.select(0, place));
  return distance(clipped_sum(images, setting, bound), clipped_sum(without, setting, bound)) /
         bound;
}

}  // namespace

TEST_CASE("sums over windows of 3 x 3 lose no more than clipping allows for") {
  for (const CpuEngine engine : {CpuEngine::portable, CpuEngine::onednn}) {
    if (!has_cpu_engine(engine)) continue;
    set_cpu_engine(engine);
    const Threads one(1);
    PublicRandom random(51);
    for (int round = 0; round < 150; ++round)
      CHECK(share_of_allowance(steep_tile(random, 4 + 4 * (round % 2))) < 0.5);
    const auto noise = [&](auto, auto, auto) { return static_cast<float>(random.normal()); };
    const auto constant = [](auto, auto, auto) { return 1000.0f; };
    const auto signs = [](auto c, auto h, auto w) { return (c + h + w) % 2 == 0 ? 1.0f : -1.0f; };
    const auto apart = [&](std::int64_t at) {
      return [&, at](auto, auto h, auto w) {
        return h % 4 == at && w % 4 == at ? static_cast<float>(random.normal()) : 0.0f;
      };
    };
    // Chunks of tiles; single images in tiles; six, which are padded to eight.
    for (const auto& [c, k, side, n] : {std::tuple{32L, 64L, 4L, samples},
                                        {16L, 64L, 14L, samples},
                                        {128L, 128L, 7L, samples},
                                        {128L, 128L, 16L, 5L},
                                        {128L, 128L, 16L, 6L}}) {
      INFO(n << " images, " << c << " to " << k << ", side " << side);
      const auto lost = [&, &c = c, &k = k, &side = side, &n = n](auto&& of_x, auto&& of_dy) {
        return share_of_allowance(
            {of_sample(0, n, c, side, of_x), of_sample(0, n, k, side, of_dy)});
      };
      CHECK(lost(noise, noise) < 0.5);
      CHECK(lost(constant, noise) < 0.5);
      CHECK(lost(constant, signs) < 0.5);
      CHECK(lost(apart(3), apart(1)) < 0.5);
    }
  }
}

TEST_CASE("a per-sample gradient has equal bits in any batch, and the right value") {
  Random random(53);
  for (const auto& [c, k, side] : {std::tuple{64L, 64L, 16L}, {32L, 32L, 32L}, {40L, 104L, 17L}}) {
    const auto noise = [&, &side = side](std::int64_t channels) {
      return random_tensor(random, {5, channels, side, side}, {0, 1, 2, 3}, Dtype::f32);
    };
    const ImageFactors images{noise(c), noise(k)};
    const PerSampleGrad uses = gradient(images, Dtype::f32);
    const Tensor rows = uses.materialize(), exact = gradient(images, Dtype::f64).materialize();
    const PerSampleGrad kept =
        uses.materialize_if_cheaper(NormMethod::materialize, uses.materialized_bytes());
    const std::vector<double> squares = values(squared_norm({kept}));
    for (std::int64_t n = 0; n < 5; ++n) {
      const Tensor row = rows.slice(0, n, n + 1);
      CHECK(same_bits(uses.slice(n, n + 1).materialize(), row));
      CHECK(length(sub(to_dtype(row, Dtype::f64), exact.slice(0, n, n + 1))) < 3e-6 * length(row));
      CHECK(std::sqrt(squares[static_cast<std::size_t>(n)]) == Approx(length(row)).epsilon(1e-8));
    }
  }
}

TEST_CASE("a sample at the ends of the floating-point range moves such sums by at most the bound") {
  constexpr std::int64_t place = 3, side = 8, channels = 32;
  Random random(52);
  const auto values = [&] {
    const Shape shape{samples, channels, side, side};
    return random_tensor(random, shape, {0, 1, 2, 3}, Dtype::f32);
  };
  const auto moved = [&](float x, float dy, double bound) {
    const Threads one(1);
    const ImageFactors images{values(), values()};
    copy_into(full({}, x), images.x.select(0, place));
    copy_into(full({}, dy), images.dy.select(0, place));
    double max = 0;
    for (const Setting& setting : settings)
      max = std::max(max, influence(images, setting, place, bound));
    return max;
  };
  for (const auto& [x, dy] : {std::pair{0x1p120f, 0x1p-49f},
                              {0x1p126f, 0x1p-60f},
                              {0x1p126f, 0x1p-126f},
                              {0x1p-70f, 0x1p127f},
                              {0x1p-145f, 0x1p127f},
                              {0x1p90f, 0x1p-130f},
                              {1e8f, 1e-3f}}) {
    for (const double bound : {0x1p-20, 1.0, 0x1p40}) {
      INFO(x << " and " << dy << ", bound " << bound);
      CHECK(moved(x, dy, bound) <= 1 + 1e-5);
    }
  }
  // Gradients of which a weight of 2^-99 leaves nine bits.
  for (int round = 0; round < 16; ++round)
    CHECK(moved(0x1p93f, 0x1p-41f, 0x1p-34 * (1 + round / 16.1)) <= 1 + 1e-5);
}

// As in clipper_test.cpp, for images.
TEST_CASE("an image whose terms cancel leaves the contributions of others in the sum", "[gate]") {
  constexpr std::int64_t count = 600, place = 153, side = 8, channels = 32;
  const Tensor others = full({count, channels, side, side}, 1);
  const Tensor grads = full({count, channels, side, side}, 0.3 / (channels * side * side));
  for (const float size : {10.0f, 1e3f, 1e5f, 1e8f}) {
    // Image rows that every tap of the window sees.
    const auto rows = [&](auto, auto h, auto) { return h == 2 ? size : h == 5 ? -size : 0; };
    const Tensor x = add(others, of_sample(place, count, channels, side, rows));
    copy_into(full({}, 1), grads.select(0, place));
    for (const Setting& setting : settings) {
      INFO("terms of " << size);
      CHECK(influence({x, grads}, setting, place, 1) <= 1.002);
    }
  }
}

}  // namespace sotto
