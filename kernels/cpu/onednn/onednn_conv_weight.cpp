// Weight gradients of convolutions by oneDNN: their sum, one per sample, and the norms of these.
#include <algorithm>
#include <cstring>
#include <deque>
#include <span>

#include "core/threads/simd_dispatch.h"
#include "kernels/cpu/conv/conv_gram.h"
#include "kernels/cpu/conv/conv_parts.h"
#include "kernels/cpu/conv/conv_weight_norms.h"
#include "kernels/cpu/conv/depthwise.h"
#include "kernels/cpu/conv/pair_conv.h"
#include "kernels/cpu/conv/pointwise.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/onednn/onednn_batches.h"
#include "kernels/host_device/rounded_term.h"

namespace sotto {
namespace {

// Chunk sizes of Winograd sums: as many samples as leave the transformed images in the caches, and
// more for images of few tiles, to outweigh the cost of transforming the weights. Single samples
// come last, where Winograd pays for them and oneDNN's scratch is small beside the weights.
constexpr std::int64_t tiled[] = {8, 1}, small_tiled[] = {32, 8, 1}, tiny_tiled[] = {32};

void add(const float* x, std::size_t bytes, float* y) {
  for (std::size_t i = 0; i < bytes / sizeof(float); ++i) y[i] += x[i];
}

// y += x, each element rounded to a multiple of the spacing.
void add_rounded_to(const float* x, std::int64_t count, double spacing, double* y) {
  simd_dispatch_avx512([=] {
    for (std::int64_t k = 0; k < count; ++k)
      y[k] += rounded_term(static_cast<double>(x[k]), spacing);
  });
}

// The sum of a primitive's results over several chunks.
class WeightSum {
 public:
  explicit WeightSum(const ConvPrimitive& p)
      : p_(p), total_(p.weights.get_size(), cpu), one_(p.weights.get_size(), cpu) {}
  void take(ConvRun& run, float* x, float* dy) {
    run(x, dy, floats(first_ ? total_ : one_), nullptr);
    if (!first_) add(floats(one_), one_.bytes(), floats(total_));
    first_ = false;
  }
  // Adds the sum to row-major weights.
  void add_to(float* sum) const {
    const Storage plain(p_.plain.get_size(), cpu);
    Reorder{p_}(floats(total_), floats(plain));
    add(floats(plain), plain.bytes(), sum);
  }

