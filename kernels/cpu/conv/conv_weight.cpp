// Weight gradients of convolutions: their sum, one per sample, and the norms of these. The patches
// are a right factor whose rows are written from the images.
#include <algorithm>
#include <optional>

#include "kernels/cpu/conv/conv_gram.h"
#include "kernels/cpu/conv/conv_matrices.h"
#include "kernels/cpu/conv/conv_weight_norms.h"
#include "kernels/cpu/conv/depthwise.h"
#include "kernels/cpu/conv/pair_conv.h"
#include "kernels/cpu/cpu_backend.h"

namespace sotto {
namespace {

// Some taps of a group's weights.
struct WeightPart {
  std::int64_t group;
  Range taps;
};

// dw [o, taps, c] of the part = the sum over the samples of both images, or dw += it.
template <class T>
void sum_part(T* dy, const T* x, const Geometry& g, std::int64_t samples, const WeightPart& part,
              bool add, T* dw) {
  const auto patch = [&](std::int64_t row, tiles::RowOfPanels<T> to) {
    to.first += part.taps.first;
    write_patch(x, g, row, part.group, to);
  };
  const Matrix grads = outputs_of(g, part.group, {0, samples * g.positions()}, dy),
               sums = weights_of(g, part.group, dw);
  product_of_rows<T>(grads.transposed(), patch, add,
                     sums.column_block(part.taps.first, part.taps.count()));
}

// The samples at a time of images that have to be copied: their positions are so many that the last
// chain of a product, a shorter one, does not count.
std::int64_t copied_samples(const Geometry& g) {
  constexpr std::int64_t chains = 8;
  return std::max<std::int64_t>(1,
                                chains * product_chain / std::max<std::int64_t>(1, g.positions()));
}

// Calls f(dy, x, count, first) for all samples, or for some at a time if they have to be copied;
// `first` is true for the first ones.
template <class T, class F>
void for_each_copy(const View& dy, const View& x, const Geometry& g, Range samples, const F& f) {
  const bool in_place = Images<T>::lies(dy) && Images<T>::lies(x);
  const std::int64_t all = std::max<std::int64_t>(samples.count(), 1),
                     step = in_place ? all : copied_samples(g);
  for (std::int64_t n = 0; n < all; n += step) {
    const Range some{samples.first + n, std::min(samples.first + n + step, samples.last)};
    Images<T> in(x, some), grads(dy, some);
    in.load();
    grads.load();
    f(grads.data(), in.data(), some.count(), n == 0);
  }
}

// dw [o, taps, c] = the sum over `samples`, on the calling thread.
template <class T>
void sum_weight(const View& dy, const View& x, const Geometry& g, Range samples, T* dw) {
  if (is_depthwise(g)) return sum_depthwise_weight(dy, x, g, samples, dw);
  for_each_copy<T>(dy, x, g, samples, [&](T* grads, T* in, std::int64_t count, bool first) {
    for (std::int64_t group = 0; group < g.window.groups; ++group)
      sum_part(grads, in, g, count, {group, {0, g.taps()}}, !first, dw);
  });
}

// Part number k of `parts` of [0, count).
Range part_of(std::int64_t count, std::int64_t parts, std::int64_t k) {
  return {count * k / parts, count * (k + 1) / parts};
}

// Parts of the weights, of at least some taps: as many as there are threads, if there are so many.
std::vector<WeightPart> weight_parts(const Geometry& g) {
  constexpr std::int64_t least = 48;
  const std::int64_t parts = std::clamp<std::int64_t>(g.taps() / least, 1, thread_count());
  std::vector<WeightPart> all;
  for (std::int64_t group = 0; group < g.window.groups; ++group) {
    for (std::int64_t k = 0; k < parts; ++k) all.push_back({group, part_of(g.taps(), parts, k)});
  }
  return all;
}

// sums [o, taps, c] = the weight gradient; its parts are computed side by side.
template <class T>
void sum_by_parts(const View& dy, const View& x, const Geometry& g,
                  const std::vector<WeightPart>& parts, T* sums) {
  const Range all{0, g.samples};
  for_each_copy<T>(dy, x, g, all, [&](T* grads, T* in, std::int64_t count, bool first) {
    const std::int64_t work = count * sample_work(g) / std::ssize(parts);
    parallel_for(std::ssize(parts), product_grain(work), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = begin; k < end; ++k)
        sum_part(grads, in, g, count, parts[static_cast<std::size_t>(k)], !first, sums);
    });
  });
}

