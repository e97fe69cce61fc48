// The use of TF32: products and convolutions of activations round their f32 factors to 11 bits,
// norms and weight gradients do not, so that the clip bound holds.
// File tags: [alone][gpu]
#include "kernels/tf32.h"

#include <stdexcept>

#include "autograd/per_sample/per_sample_grad.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "tests/support/captured_setup.h"
#include "tests/support/per_sample_cases.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

// The rounding step of a factor, which is far larger than the rounding of sums in f32.
constexpr double tf32_step = 0x1p-11, f32_sums = 1e-5;

// Set before any GPU, or the kernels on the host, are used.
const bool asked = (use_tf32(true), true);

// The error relative to the largest possible sum: `terms` products of numbers up to 1.
double error(const Tensor& got, const Tensor& expected, std::int64_t terms) {
  const std::vector<double> x = values(got), y = values(expected);
  double max = 0;
  for (std::size_t i = 0; i < x.size(); ++i) max = std::max(max, std::abs(x[i] - y[i]));
  return max / static_cast<double>(terms);
}

// Compares the results of `f` on f32 operands with and without the GPU's kernels. A GPU's libraries
// may choose not to round; the host, which comes first, always rounds.
void check_rounded(std::int64_t terms, const std::function<Tensor()>& f) {
  const Tensor expected = f();
  bool host = true;
  for_each_device_code([&] {
    const Tensor got = f();
    CHECK(error(got, expected, terms) < 3 * tf32_step);
    if (host) CHECK(error(got, expected, terms) > tf32_step / 256);
    host = false;
    const NoTf32Scope whole;
    CHECK(error(f(), expected, terms) < f32_sums);
  });
}

Window window_of_3() {
  Window window;
  window.kernel[1] = window.kernel[2] = 3;
  window.before[1] = window.after[2] = 1;
  return window;
}

std::vector<double> clipped(Device device, const Batch& batch, NormMethod norm_method,
                            ClipPasses passes) {
  Setup s(device, 1);
  Clipper clipper(flat_group(s.model.parameters(), 0.25), {.norm_method = norm_method}, passes);
  Tape tape({.private_data = true});
  clipper.add(tape, s.plain(tape, on_device(device, tensors(batch))));
  return flat(clipper.clipped_sums());
}

// Sample `n` in each row of a batch of the same size: a GPU's libraries may have other kernels,
// which round other factors, for one sample than for several.
Batch copies_of(const Batch& batch, std::int64_t n) {
  const auto copies = [n](const Tensor& x) {
    const std::vector<Tensor> parts(static_cast<std::size_t>(x.size(0)), x.slice(0, n, n + 1));
    return concat(parts, 0);
  };
  return {copies(batch.images), copies(batch.targets)};
}

}  // namespace

TEST_CASE("products and convolutions of f32 round their factors if TF32 is enabled") {
  REQUIRE(asked);
  Random random(1);
  const auto some = [&](const Shape& shape) { return random_tensor(random, shape, Dtype::f32); };
  const Tensor a = some({33, 70}), b = some({70, 17}), row = some({1, 17});
  check_rounded(70, [&] { return gemm(a, b); });
  check_rounded(70, [&] {
    const Tensor y = Tensor::empty({33, 17}, Dtype::f32);
    backend(cpu).affine(a.view(), b.view(), row.view(), y.view());
    return y;
  });
  // Channels-last and 3 samples, for which the host's library has a plan.
  const auto images = [&](const Shape& shape) {
    return random_tensor(random, shape, {0, 2, 3, 4, 1}, Dtype::f32);
  };
  const Tensor x = images({3, 6, 1, 7, 8}), w = some({5, 6, 1, 3, 3}), dy = images({3, 5, 1, 6, 7});
  check_rounded(54, [&] { return conv(x, w, {}, window_of_3()); });
  check_rounded(45, [&] { return conv_data(dy, w, window_of_3(), x.shape()); });
}

TEST_CASE("no other type is rounded") {
  Random random(2);
  for (const Dtype dtype : {Dtype::f64, Dtype::f16, Dtype::bf16}) {
    const Tensor a = random_tensor(random, {9, 40}, dtype),
                 b = random_tensor(random, {40, 6}, dtype);
    const Tensor expected = to_dtype(gemm(to_dtype(a, Dtype::f64), to_dtype(b, Dtype::f64)), dtype);
    for_each_device_code([&] { check_close(gemm(a, b), values(expected)); });
  }
}

TEST_CASE("norms, materialized gradients and sums use unrounded factors") {
  PublicRandom random(3);
  const Common c{.n = 5, .o = 4, .i = 3, .dtype = Dtype::f32};
  const Tensor weights = to_dtype(uniform_values(random, {c.n}), Dtype::f64);
  for (const PerSampleGrad& use : {random_outer(random, c), random_patches(random, c),
                                   random_onehot(random, c), random_dense(random, c)}) {
    INFO(use.form());
    const auto all = [&] {
      std::vector<std::vector<double>> y{values(use.materialize()), values(use.sum()),
                                         values(use.sum(weights))};
      for (const NormMethod norm_method :
           {NormMethod::automatic, NormMethod::ghost, NormMethod::materialize})
        y.push_back(values(squared_norm({use}, norm_method, nullptr)));
      return y;
    };
    const auto expected = all();
    for_each_device_code([&] {
      const auto got = all();
      for (std::size_t k = 0; k < got.size(); ++k) {
        INFO(k);
        REQUIRE(got[k].size() == expected[k].size());
        for (std::size_t i = 0; i < got[k].size(); ++i)
          CHECK(std::abs(got[k][i] - expected[k][i]) <
                f32_sums * std::max(1.0, std::abs(expected[k][i])));
      }
    });
  }
}

TEST_CASE("a clipped sum is the sum of the samples run alone, each within the bound") {
  PublicRandom random(4);
  const Batch batch = random_batch(5, random);  // odd: the host's library has a plan
  const auto check_on = [&](Device device) {
    for (const NormMethod norm_method :
         {NormMethod::automatic, NormMethod::ghost, NormMethod::materialize}) {
      for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
        const std::vector<double> together = clipped(device, batch, norm_method, passes);
        std::vector<double> sum(together.size());
        const std::int64_t samples = batch.images.size(0);
        for (std::int64_t n = 0; n < samples; ++n) {
          const std::vector<double> alone =
              clipped(device, copies_of(batch, n), norm_method, passes);
          const double times = static_cast<double>(samples);
          CHECK(distance(alone, std::vector<double>(alone.size())) <= 0.25 * times);
          for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += alone[i] / times;
        }
        CHECK(distance(together, sum) < f32_sums);
      }
    }
  };
  for_each_gpu(check_on);
  const DeviceCodeOnHost device_code;
  check_on(cpu);
}

TEST_CASE("the setting of a process is fixed by its first use") {
  CHECK(tf32_used());
  use_tf32(true);
  CHECK_THROWS_AS(use_tf32(false), std::logic_error);
}