 private:
  const ConvPrimitive& p_;
  Storage total_, one_;
  bool first_ = true;
};

// sum += the weight gradients of a range of samples, row-major, except those of its rest.
void add_share(const BatchChunks& chunks, const View& dy, const View& x, Range share, float* sum) {
  for (std::size_t kind = 0; kind < chunks.kinds(); ++kind) {
    if (chunks.part(kind, share).count() == 0) continue;
    WeightSum total(chunks[kind]);
    chunks.for_each_chunk(kind, share, [&](ConvRun& run, Range samples) {
      Images<float> xs(x, samples), ys(dy, samples);
      xs.load();
      ys.load();
      total.take(run, xs.data(), ys.data());
    });
    total.add_to(sum);
  }
}

// sum += the weight gradients of fewer samples than a chunk of that size has; the missing samples
// are zero.
void add_padded(const BatchChunks& chunks, std::size_t kind, const View& dy, const View& x,
                Range samples, float* sum) {
  const ConvPrimitive& p = chunks[kind];
  const auto filled = [&](const View& view, const Storage& all) {
    Images<float> some(view, samples);
    some.load();
    const std::size_t given = float_bytes(samples.count() * (view.numel() / view.size[0]));
    std::memcpy(all.data(), some.data(), given);
    std::memset(static_cast<char*>(all.data()) + given, 0, all.bytes() - given);
  };
  const Storage xs(p.x.get_size(), cpu), ys(p.y.get_size(), cpu);
  filled(x, xs);
  filled(dy, ys);
  WeightSum total(p);
  ConvRun run(p);
  total.take(run, floats(xs), floats(ys));
  total.add_to(sum);
}

// True if Winograd sums pay: they take 0.4 to 0.9 of the direct time above these limits, on Zen 4.
// The tiles at the edges of images compute results that are not needed.
bool tiled_sums_pay(const Geometry& g) {
  constexpr std::int64_t side = 4, min_channels = 16, min_products = 1024, min_pixels = 10;
  const auto tiles = [](std::int64_t size) { return (size + side - 1) / side; };
  return std::min(g.channels, g.outputs) >= min_channels &&
         g.channels * g.outputs >= min_products &&
         g.positions() >= min_pixels * tiles(g.out[1]) * tiles(g.out[2]);
}

// True if Winograd pays for one sample's gradient: 0.45 to 0.75 of the direct time.
bool tiled_rows_pay(const Geometry& g) {
  constexpr std::int64_t min_channels = 32, min_width = 16, wide = 32, min_products = 4096;
  const std::int64_t width = std::min(g.out[1], g.out[2]);
  return std::min(g.channels, g.outputs) >= min_channels && width >= min_width &&
         (width >= wide || g.channels * g.outputs >= min_products);
}

// The chunks of a Winograd sum; not usable if it does not pay or oneDNN has no primitive.
BatchChunks winograd_chunks(const Geometry& g, const View& x, const View& dy) {
  constexpr std::int64_t small = 256, tiny = 63, min_products = 1 << 14;
  std::span<const std::int64_t> sizes;
  if (in_tiles(g, x, dy) && tiled_sums_pay(g)) {
    sizes = tiled;
    if (g.positions() <= small) sizes = small_tiled;
    if (!tiled_rows_pay(g) || g.channels * g.outputs < min_products)
      sizes = sizes.first(sizes.size() - 1);
    if (g.positions() <= tiny) sizes = tiny_tiled;
  }
  return {Pass::weight, g, false, sizes, Dtype::f32, Algorithm::winograd};
}

// The chunks, of one sample each, for materialized per-sample gradients. The clipped sum is of
// these very gradients, so their norms bound it, whatever Winograd's rounding.
BatchChunks row_chunks(const Geometry& g, const View& x, const View& dy) {
  if (in_tiles(g, x, dy) && tiled_rows_pay(g)) {
    BatchChunks chunks(Pass::weight, g, false, alone, Dtype::f32, Algorithm::winograd);
    if (chunks.usable()) return chunks;
  }
  return {Pass::weight, g, false, alone};
}

// True for sums that need none of oneDNN's primitives.
bool sums_directly(const Geometry& g) { return is_depthwise(g) || sums_as_product(g); }

// dw = the sum over `samples` of their weight gradients, row-major.
void sum_directly(const View& dy, const View& x, const Geometry& g, Range samples, float* dw) {
  if (is_depthwise(g)) return sum_depthwise_weight(dy, x, g, samples, dw);
  sum_as_product(dy, x, g, samples, dw);
}

// Writes gradients of samples, and their norms unless these have no data.
void rows_directly(const View& dy, const View& x, const Geometry& g, const View& dw,
                   const View& norms) {
  const std::int64_t size = g.outputs * g.taps();
  parallel_for(
      g.samples, product_grain(g.positions() * size), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t n = begin; n < end; ++n) {
          float* const row = dw.as<float>() + n * dw.stride[0];
          sum_directly(dy, x, g, {n, n + 1}, row);
          if (!norms.data) continue;
          Images<float> xs(x, {n, n + 1}), ys(dy, {n, n + 1});
          xs.load();
          ys.load();
          write_norms(g, squared_norm(row, size), ys.data(), xs.data(), norms.as<double>() + 3 * n);
        }
      });
}

// A part of the images, and the primitives that sum over it.
struct SumPart {
  View dy, x;
  BatchChunks tiles, chunks;
};

