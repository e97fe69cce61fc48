// Inner products of rows, and weighted sums of per-sample gradients.
#include <algorithm>
#include <span>
#include <type_traits>
#include <vector>

#include "core/tensor.h"
#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/conv/conv_images.h"
#include "kernels/cpu/conv/pair_conv.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/gemm/gemm_kernel.h"
#include "kernels/cpu/gemm/pair_kernel.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/per_sample/dot.h"
#include "kernels/cpu/per_sample/row_norms.h"
#include "kernels/host_device/bf16_split.h"
#include "kernels/host_device/gemm_blocking.h"
#include "kernels/host_device/rounded_term.h"

namespace sotto {

namespace {

// Inner products of rows; a loop of its own for rows of one element.
template <class T>
void dot_rows(const T* a, const T* b, std::int64_t k, std::int64_t begin, std::int64_t end,
              double* y) {
#if defined(__x86_64__)
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, bf16>) {
    const bool has = std::is_same_v<T, float> ? has_avx512() : has_avx512_bf16();
    if (a == b && k > 1 && has) return squared_norms_avx512(a, k, begin, end, y);
  }
#endif
  simd_dispatch([&] {
    if (k == 1) {
      for (std::int64_t n = begin; n < end; ++n)
        y[n] = static_cast<double>(acc_t<T>(a[n])) * static_cast<double>(acc_t<T>(b[n]));
      return;
    }
    for (std::int64_t n = begin; n < end; ++n) y[n] = dot(a + n * k, b + n * k, k);
  });
}

// Columns whose sums in double stay in the first-level cache.
constexpr std::int64_t sum_block = 512;

}  // namespace

// Rates on one core of a recent server processor, as measured in
// docs/appendix/per-sample-notes.md; only their ratios matter. Those of bf16 are estimates: pixels
// have no Gram products of their own, and sums of terms take as long as rounding the terms.
CostModel CpuBackend::costs(Dtype factors) const {
  if (factors == Dtype::bf16 && pair_kernel()) {
    const double times = has_amx() ? 4 : 1.5;  // as fast as f32
    return {.gram_flops = times * 40e9,
            .rows_flops = times * 90e9,
            .sum_flops = times * 150e9,
            .bytes = 15e9,
            .term_sum_flops = times * 90e9};
  }
  return {.gram_flops = 40e9,
          .rows_flops = 60e9,
          .sum_flops = 100e9,
          .bytes = 15e9,
          .shifted_adds = 4e9,
          .term_sum_flops = 100e9};
}

std::int64_t CpuBackend::chain_of_products(Dtype factors) const {
  return factors == Dtype::bf16 && pair_kernel() ? pair_chain : product_chain;
}

void CpuBackend::row_dot(View a, View b, View y) {
  const std::int64_t k = a.size[1];
  dispatch_float(a.dtype, [&]<class T>(std::type_identity<T>) {
    parallel_for(a.size[0], dot_grain / std::max<std::int64_t>(k, 1) + 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   dot_rows(a.as<T>(), b.as<T>(), k, begin, end, y.as<double>());
                 });
  });
}