// Each thread computes the sum of some samples; the sums are then added in a fixed order.
template <class T>
void sum_by_samples(const View& dy, const View& x, const Geometry& g, T* sum) {
  const std::int64_t size = g.outputs * g.taps(),
                     parts = std::clamp<std::int64_t>(g.samples, 1, thread_count());
  const Values<T> sums(parts * size);
  parallel_for(parts, product_grain(g.samples / parts * sample_work(g)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t part = begin; part < end; ++part)
                   sum_weight(dy, x, g, part_of(g.samples, parts, part), sums.data() + part * size);
               });
  std::copy_n(sums.data(), size, sum);
  for (std::int64_t part = 1; part < parts; ++part) {
    for (std::int64_t i = 0; i < size; ++i) sum[i] += sums.data()[part * size + i];
  }
}

// The squared norm of one sample's weight gradient.
template <class T>
double weight_norm(const View& dy, const View& x, const Geometry& g, std::int64_t sample) {
  const Values<T> row(g.outputs * g.taps());
  sum_weight(dy, x, g, {sample, sample + 1}, row.data());
  return squared_norm(row.data(), g.outputs * g.taps());
}

}  // namespace

void CpuBackend::conv_weight(View dy, View x, const Window& window, double beta, View dw) {
  const Geometry g(x, dy, window);
  if (PairConv::suits(g, dy, x)) return pair_conv_weight(g, dy, x, beta, dw);
  with_arithmetic(x.dtype, [&]<class T>(std::type_identity<T>) {
    const Values<T> sums(g.outputs * g.taps());
    const std::vector<WeightPart> parts = weight_parts(g);
    const bool few = is_depthwise(g) || std::ssize(parts) < thread_count();
    few ? sum_by_samples(dy, x, g, sums.data()) : sum_by_parts(dy, x, g, parts, sums.data());
    unpack(sums.data(), beta != 0, dw);
  });
}

void CpuBackend::conv_weight_rows(View dy, View x, const Window& window, View dw, View norms) {
  const Geometry g(x, dy, window);
  if (PairConv::suits(g, dy, x)) return pair_conv_rows(g, dy, x, dw, norms);
  with_arithmetic(x.dtype, [&]<class T>(std::type_identity<T>) {
    parallel_for(g.samples, product_grain(sample_work(g)),
                 [&](std::int64_t begin, std::int64_t end) {
                   const Values<T> row(g.outputs * g.taps());
                   for (std::int64_t n = begin; n < end; ++n) {
                     sum_weight(dy, x, g, {n, n + 1}, row.data());
                     unpack(row.data(), false, row_of(dw, n));
                     if (!norms.data) continue;
                     Images<T> grads(dy, {n, n + 1}), in(x, {n, n + 1});
                     grads.load();
                     in.load();
                     const double square = squared_norm(row.data(), g.outputs * g.taps());
                     write_norms(g, square, grads.data(), in.data(), norms.as<double>() + 3 * n);
                   }
                 });
  });
}

void CpuBackend::conv_weight_norms(View dy, View x, const Window& window, View y) {
  const Geometry g(x, dy, window);
  if (PairConv::suits(g, dy, x)) return pair_conv_rows(g, dy, x, {}, y);
  with_arithmetic(x.dtype, [&]<class T>(std::type_identity<T>) {
    parallel_for(g.samples, product_grain(sample_work(g)),
                 [&](std::int64_t begin, std::int64_t end) {
                   std::optional<WeightNorms<T>> tiles;
                   if (WeightNorms<T>::suits(g)) tiles.emplace(g);
                   for (std::int64_t n = begin; n < end; ++n) {
                     Images<T> grads(dy, {n, n + 1}), in(x, {n, n + 1});
                     grads.load();
                     in.load();
                     double square = tiles ? tiles->of(grads.data(), in.data()) : -1;
                     if (square < 0) square = weight_norm<T>(dy, x, g, n);
                     write_norms(g, square, grads.data(), in.data(), y.as<double>() + 3 * n);
                   }
                 });
  });
}

double exact_weight_norm(const View& dy, const View& x, const Geometry& g, std::int64_t sample) {
  return weight_norm<double>(dy, x, g, sample);
}

}  // namespace sotto