// sum += the weight gradients of `samples`, by chunks whose sizes end with 8 and 1. A rest of at
// least `worth_filling` samples is padded to a chunk of 8.
void add_filled(const BatchChunks& chunks, const View& dy, const View& x, Range samples,
                std::int64_t worth_filling, float* sum) {
  constexpr std::int64_t filled = 8;
  const std::int64_t rest = samples.count() % filled;
  const Range left{samples.last - rest, samples.last};
  add_share(chunks, dy, x, {samples.first, left.first}, sum);
  if (rest >= worth_filling) return add_padded(chunks, chunks.kinds() - 2, dy, x, left, sum);
  add_share(chunks, dy, x, left, sum);
}

// sum += the weight gradients of `samples`. In tiles a chunk of 8 takes as long as 5 to 6 single
// samples (128 channels of 16 x 16 pixels, an Intel Xeon), else as long as 2 to 3.
void add_sum_of(const SumPart& part, Range samples, float* sum) {
  constexpr std::int64_t worth_filling_tiles = 6, worth_filling = 3;
  const auto& [dy, x, tiles, chunks] = part;
  if (tiles.usable()) {
    if (tiles.has_singles()) return add_filled(tiles, dy, x, samples, worth_filling_tiles, sum);
    add_share(tiles, dy, x, samples, sum);
    samples = tiles.rest(samples);
  }
  if (chunks.has_singles()) return add_filled(chunks, dy, x, samples, worth_filling, sum);
  add_share(chunks, dy, x, samples, sum);
}

// The parts of a sum; empty if oneDNN lacks a primitive for one. A part of a sample lies without
// gaps, where several samples' would be copied.
std::vector<SumPart> sum_parts(const View& dy, const View& x, const Window& window) {
  std::vector<SumPart> parts;
  const bool whole = Geometry(x, dy, window).positions() <= conv_chain;
  for_each_part({dy, x, window}, [&](const ConvPart& part) {
    const Geometry g = part.geometry();
    const BatchChunks none(Pass::weight, g, false, {});
    parts.push_back(
        {part.dy, part.x, whole ? winograd_chunks(g, part.x, part.dy) : none,
         whole ? BatchChunks(Pass::weight, g, false, together) : row_chunks(g, part.x, part.dy)});
  });
  const bool usable = std::all_of(parts.begin(), parts.end(),
                                  [](const SumPart& part) { return part.chunks.usable(); });
  return usable ? parts : std::vector<SumPart>();
}

// Adds the weight gradients of single samples over one part, on one thread.
class PartRun {
 public:
  explicit PartRun(const SumPart& part)
      : part_(part),
        run_(part.chunks[0]),
        reorder_(part.chunks[0]),
        own_(part.chunks[0].weights.get_size(), cpu),
        plain_(part.chunks[0].plain.get_size(), cpu) {}
  void add_to(float* row, Range sample) {
    Images<float> xs(part_.x, sample), ys(part_.dy, sample);
    xs.load();
    ys.load();
    run_(xs.data(), ys.data(), floats(own_), nullptr);
    reorder_(floats(own_), floats(plain_));
    add(floats(plain_), plain_.bytes(), row);
  }

 private:
  const SumPart& part_;
  ConvRun run_;
  Reorder reorder_;
  Storage own_, plain_;
};