namespace {

struct WeightedRow {
  std::int64_t row;
  double weight;
};

// sums[k] += sum_r term(weight[r] row_r[k]) for `together` rows, so that the sums are read and
// written once for all of them.
template <std::size_t together, class T, class Term>
void add_rows(View x, std::int64_t first, std::int64_t count, const WeightedRow* from, Term term,
              double* sums) {
  const T* row[together];
  double weight[together];
  for (std::size_t r = 0; r < together; ++r) {
    row[r] = x.as<T>() + from[r].row * x.size[1] + first;
    weight[r] = from[r].weight;
  }
  for (std::int64_t k = 0; k < count; ++k) {
    double sum = sums[k];
    for (std::size_t r = 0; r < together; ++r)
      sum += term(weight[r] * static_cast<double>(acc_t<T>(row[r][k])));
    sums[k] = sum;
  }
}

// Adds all rows, `together` at a time.
template <class T, class Term>
void add_all_rows(View x, const std::vector<WeightedRow>& rows, std::int64_t first,
                  std::int64_t count, Term term, double* sums) {
  constexpr std::size_t together = 4;
  std::size_t at = 0;
  for (; at + together <= rows.size(); at += together)
    add_rows<together, T>(x, first, count, &rows[at], term, sums);
  for (; at < rows.size(); ++at) add_rows<1, T>(x, first, count, &rows[at], term, sums);
}

// out[k] = sum_r weight[r] x[row[r], first + k] + beta out[k], `count` columns.
template <class T, class Y>
void weighted_columns(View x, const std::vector<WeightedRow>& rows, double beta, std::int64_t first,
                      std::int64_t count, Y* out) {
  double sums[sum_block];
  for (std::int64_t k = 0; k < count; ++k)
    sums[k] = beta == 0 ? 0 : beta * static_cast<double>(acc_t<Y>(out[k]));
  add_all_rows<T>(
      x, rows, first, count, [](double term) { return term; }, sums);
  for (std::int64_t k = 0; k < count; ++k) out[k] = Y(static_cast<acc_t<Y>>(sums[k]));
}

// The rows with nonzero weight.
std::vector<WeightedRow> weighted_rows(View w, std::int64_t n) {
  std::vector<WeightedRow> rows;
  rows.reserve(static_cast<std::size_t>(n));
  dispatch_float(w.dtype, [&]<class W>(std::type_identity<W>) {
    for (std::int64_t i = 0; i < n; ++i) {
      const auto weight = static_cast<double>(acc_t<W>(w.as<W>()[i * w.stride[0]]));
      if (weight != 0) rows.push_back({i, weight});
    }
  });
  return rows;
}

// For so few columns that a row is unrolled: out[k] = sum_n weights[n] x[n, k] + beta out[k].
template <std::int64_t width, class T, class Y>
void weighted_few_columns(const T* x, const std::vector<double>& weights, double beta, Y* out) {
  double sums[width][sum_lanes] = {};
  const auto add = [&sums, x, from = weights.data()](std::int64_t n, std::int64_t lane) {
    const double weight = from[n];
    for (std::int64_t k = 0; k < width; ++k) {
      const double term = weight * static_cast<double>(acc_t<T>(x[n * width + k]));
      sums[k][lane] += weight != 0 ? term : 0;
    }
  };
  const std::int64_t rows = std::ssize(weights);
  std::int64_t n = 0;
  for (; n + sum_lanes <= rows; n += sum_lanes) {
    for (std::int64_t lane = 0; lane < sum_lanes; ++lane) add(n + lane, lane);
  }
  for (; n < rows; ++n) add(n, n % sum_lanes);
  for (std::int64_t k = 0; k < width; ++k) {
    const double before = beta == 0 ? 0 : beta * static_cast<double>(acc_t<Y>(out[k]));
    out[k] = Y(static_cast<acc_t<Y>>(before + sum_of(sums[k])));
  }
}

// Calls f(width), with the width as a constant, for few columns; returns whether it did.
template <class F>
bool with_narrow(std::int64_t width, const F& f) {
  switch (width) {
    case 1: f(std::integral_constant<std::int64_t, 1>{}); return true;
    case 2: f(std::integral_constant<std::int64_t, 2>{}); return true;
    case 3: f(std::integral_constant<std::int64_t, 3>{}); return true;
    case 4: f(std::integral_constant<std::int64_t, 4>{}); return true;
    default: return false;
  }
}

std::vector<double> doubles(View w) {
  std::vector<double> y(static_cast<std::size_t>(w.size[0]));
  dispatch_float(w.dtype, [&]<class W>(std::type_identity<W>) {
    for (std::int64_t i = 0; i < w.size[0]; ++i)
      y[static_cast<std::size_t>(i)] = static_cast<double>(acc_t<W>(w.as<W>()[i * w.stride[0]]));
  });
  return y;
}

}  // namespace

void CpuBackend::weighted_sum(View x, View w, double beta, View y) {
  const std::int64_t n = x.size[0];
  const std::int64_t width = x.size[1];
  const auto run = [&]<class T, class Y>(std::type_identity<T>, std::type_identity<Y>) {
    const auto narrow = [&](auto columns) {
      const std::vector<double> weights = doubles(w);
      simd_dispatch([&] { weighted_few_columns<columns>(x.as<T>(), weights, beta, y.as<Y>()); });
    };
    if (with_narrow(width, narrow)) return;
    const std::vector<WeightedRow> rows = weighted_rows(w, n);
    parallel_for((width + sum_block - 1) / sum_block,
                 elementwise_grain / (sum_block * std::max<std::int64_t>(n, 1)) + 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t part = begin; part < end; ++part) {
                     const std::int64_t first = part * sum_block;
                     simd_dispatch([&] {
                       weighted_columns<T>(x, rows, beta, first, std::min(sum_block, width - first),
                                           y.as<Y>() + first);
                     });
                   }
                 });
  };
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T> type) {
    if (x.dtype == y.dtype) {
      run(type, type);
    } else {
      run(type, std::type_identity<acc_t<T>>{});
    }
  });
}

void CpuBackend::add_rounded(View x, View w, double spacing, View y) {
  const std::vector<WeightedRow> rows = weighted_rows(w, x.size[0]);
  const std::int64_t width = x.size[1];
  const auto rounded = [spacing](double term) { return rounded_term(term, spacing); };
  const std::int64_t terms = sum_block * std::max<std::int64_t>(std::ssize(rows), 1);
  dispatch_float(x.dtype, [&]<class T>(std::type_identity<T>) {
    parallel_for((width + sum_block - 1) / sum_block, elementwise_grain / terms + 1,
                 [&](std::int64_t begin, std::int64_t end) {
                   const std::int64_t first = begin * sum_block;
                   simd_dispatch_avx512([&] {
                     for (std::int64_t at = first; at < std::min(end * sum_block, width);
                          at += sum_block)
                       add_all_rows<T>(x, rows, at, std::min(sum_block, width - at), rounded,
                                       y.as<double>() + at);
                   });
                 });
  });
}

