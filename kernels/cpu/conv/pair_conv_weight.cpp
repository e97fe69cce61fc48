#include <algorithm>
#include <memory>

#include "core/threads/parallel.h"
#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/conv/pair_conv.h"
#include "kernels/cpu/grain.h"
#include "kernels/host_device/rounded_term.h"

namespace sotto {
namespace {

// Bytes of images that are multiplied with one after the other, a part of the second-level cache.
constexpr std::int64_t held_bytes = std::int64_t{1} << 20;

std::int64_t samples_together(const Geometry& g, std::int64_t most) {
  return std::clamp<std::int64_t>(held_bytes / PairConv::bytes_of_sample(g), 1,
                                  std::max<std::int64_t>(most, 1));
}

std::int64_t group_size(const Geometry& g) { return g.group_outputs() * g.taps(); }

// dw [o, c, kernel] = sums [group, tap, c, o], or dw += sums.
template <class T, class S>
void put_in_order(const Geometry& g, const T* sums, bool add, const View& dw) {
  constexpr std::int64_t together = 16;  // outputs that are adjacent in `sums`
  const std::int64_t channels = g.group_channels(), outputs = g.group_outputs();
  const std::int64_t* const kernel = g.window.kernel;
  const auto put = [&](std::int64_t group, std::int64_t o, std::int64_t c) {
    const std::int64_t last = std::min(o + together, outputs);
    for (std::int64_t tap = 0; tap < g.window.positions(); ++tap) {
      const T* const from = sums + ((group * g.window.positions() + tap) * channels + c) * outputs;
      const std::int64_t place = tap / (kernel[1] * kernel[2]) * dw.stride[2] +
                                 tap / kernel[2] % kernel[1] * dw.stride[3] +
                                 tap % kernel[2] * dw.stride[4];
      S* const to = dw.as<S>() + group * outputs * dw.stride[0] + c * dw.stride[1] + place;
      for (std::int64_t k = o; k < last; ++k) {
        S& at = to[k * dw.stride[0]];
        const T before = add ? static_cast<T>(acc_t<S>(at)) : T{0};
        at = S(static_cast<acc_t<S>>(before + from[k]));
      }
    }
  };
  for (std::int64_t group = 0; group < g.window.groups; ++group) {
    for (std::int64_t o = 0; o < outputs; o += together) {
      for (std::int64_t c = 0; c < channels; ++c) put(group, o, c);
    }
  }
}

template <class T>
void put_any_in_order(const Geometry& g, const T* sums, bool add, const View& dw) {
  dispatch_float(dw.dtype,
                 [&]<class S>(std::type_identity<S>) { put_in_order<T, S>(g, sums, add, dw); });
}

// Calls f(block) for the blocks of the images' gradients.
template <class F>
void for_each_block(const PairConv& images, const F& f) {
  alignas(64) float room[PairConv::block_floats];
  const PairScope scope(*pair_kernel());
  for (std::int64_t k = 0; k < images.blocks(); ++k) f(images.block(k, room));
}

// sums [group, tap, c, o] += the weight gradients of `samples`.
void add_samples(const Geometry& g, const View& dy, const View& x, Range samples, float* sums) {
  const std::int64_t step = samples_together(g, samples.count());
  PairConv images(g, step);
  for (std::int64_t n = samples.first; n < samples.last; n += step) {
    for (std::int64_t group = 0; group < g.window.groups; ++group) {
      images.load(dy, x, {n, std::min(n + step, samples.last)}, group);
      for_each_block(images, [&](const WeightBlock& block) {
        for (std::int64_t k = 0; k < block.channels; ++k) {
          float* const to = sums + group * group_size(g) + block.row(g, k);
          for (std::int64_t o = 0; o < block.outputs; ++o)
            to[o] += block.sums[k * block.stride + o];
        }
      });
    }
  }
}

double squared_norm_of(const WeightBlock& block) {
  if (block.stride == block.outputs)
    return squared_norm(block.sums, block.channels * block.outputs);
  double square = 0;
  for (std::int64_t k = 0; k < block.channels; ++k)
    square += squared_norm(block.sums + k * block.stride, block.outputs);
  return square;
}

// The squared norms of sample n's weight gradient and of its factors.
void write_norms_of(const Geometry& g, const View& dy, const View& x, std::int64_t n, double square,
                    double* y) {
  Images<float> xs(x, {n, n + 1}), ys(dy, {n, n + 1});
  xs.load();
  ys.load();
  write_norms(g, square, ys.data(), xs.data(), y);
}

struct WeightedSample {
  std::int64_t sample;
  double weight;
};

std::vector<WeightedSample> weighted_samples(const View& w, std::int64_t count) {
  std::vector<WeightedSample> y;
  for (std::int64_t n = 0; n < count; ++n) {
    const double weight = w.as<const double>()[n * w.stride[0]];
    if (weight != 0) y.push_back({n, weight});
  }
  return y;
}

// to += the block times the weight, rounded.
void add_rounded(const Geometry& g, const WeightBlock& block, double weight, double spacing,
                 double* to) {
  simd_dispatch_avx512([&] {
    for (std::int64_t k = 0; k < block.channels; ++k) {
      double* const row = to + block.row(g, k);
      const float* const from = block.sums + k * block.stride;
      for (std::int64_t o = 0; o < block.outputs; ++o)
        row[o] += rounded_term(weight * static_cast<double>(from[o]), spacing);
    }
  });
}

// Multiply-adds of one sample.
std::int64_t sample_work(const Geometry& g) { return g.positions() * g.outputs * g.taps(); }

// Adds the rounded terms of samples to sums [group, tap, c, o]. Some samples are multiplied block
// by block, so that a block of sums stays in the first-level cache meanwhile.
void add_terms(const Geometry& g, const View& dy, const View& x,
               const std::vector<WeightedSample>& samples, double spacing, double* sums) {
  std::vector<std::unique_ptr<PairConv>> images;
  const std::int64_t step = samples_together(g, std::ssize(samples));
  for (std::int64_t k = 0; k < step; ++k) images.push_back(std::make_unique<PairConv>(g, 1));
  for (std::int64_t at = 0; at < std::ssize(samples); at += step) {
    const std::int64_t count = std::min(step, std::ssize(samples) - at);
    const auto of = [&](std::int64_t k) { return samples[static_cast<std::size_t>(at + k)]; };
    for (std::int64_t group = 0; group < g.window.groups; ++group) {
      parallel_for(count, product_grain(sample_work(g) / 8),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t k = begin; k < end; ++k)
                       images[static_cast<std::size_t>(k)]->load(
                           dy, x, {of(k).sample, of(k).sample + 1}, group);
                   });
      const std::int64_t blocks = images[0]->blocks();
      parallel_for(blocks, product_grain(count * sample_work(g) / blocks),
                   [&](std::int64_t begin, std::int64_t end) {
                     const PairScope scope(*pair_kernel());
                     alignas(64) float room[PairConv::block_floats];
                     for (std::int64_t b = begin; b < end; ++b) {
                       for (std::int64_t k = 0; k < count; ++k)
                         add_rounded(g, images[static_cast<std::size_t>(k)]->block(b, room),
                                     of(k).weight, spacing, sums + group * group_size(g));
                     }
                   });
    }
  }
}

}  // namespace