// Writes gradients dw of samples and their norms, either of which may be without data, by sums over
// parts of the images. Returns false without any effect if oneDNN lacks a primitive.
bool rows_by_parts(const View& dy, const View& x, const Window& window, const View& dw,
                   const View& norms) {
  const std::vector<SumPart> parts = sum_parts(dy, x, window);
  if (parts.empty()) return false;
  const Geometry g(x, dy, window);
  const std::int64_t size = g.outputs * g.taps();
  parallel_for(
      g.samples, product_grain(g.positions() * size), [&](std::int64_t begin, std::int64_t end) {
        const Storage one(float_bytes(size), cpu);
        std::deque<PartRun> runs;
        for (const SumPart& part : parts) runs.emplace_back(part);
        for (std::int64_t n = begin; n < end; ++n) {
          float* const row = dw.data ? dw.as<float>() + n * dw.stride[0] : floats(one);
          std::fill_n(row, size, 0.0F);
          for (PartRun& run : runs) run.add_to(row, {n, n + 1});
          if (!norms.data) continue;
          Images<float> xs(x, {n, n + 1}), ys(dy, {n, n + 1});
          xs.load();
          ys.load();
          write_norms(g, squared_norm(row, size), ys.data(), xs.data(), norms.as<double>() + 3 * n);
        }
      });
  return true;
}

// Calls f(row, dy, x, reorder, sample) for each sample: its weight gradient in the primitive's
// order, and its images, channels-last.
template <class F>
void for_each_row(const BatchChunks& chunks, const View& dy, const View& x, F&& f) {
  chunks.for_each_range([&](Range share) {
    const Storage row(chunks[0].weights.get_size(), cpu);
    Reorder reorder(chunks[0]);
    chunks.for_each_chunk(0, share, [&](ConvRun& run, Range sample) {
      Images<float> xs(x, sample), ys(dy, sample);
      xs.load();
      ys.load();
      run(xs.data(), ys.data(), floats(row), nullptr);
      f(floats(row), ys.data(), xs.data(), reorder, sample.first);
    });
  });
}

// Writes the norms for a weight gradient in the primitive's order; the order and its padding with
// zeros do not change the norm.
void write_row_norms(const BatchChunks& chunks, const Geometry& g, const float* row,
                     const float* dy, const float* x, double* y) {
  const auto count = static_cast<std::int64_t>(chunks[0].weights.get_size() / sizeof(float));
  write_norms(g, squared_norm(row, count), dy, x, y);
}

}  // namespace

// Each thread computes one sum; the sums are then added in a fixed order.
void OnednnBackend::conv_weight(View dy, View x, const Window& window, double beta, View dw) {
  const Geometry g(x, dy, window);
  if (!suits_onednn(g, {dy, x, dw}) || dw.dtype != Dtype::f32 || !dw.contiguous() ||
      PairConv::suits(g, dy, x) || (has_few_positions(g) && g.channels >= few_channels)) {
    return CpuBackend::conv_weight(dy, x, window, beta, dw);
  }
  const bool directly = sums_directly(g);
  const std::vector<SumPart> parts = directly ? std::vector<SumPart>() : sum_parts(dy, x, window);
  if (parts.empty() && !directly) return CpuBackend::conv_weight(dy, x, window, beta, dw);
  const std::int64_t shares = std::min<std::int64_t>(g.samples, thread_count()), size = dw.numel();
  const Storage sums(float_bytes(shares * size), cpu);
  std::fill_n(floats(sums), shares * size, 0.0F);
  const std::int64_t work = g.samples / std::max<std::int64_t>(shares, 1) * g.positions() * size;
  parallel_for(shares, product_grain(work), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t k = begin; k < end; ++k) {
      const Range share{g.samples * k / shares, g.samples * (k + 1) / shares};
      float* const sum = floats(sums) + k * size;
      if (directly) sum_directly(dy, x, g, share, sum);
      for (const auto& [part_dy, part_x, tiles, chunks] : parts) {
        if (tiles.usable()) add_share(tiles, part_dy, part_x, share, sum);
        add_share(chunks, part_dy, part_x, tiles.usable() ? tiles.rest(share) : share, sum);
      }
    }
  });
  if (beta == 0) std::fill_n(dw.as<float>(), size, 0.0F);
  for (std::int64_t k = 0; k < shares; ++k)
    add(floats(sums) + k * size, float_bytes(size), dw.as<float>());
}