namespace {

// Adds the products of b and of packed factors to some rows of y, which begin with output `first`.
void add_rounded_tile(View b, std::span<const PackedMatrix> a, std::span<const WeightedRow> samples,
                      double spacing, Range outputs, std::int64_t inputs, double* y) {
  std::vector<Matrix> grads;
  for (const WeightedRow& sample : samples)
    grads.push_back(matrix(b, sample.row).transposed().row_block(outputs.first, outputs.count()));
  product_tiles(grads, a, [&](const ProductTile& tile) {
    const double weight = samples[static_cast<std::size_t>(tile.product)].weight;
    simd_dispatch_avx512([=] {
      for (std::int64_t i = 0; i < tile.rows; ++i) {
        const float* const terms = tile.values + i * tile.step;
        double* const sums = y + (tile.row + i) * inputs + tile.column;
        for (std::int64_t j = 0; j < tile.columns; ++j)
          sums[j] += rounded_term(weight * static_cast<double>(terms[j]), spacing);
      }
    });
  });
}

// Outputs at a time: their gradients stay in the second-level cache, and each thread has as many.
std::int64_t tile_outputs(std::int64_t outputs, std::int64_t samples, std::int64_t positions) {
  constexpr std::int64_t near = std::int64_t{1} << 16, most = 256, registers = 8, padding = 16;
  const auto parts = [](std::int64_t all, std::int64_t size) { return (all + size - 1) / size; };
  const std::int64_t fit = std::clamp(near / (samples * (positions + padding)), registers, most),
                     share = parts(outputs, thread_count());
  return parts(parts(share, parts(share, fit)), registers) * registers;
}

// Adds the products of samples whose factors of a are packed at once.
void add_rounded_samples(View b, View a, std::span<const WeightedRow> samples, double spacing,
                         View y) {
  const std::int64_t outputs = y.size[0], inputs = y.size[1];
  std::vector<PackedMatrix> packed(samples.size());
  parallel_for(std::ssize(samples), elementwise_grain / (a.size[1] * inputs + 1) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (auto n = static_cast<std::size_t>(begin); n < static_cast<std::size_t>(end);
                      ++n)
                   packed[n] = PackedMatrix(matrix(a, samples[n].row), Dtype::f32);
               });
  const std::int64_t tile = tile_outputs(outputs, std::ssize(samples), b.size[1]),
                     work = tile * inputs * b.size[1] * std::ssize(samples);
  parallel_for(
      (outputs + tile - 1) / tile, product_grain(work), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t first = begin * tile; first < std::min(end * tile, outputs);
             first += tile)
          add_rounded_tile(b, packed, samples, spacing, {first, std::min(first + tile, outputs)},
                           inputs, y.as<double>() + first * inputs);
      });
}

}  // namespace

// Other products than those of pairs of so few positions that a sample is one chain: then each term
// has the bits of the sample's product by gemm().
bool CpuBackend::add_rounded_products(View b, View a, View w, double spacing, View y) {
  // Packed factors take at most half the memory of the sum, half a MiB, or that of four samples.
  constexpr std::int64_t packed_floats = std::int64_t{1} << 17, least = 4, most = 64;
  const std::int64_t positions = b.size[1];
  if (add_rounded_pairs(b, a, w, spacing, y)) return true;
  if (b.dtype == Dtype::f64 || positions == 0 || positions > product_chain) return false;
  if (y.numel() == 0) return true;
  const std::vector<WeightedRow> all = weighted_rows(w, b.size[0]);
  const std::int64_t fit = std::max(packed_floats, y.numel()) / (positions * a.size[2] + 1);
  const auto step = static_cast<std::size_t>(std::clamp(fit, least, most));
  for (std::size_t n = 0; n < all.size(); n += step)
    add_rounded_samples(b, a, std::span(all).subspan(n, std::min(step, all.size() - n)), spacing,
                        y);
  return true;
}

void CpuBackend::scale_to_bf16x2(View x, View w, View pieces) {
  const std::int64_t n = x.size[0], k = x.size[1];
  const auto grain = elementwise_grain / std::max<std::int64_t>(k, 1) + 1;
  parallel_for(n, grain, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin * k; i < end * k; ++i) {
      const Bf16x2 y = sotto::scale_to_bf16x2(w.as<const double>()[i / k], x.as<const bf16>()[i]);
      for (int p = 0; p < float_bf16x2; ++p) pieces.as<bf16>()[p * n * k + i] = y.piece[p];
    }
  });
}

}  // namespace sotto
