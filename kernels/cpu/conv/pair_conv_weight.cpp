#include <algorithm>
#include <memory>
#include <span>

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
template <class S>
void put_in_order(const Geometry& g, const float* sums, bool add, const View& dw) {
  // Outputs that are adjacent in `sums`, and channels whose rows lie in few pages.
  constexpr std::int64_t together = 16;
  const std::int64_t channels = g.group_channels(), outputs = g.group_outputs();
  const std::int64_t* const kernel = g.window.kernel;
  const auto put = [&](std::int64_t group, std::int64_t o, std::int64_t c) {
    const std::int64_t last = std::min(o + together, outputs);
    for (std::int64_t tap = 0; tap < g.window.positions(); ++tap) {
      const float* const from =
          sums + ((group * g.window.positions() + tap) * channels + c) * outputs;
      const std::int64_t place = tap / (kernel[1] * kernel[2]) * dw.stride[2] +
                                 tap / kernel[2] % kernel[1] * dw.stride[3] +
                                 tap % kernel[2] * dw.stride[4];
      S* const to = dw.as<S>() + group * outputs * dw.stride[0] + c * dw.stride[1] + place;
      for (std::int64_t k = o; k < last; ++k) {
        S& at = to[k * dw.stride[0]];
        at = S(add ? acc_t<S>(at) + from[k] : acc_t<S>{from[k]});
      }
    }
  };
  const std::int64_t parts = (channels + together - 1) / together;
  parallel_for(g.window.groups * parts, elementwise_grain / (together * g.outputs) + 1,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t k = begin; k < end; ++k) {
                   const std::int64_t first = k % parts * together;
                   for (std::int64_t o = 0; o < outputs; o += together) {
                     for (std::int64_t c = first; c < std::min(first + together, channels); ++c)
                       put(k / parts, o, c);
                   }
                 }
               });
}

void put_any_in_order(const Geometry& g, const float* sums, bool add, const View& dw) {
  dispatch_float(dw.dtype,
                 [&]<class S>(std::type_identity<S>) { put_in_order<S>(g, sums, add, dw); });
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

// to [channels, outputs] += the block times the weight, rounded.
void add_rounded(const WeightBlock& block, double weight, double spacing, double* to) {
  simd_dispatch_avx512([&] {
    for (std::int64_t k = 0; k < block.channels; ++k) {
      double* const __restrict row = to + k * block.outputs;
      const float* const __restrict from = block.sums + k * block.stride;
      for (std::int64_t o = 0; o < block.outputs; ++o)
        row[o] += rounded_term(weight * static_cast<double>(from[o]), spacing);
    }
  });
}

// dw [o, c, tap] of a group += sums [tap, channels, outputs] of a block.
void add_block(const Geometry& g, const WeightBlock& block, const double* sums, double* dw) {
  const std::int64_t taps = g.window.positions(), size = block.channels * block.outputs;
  for (std::int64_t o = 0; o < block.outputs; ++o) {
    double* to = dw + ((block.output + o) * g.group_channels() + block.channel) * taps;
    for (std::int64_t c = 0; c < block.channels; ++c) {
      for (std::int64_t tap = 0; tap < taps; ++tap)
        *to++ += sums[tap * size + c * block.outputs + o];
    }
  }
}

// Multiply-adds of one sample.
std::int64_t sample_work(const Geometry& g) { return g.positions() * g.outputs * g.taps(); }

// The images of some samples, each on its own.
class SampleImages {
 public:
  SampleImages(const Geometry& g, std::int64_t most) : g_(g) {
    for (std::int64_t k = 0; k < samples_together(g, most); ++k)
      images_.push_back(std::make_unique<PairConv>(g, 1));
  }
  std::int64_t most() const { return std::ssize(images_); }
  const PairConv& operator[](std::int64_t k) const { return *images_[static_cast<std::size_t>(k)]; }
  void load(const View& dy, const View& x, std::span<const WeightedSample> samples,
            std::int64_t group) {
    constexpr std::int64_t loads = 8;  // are as much work as a product of so many channels
    parallel_for(std::ssize(samples), product_grain(sample_work(g_) / loads),
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t k = begin; k < end; ++k) {
                     const std::int64_t n = samples[static_cast<std::size_t>(k)].sample;
                     images_[static_cast<std::size_t>(k)]->load(dy, x, {n, n + 1}, group);
                   }
                 });
  }

 private:
  const Geometry& g_;
  std::vector<std::unique_ptr<PairConv>> images_;
};

// Adds the rounded terms of samples block by block, and calls put(group, block, sums) with the
// block's sums over the samples that are held at a time, [tap, channels, outputs].
template <class Put>
void add_terms(const Geometry& g, const View& dy, const View& x,
               const std::vector<WeightedSample>& samples, double spacing, const Put& put) {
  SampleImages images(g, std::ssize(samples));
  const std::int64_t taps = g.window.positions();
  std::span<const WeightedSample> left(samples);
  while (!left.empty()) {
    const auto some =
        left.first(static_cast<std::size_t>(std::min(images.most(), std::ssize(left))));
    left = left.subspan(some.size());
    for (std::int64_t group = 0; group < g.window.groups; ++group) {
      images.load(dy, x, some, group);
      const std::int64_t blocks = images[0].blocks() / taps;
      parallel_for(blocks, product_grain(std::ssize(some) * sample_work(g) / blocks),
                   [&](std::int64_t begin, std::int64_t end) {
                     const PairScope scope(*pair_kernel());
                     alignas(64) float room[PairConv::block_floats];
                     const Values<double> sums(taps * PairConv::block_floats / 2);
                     for (std::int64_t b = begin; b < end; ++b) {
                       std::fill_n(sums.data(), taps * PairConv::block_floats / 2, 0.0);
                       WeightBlock block{};
                       for (std::int64_t k = 0; k < std::ssize(some); ++k) {
                         for (std::int64_t tap = 0; tap < taps; ++tap) {
                           block = images[k].block(tap * blocks + b, room);
                           add_rounded(block, some[static_cast<std::size_t>(k)].weight, spacing,
                                       sums.data() + tap * block.channels * block.outputs);
                         }
                       }
                       put(group, block, sums.data());
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
  add_terms(g, dy, x, weighted_samples(w, g.samples), spacing,
            [&](std::int64_t group, const WeightBlock& block, const double* sums) {
              add_block(g, block, sums, dw.as<double>() + group * group_size(g));
            });
}

// The factors are images of one row of pixels, and the window is one pixel. With b as the input, a
// block of sums lies as in y.
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
  add_terms(g, dy, x, weighted_samples(w, g.samples), spacing,
            [&](std::int64_t, const WeightBlock& block, const double* sums) {
              for (std::int64_t k = 0; k < block.channels; ++k) {
                double* const row = y.as<double>() + block.row(g, k);
                for (std::int64_t o = 0; o < block.outputs; ++o)
                  row[o] += sums[k * block.outputs + o];
              }
            });
  return true;
}

}  // namespace sotto