bool OnednnBackend::conv_weight_rounded(View dy, View x, const Window& window,
                                        std::span<const std::int64_t> ends, double spacing,
                                        View dw) {
  const Geometry g(x, dy, window);
  if (!suits_onednn(g, {dy, x})) return false;
  const bool directly = sums_directly(g);
  const std::vector<SumPart> parts = directly ? std::vector<SumPart>() : sum_parts(dy, x, window);
  if (parts.empty() && !directly) return false;
  const std::int64_t size = dw.numel(),
                     threads = std::min<std::int64_t>(std::ssize(ends), thread_count());
  const Storage sums(static_cast<std::size_t>(threads * size) * sizeof(double), cpu);
  auto* const all = static_cast<double*>(sums.data());
  std::fill_n(all, threads * size, 0.0);
  // A thread adds the ranges that begin within its share of the samples.
  const auto add = [&](std::int64_t thread) {
    const Storage one(float_bytes(size), cpu);
    std::int64_t first = 0;
    for (const std::int64_t end : ends) {
      const bool ours = first * threads / g.samples == thread && end > first;
      if (ours) {
        std::fill_n(floats(one), size, 0.0F);
        if (directly) sum_directly(dy, x, g, {first, end}, floats(one));
        for (const SumPart& part : parts) add_sum_of(part, {first, end}, floats(one));
        add_rounded_to(floats(one), size, spacing, all + thread * size);
      }
      first = end;
    }
  };
  const std::int64_t work = g.samples / std::max<std::int64_t>(threads, 1) * g.positions() * size;
  parallel_for(threads, product_grain(work), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t thread = begin; thread < end; ++thread) add(thread);
  });
  for (std::int64_t thread = 0; thread < threads; ++thread) {
    for (std::int64_t k = 0; k < size; ++k) dw.as<double>()[k] += all[thread * size + k];
  }
  return true;
}

void OnednnBackend::conv_weight_rows(View dy, View x, const Window& window, View dw, View norms) {
  const Geometry g(x, dy, window);
  if (suits_onednn(g, {dy, x, dw}) && dw.dtype == Dtype::f32 && dw.contiguous() &&
      !PairConv::suits(g, dy, x)) {
    if (sums_directly(g)) return rows_directly(dy, x, g, dw, norms);
    const bool in_parts = g.positions() > conv_chain;
    if (in_parts && rows_by_parts(dy, x, window, dw, norms)) return;
    const BatchChunks chunks = row_chunks(g, x, dy);
    if (!in_parts && chunks.usable()) {
      const auto write = [&](float* row, const float* ys, const float* xs, Reorder& reorder,
                             std::int64_t sample) {
        reorder(row, dw.as<float>() + sample * dw.stride[0]);
        if (norms.data) write_row_norms(chunks, g, row, ys, xs, norms.as<double>() + 3 * sample);
      };
      return for_each_row(chunks, dy, x, write);
    }
  }
  CpuBackend::conv_weight_rows(dy, x, window, dw, norms);
}

void OnednnBackend::conv_weight_norms(View dy, View x, const Window& window, View y) {
  const Geometry g(x, dy, window);
  if (suits_onednn(g, {dy, x}) && !WeightNorms<float>::suits(g) && !is_depthwise(g) &&
      !PairConv::suits(g, dy, x)) {
    const bool in_parts = g.positions() > conv_chain;
    if (in_parts && rows_by_parts(dy, x, window, {}, y)) return;
    const BatchChunks chunks(Pass::weight, g, false, alone);
    if (!in_parts && chunks.usable()) {
      const auto write = [&](const float* row, const float* ys, const float* xs, auto&,
                             std::int64_t sample) {
        write_row_norms(chunks, g, row, ys, xs, y.as<double>() + 3 * sample);
      };
      return for_each_row(chunks, dy, x, write);
    }
  }
  CpuBackend::conv_weight_norms(dy, x, window, y);
}

}  // namespace sotto
