// Norms and rounded sums of per-sample gradients on GPUs: launches, and the check of a kernel at
// its first use.
// File tags: [gpu]
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/per_sample/several_norms.h"
#include "tests/support/captured_setup.h"
#include "tests/support/fake_gpu_counts.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/per_sample_cases.h"

using namespace sotto;

TEST_CASE("a kernel for rounded products that computes something else is not used") {
  Random random(17);
  const Tensor b = random_tensor(random, {3, 40, 5}, {0, 1, 2}, Dtype::f16),
               a = random_tensor(random, {3, 40, 6}, {0, 1, 2}, Dtype::f16),
               w = full({3}, 0.5, Dtype::f64);
  const auto sum_on = [&](Device device) {
    const RoundedSum sum{zeros({5, 6}, Dtype::f64, device), 0x1p-30};
    PerSampleGrad::outer(b.to(device), a.to(device), {5, 6}).add_to(sum, w.to(device), {});
    return values(to_dtype(sum.total, Dtype::f32));
  };
  for_each_gpu([&](Device device) {
    if (!skip_tiles(true)) return;
    const std::vector<double> got = sum_on(device), expected = sum_on(cpu);
    skip_tiles(false);
    for (std::size_t k = 0; k < got.size(); ++k) CHECK(got[k] == Approx(expected[k]).margin(1e-5));
  });
}

TEST_CASE("a GPU's kernels for rounded products pass their check") {
  for_each_gpu([&](Device device) {
    for (const Dtype dtype : {Dtype::bf16, Dtype::f32}) {
      // A sample's product is 768: two terms of 384 in the kernel, which round to 0, one elsewhere.
      const Tensor x = full({2, 768, 4}, 1, dtype, device);
      const RoundedSum sum{zeros({4, 4}, Dtype::f64, device), 1024};
      PerSampleGrad::outer(x, x, {4, 4}).add_to(sum, full({2}, 1, Dtype::f64, device), {});
      for (const double y : values(sum.total)) CHECK(y == 0);
    }
  });
}

TEST_CASE("norms of rows that are kept take one launch, and two for the bounds of each") {
  Random random(18);
  for_each_gpu([&](Device device) {
    std::vector<std::vector<PerSampleGrad>> kept;
    std::vector<ParameterNorms> all;
    for (int k = 0; k < 3; ++k) {
      const Tensor b = random_tensor(random, {2, 20, 4}, {0, 1, 2}, Dtype::f32).to(device);
      const PerSampleGrad f = PerSampleGrad::outer(b, b, {4, 4});
      kept.push_back({f.materialize_if_cheaper(NormMethod::materialize, 1 << 20)});
    }
    for (const auto& uses : kept) {
      const Tensor terms = zeros({4, 2}, Dtype::f64, device);
      all.push_back(
          {&uses,
           {terms.select(0, 0), terms.select(0, 1), terms.select(0, 2), terms.select(0, 3)}});
    }
    const auto before = pretended_counts();
    write_norm_terms(all, NormMethod::automatic);
    const auto after = pretended_counts();
    if (after) CHECK(after->launches - before->launches == 1 + 3 * 2);
    for (std::size_t k = 0; k < all.size(); ++k) {
      const NormEstimate expected = norm_terms(kept[k]);
      check_close(all[k].terms.squares, values(expected.squares));
      check_close(all[k].terms.error_bounds, values(expected.error_bounds));
      check_close(all[k].terms.term_norms, values(expected.term_norms));
    }
  });
}
