// Forward and data passes of convolutions by oneDNN; where oneDNN has no fast primitive, the
// portable engine computes.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/cpu/conv/depthwise.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/onednn/onednn_batches.h"

namespace sotto {
namespace {

// Chunk size of Winograd passes. A smaller rest is padded to a full chunk: oneDNN's order of
// summation over channels depends on the size of a chunk (and on the processor's caches), and the
// bits of a sample must not depend on the number of other samples.
constexpr std::int64_t tiled[] = {8};

// The weights in the order of each primitive; most primitives share one order.
class OrderedWeights {
 public:
  OrderedWeights(const BatchChunks& chunks, Backend& backend, const View& w) {
    const bool lies = w.dtype == chunks.dtype() && w.contiguous();
    const Storage copy(lies ? 0 : static_cast<std::size_t>(w.numel()) * size_of(chunks.dtype()),
                       cpu);
    void* const row_major = lies ? w.data : copy.data();
    if (!lies) {
      View plain = in_order(w, false);
      plain.data = row_major;
      plain.dtype = chunks.dtype();
      backend.copy(w, plain);
    }
    const OneThread one;
    for (std::size_t kind = 0; kind < chunks.kinds(); ++kind) {
      const auto same = [&](std::size_t k) { return chunks[k].weights == chunks[kind].weights; };
      std::size_t k = 0;
      while (!same(k)) ++k;
      ordered_.push_back(k < kind ? ordered_[k]
                                  : std::make_shared<Storage>(chunks[k].weights.get_size(), cpu));
      if (k == kind) Reorder{chunks[kind]}(row_major, ordered_.back()->data());
    }
  }
  void* operator[](std::size_t kind) const { return ordered_[kind]->data(); }

