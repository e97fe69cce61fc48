// Per-sample gradients of every form with random factors, for the tests of their arithmetic.
#pragma once

#include "autograd/per_sample/per_sample_grad.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"

namespace sotto {

// The sizes that the uses of one parameter share; and optionally a marked sample, all of whose
// factors have one value.
struct Common {
  std::int64_t n, o, i, groups = 1;
  Dtype dtype = Dtype::f64;
  std::int64_t marked = -1;
  double mark = 0;
};

// [n, ...rest]
inline Tensor random_factor(PublicRandom& random, const Common& c, Shape rest) {
  rest.insert(0, c.n);
  const Tensor x = to_dtype(uniform_values(random, rest), c.dtype);
  if (c.marked >= 0) fill(x.slice(0, c.marked, c.marked + 1), [&] { return c.mark; });
  return x;
}

inline PerSampleGrad random_outer(PublicRandom& random, const Common& c) {
  const std::int64_t t = draw(random, 1, 5);
  return PerSampleGrad::outer(random_factor(random, c, {t, c.o}),
                              random_factor(random, c, {t, c.i}), {c.o, c.i});
}

inline PerSampleGrad random_onehot(PublicRandom& random, const Common& c) {
  const std::int64_t t = draw(random, 1, 5);
  Tensor ids = random_ids(random, {c.n, t}, c.o + 1);
  for (std::int64_t& id :
       std::span(ids.data<std::int64_t>(), static_cast<std::size_t>(ids.numel())))
    --id;
  const bool same = one_in(random, 3);  // at all positions
  const Tensor b = random_factor(random, c, {same ? 1 : t, c.i});
  return PerSampleGrad::onehot(ids, same ? b.expand({c.n, t, c.i}) : b, {c.o, c.i});
}

inline PerSampleGrad random_dense(PublicRandom& random, const Common& c) {
  return PerSampleGrad::materialized(random_factor(random, c, {c.o, c.i}));
}

// A 3 x 2 kernel over one or two groups; the shape is [groups o, i, 3, 2].
inline PerSampleGrad random_patches(PublicRandom& random, const Common& c) {
  Window window;
  window.groups = c.groups;
  window.kernel[1] = 3;
  window.kernel[2] = 2;
  window.stride[2] = draw(random, 1, 2);
  window.before[1] = draw(random, 0, 1);
  const Shape x{c.groups * c.i, 1, draw(random, 3, 5), draw(random, 2, 5)};
  const Shape dy{c.groups * c.o, 1, window.output_size(1, x[2]), window.output_size(2, x[3])};
  return PerSampleGrad::patches(random_factor(random, c, dy), random_factor(random, c, x), window,
                                {c.groups * c.o, c.i, 3, 2});
}

// Two uses of one parameter, in random forms that fit together.
inline std::pair<PerSampleGrad, PerSampleGrad> random_pair(PublicRandom& random) {
  const Common c{draw(random, 0, 5), draw(random, 1, 4), draw(random, 1, 4), draw(random, 1, 2)};
  const auto matrix = [&] {
    switch (random.below(3)) {
      case 0: return random_outer(random, c);
      case 1: return random_onehot(random, c);
      default: return random_dense(random, c);
    }
  };
  if (!one_in(random, 3)) return {matrix(), matrix()};
  const Shape rows{c.groups * c.o, c.i, 3, 2};
  if (one_in(random, 2))
    return {random_patches(random, c), PerSampleGrad::materialized(random_factor(random, c, rows))};
  return {random_patches(random, c), random_patches(random, c)};
}

}  // namespace sotto