// Each thread computes one sum; the sums are then added in a fixed order.
void pair_conv_weight(const Geometry& g, const View& dy, const View& x, double beta,
                      const View& dw) {
  const std::int64_t shares = std::clamp<std::int64_t>(g.samples, 1, thread_count()),
                     size = group_size(g) * g.window.groups;
  const Values<float> sums(shares * size);
  std::fill_n(sums.data(), shares * size, 0.0F);
  parallel_for(shares, product_grain(g.samples / shares * sample_work(g)),
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t k = begin; k < end; ++k)
                   add_samples(g, dy, x, {g.samples * k / shares, g.samples * (k + 1) / shares},
                               sums.data() + k * size);
               });
  for (std::int64_t k = 1; k < shares; ++k) {
    for (std::int64_t i = 0; i < size; ++i) sums.data()[i] += sums.data()[k * size + i];
  }
  put_any_in_order(g, sums.data(), beta != 0, dw);
}

void pair_conv_rows(const Geometry& g, const View& dy, const View& x, const View& dw,
                    const View& norms) {
  const std::int64_t size = group_size(g) * g.window.groups;
  parallel_for(g.samples, product_grain(sample_work(g)), [&](std::int64_t begin, std::int64_t end) {
    PairConv images(g, 1);
    const Values<float> row(dw.data ? size : 0);
    for (std::int64_t n = begin; n < end; ++n) {
      double square = 0;
      for (std::int64_t group = 0; group < g.window.groups; ++group) {
        images.load(dy, x, {n, n + 1}, group);
        for_each_block(images, [&](const WeightBlock& block) {
          if (norms.data) simd_dispatch([&] { square += squared_norm_of(block); });
          for (std::int64_t k = 0; dw.data && k < block.channels; ++k)
            std::copy_n(block.sums + k * block.stride, block.outputs,
                        row.data() + group * group_size(g) + block.row(g, k));
        });
      }
      if (dw.data) put_any_in_order(g, row.data(), false, row_of(dw, n));
      if (norms.data) write_norms_of(g, dy, x, n, square, norms.as<double>() + 3 * n);
    }
  });
}

void add_rounded_pair_conv(const Geometry& g, const View& dy, const View& x, const View& w,
                           double spacing, const View& dw) {
  const std::int64_t size = group_size(g) * g.window.groups;
  const Values<double> sums(size);
  std::fill_n(sums.data(), size, 0.0);
  add_terms(g, dy, x, weighted_samples(w, g.samples), spacing, sums.data());
  put_any_in_order(g, sums.data(), true, dw);
}

// The factors are images of one row of pixels, and the window is one pixel: with b as the input,
// the sums lie as y.
bool add_rounded_pairs(const View& b, const View& a, const View& w, double spacing, const View& y) {
  const auto image = [](const View& f, std::int64_t columns) {
    return View{f.data,
                f.dtype,
                5,
                {f.size[0], columns, 1, 1, f.size[1]},
                {f.stride[0], f.stride[2], 0, 0, f.stride[1]}};
  };
  const View x = image(b, y.size[0]), dy = image(a, y.size[1]);
  const Geometry g(x, dy, {});
  if (!PairConv::suits(g, dy, x)) return false;
  add_terms(g, dy, x, weighted_samples(w, g.samples), spacing, y.as<double>());
  return true;
}

}  // namespace sotto