 private:
  std::vector<std::shared_ptr<Storage>> ordered_;
};

// The address of the first of `samples`.
void* sample(const View& v, Range samples) {
  return v.as<char>() + samples.first * v.stride[0] * static_cast<std::int64_t>(size_of(v.dtype));
}

// Computes y from x for fewer samples than a chunk has; the missing samples are zero.
void transform_rest(const BatchChunks& chunks, const OrderedWeights& weights, const View& bias,
                    const View& x, const View& y, Range samples) {
  const std::size_t last = chunks.kinds() - 1;
  const ConvPrimitive& p = chunks[last];
  Images<float> xs(x, samples), ys(y, samples);
  xs.load();
  const Storage from(p.x.get_size(), cpu), to(p.y.get_size(), cpu);
  const std::size_t given = float_bytes(samples.count() * (x.numel() / x.size[0])),
                    wanted = float_bytes(samples.count() * (y.numel() / y.size[0]));
  std::memcpy(from.data(), xs.data(), given);
  std::memset(static_cast<char*>(from.data()) + given, 0, from.bytes() - given);
  ConvRun run(p);
  run(from.data(), to.data(), weights[last], bias.as<float>());
  std::memcpy(ys.data(), to.data(), wanted);
  ys.store();
}

// Computes y from x in the forward pass, x from y in the data pass. bf16 images must be
// channels-last.
void transform(const BatchChunks& chunks, const OrderedWeights& weights, const View& bias,
               const View& x, const View& y) {
  const bool forward = chunks[0].pass == Pass::forward;
  chunks.for_each_range([&](Range share) {
    for (std::size_t kind = 0; kind < chunks.kinds(); ++kind) {
      chunks.for_each_chunk(kind, share, [&](ConvRun& run, Range samples) {
        if (chunks.dtype() == Dtype::bf16)
          return run(sample(x, samples), sample(y, samples), weights[kind], bias.as<float>());
        Images<float> xs(x, samples), ys(y, samples);
        (forward ? xs : ys).load();
        run(xs.data(), ys.data(), weights[kind], bias.as<float>());
        (forward ? ys : xs).store();
      });
    }
    if (const Range rest = chunks.rest(share); rest.count() > 0)
      transform_rest(chunks, weights, bias, x, y, rest);
  });
}

// True if Winograd pays: in f32, with enough channels and pixels. (On Zen 4 it takes 0.4 to 0.9 of
// the direct time above these limits, and more than the direct time below.)
bool tiles_pay(const Geometry& g, const View& x, const View& y) {
  constexpr std::int64_t min_channels = 32, min_width = 8, wide = 16, min_products = 2048;
  const std::int64_t width = std::min(g.out[1], g.out[2]);
  return in_tiles(g, x, y) && std::min(g.channels, g.outputs) >= min_channels &&
         width >= min_width && (width >= wide || g.channels * g.outputs >= min_products);
}

// The chunks of a Winograd forward pass; not usable if it does not pay or oneDNN has no primitive.
BatchChunks winograd_chunks(const Geometry& g, bool bias, const View& x, const View& y) {
  if (!tiles_pay(g, x, y)) return {Pass::forward, g, bias, {}};
  return {Pass::forward, g, bias, tiled, Dtype::f32, Algorithm::winograd};
}

// The data pass as a forward pass from dy to dx with reversed weights. Possible for one group if
// the window moves by one and the padding does not exceed its extent.
std::optional<Geometry> as_forward(const Geometry& g) {
  Geometry turned = g;
  std::swap(turned.channels, turned.outputs);
  for (int axis = 0; axis < 3; ++axis) {
    Window& window = turned.window;
    const std::int64_t span = window.dilation[axis] * (window.kernel[axis] - 1);
    if (window.stride[axis] != 1 || window.before[axis] > span || window.after[axis] > span)
      return std::nullopt;
    window.before[axis] = span - window.before[axis];
    window.after[axis] = span - window.after[axis];
    std::swap(turned.in[axis], turned.out[axis]);
  }
  return g.window.groups == 1 ? std::optional(turned) : std::nullopt;
}

// Batch-reduce products, which oneDNN 2.6 uses in forward passes only, take 0.75 to 0.95 of the
// time of its data pass, but more than that for few pixels or channels.
bool pays_as_forward(const Geometry& g) {
  constexpr std::int64_t min_width = 8, vector = 16;
  return g.window.positions() > 1 && g.in[2] >= min_width && g.outputs % vector == 0;
}

// w [o, c, kernel] as [c, o, reversed kernel].
View turned_around(View w) {
  std::swap(w.size[0], w.size[1]);
  std::swap(w.stride[0], w.stride[1]);
  std::int64_t last = 0;
  for (int axis = 2; axis < w.rank; ++axis) {
    last += (w.size[axis] - 1) * w.stride[axis];
    w.stride[axis] = -w.stride[axis];
  }
  w.data = w.as<char>() + last * static_cast<std::int64_t>(size_of(w.dtype));
  return w;
}

// The chunk sizes for a batch whose results are stored in `y`. Values rounded to 16 bits must not
// depend on the other samples of the batch, so each sample is a chunk then.
std::span<const std::int64_t> piece_sizes(const View& y) {
  if (y.dtype == Dtype::f32) return together;
  return alone;
}

// The chunks of a forward or data pass: in bf16 if the processor multiplies it, else in f32.
BatchChunks pass_pieces(Pass pass, const Geometry& g, bool bias, const View& x, const View& w,
                        const View& y) {
  const bool bfloat = has_bf16_instructions() && is_channels_last(x) && is_channels_last(y) &&
                      x.dtype == Dtype::bf16 && y.dtype == Dtype::bf16 && w.dtype == Dtype::bf16;
  if (bfloat) {
    BatchChunks chunks(pass, g, bias, alone, Dtype::bf16);
    if (chunks.usable()) return chunks;
  }
  return {pass, g, bias, piece_sizes(pass == Pass::forward ? y : x)};
}

}  // namespace

Backend* onednn_backend() {
  static OnednnBackend backend;
  return &backend;
}

void OnednnBackend::conv(View x, View w, View bias, const Window& window, View y) {
  const bool plain_bias = !bias.data || (bias.dtype == Dtype::f32 && bias.contiguous());
  const Geometry g(x, y, window);
  if (suits_onednn(g, {x, w, y}) && plain_bias && !is_depthwise(g)) {
    const BatchChunks tiles = winograd_chunks(g, bias.data != nullptr, x, y);
    if (tiles.usable()) return transform(tiles, {tiles, *this, w}, bias, x, y);
    const BatchChunks chunks = pass_pieces(Pass::forward, g, bias.data != nullptr, x, w, y);
    if (chunks.usable()) return transform(chunks, {chunks, *this, w}, bias, x, y);
  }
  CpuBackend::conv(x, w, bias, window, y);
}

void OnednnBackend::conv_data(View dy, View w, const Window& window, View dx) {
  const Geometry g(dx, dy, window);
  if (is_depthwise(g)) return CpuBackend::conv_data(dy, w, window, dx);
  const auto forward = as_forward(g);
  if (forward && suits_onednn(g, {dy, w, dx})) {
    const BatchChunks tiles = winograd_chunks(*forward, false, dy, dx);
    if (tiles.usable()) return transform(tiles, {tiles, *this, turned_around(w)}, {}, dy, dx);
  }
  if (forward && pays_as_forward(g) && suits_onednn(g, {dy, w, dx}) && dy.dtype == Dtype::f32 &&
      dx.dtype == Dtype::f32) {
    const BatchChunks chunks(Pass::forward, *forward, false, together);
    if (chunks.usable() && chunks[0].brgemm)
      return transform(chunks, {chunks, *this, turned_around(w)}, {}, dy, dx);
  }
  if (suits_onednn(g, {dy, w, dx})) {
    const BatchChunks chunks = pass_pieces(Pass::data, g, false, dx, w, dy);
    if (chunks.usable()) return transform(chunks, {chunks, *this, w}, {}, dx, dy);
  }
  CpuBackend::conv_data(dy, w, window, dx);
}

}  // namespace sotto
