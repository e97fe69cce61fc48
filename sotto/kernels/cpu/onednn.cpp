// Convolutions in f32 by oneDNN; whatever it has nothing good for goes the portable way.
#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "sotto/core/parallel.h"
#include "sotto/kernels/cpu/conv_gram.h"
#include "sotto/kernels/cpu/cpu_backend.h"
#include "sotto/kernels/cpu/grain.h"
#include "sotto/kernels/cpu/onednn_conv.h"
#include "sotto/kernels/cpu/weight_norms.h"

namespace sotto {
namespace {

// Samples that a thread hands to oneDNN together: as many of the first size as fit into its share,
// then of the next. Making a primitive takes 0.1 to 0.5 ms, and Poisson batches are of another size
// at every step.
constexpr std::int64_t together[] = {32, 8, 1};
constexpr std::int64_t alone[] = {1};
// By tiles. What is left is computed as a whole piece: how oneDNN adds up over channels depends on
// the size of a piece (and on the processor's caches), and the bits of a sample must not depend on
// how many others there are.
constexpr std::int64_t tiled[] = {8};

// A convolution's primitives for pieces of each size, and the cutting of a batch into them.
class Pieces {
 public:
  Pieces(Pass pass, const Geometry& g, bool bias, std::span<const std::int64_t> sizes,
         Dtype dtype = Dtype::f32, Algorithm algorithm = Algorithm::direct);
  // Whether oneDNN can do all of it.
  bool usable() const { return !primitives_.empty() && primitives_.back(); }
  std::size_t kinds() const { return primitives_.size(); }
  const ConvPrimitive& operator[](std::size_t kind) const { return *primitives_[kind]; }
  Dtype dtype() const { return dtype_; }

  // Calls f(samples) in parallel.
  template <class F>
  void for_each_share(F&& f) const {
    const std::int64_t work = g_.positions() * g_.outputs * g_.taps();
    parallel_for(g_.samples, product_grain(work), [&](std::int64_t begin, std::int64_t end) {
      f(Range{begin, end});
    });
  }

  // The samples of a share that go in pieces of one kind.
  Range part(std::size_t kind, Range share) const {
    for (std::size_t k = 0; k < kind; ++k) share.first += share.count() / sizes_[k] * sizes_[k];
    return {share.first, share.first + share.count() / sizes_[kind] * sizes_[kind]};
  }

  // The samples of a share that are fewer than any piece has.
  Range rest(Range share) const { return {part(kinds() - 1, share).last, share.last}; }

  // Calls f(run, samples) for the pieces of one kind in a share.
  template <class F>
  void for_each_piece(std::size_t kind, Range share, F&& f) const {
    const Range samples = part(kind, share);
    if (samples.count() == 0) return;
    ConvRun run(*primitives_[kind]);
    for (std::int64_t n = samples.first; n < samples.last; n += sizes_[kind])
      f(run, {n, n + sizes_[kind]});
  }

 private:
  Geometry g_;
  Dtype dtype_;
  std::span<const std::int64_t> sizes_;
  std::vector<std::shared_ptr<const ConvPrimitive>> primitives_;
};

Pieces::Pieces(Pass pass, const Geometry& g, bool bias, std::span<const std::int64_t> sizes,
               Dtype dtype, Algorithm algorithm)
    : g_(g), dtype_(dtype), sizes_(sizes) {
  for (const std::int64_t size : sizes) {
    Geometry piece = g;
    piece.samples = size;
    primitives_.push_back(conv_primitive(pass, piece, bias, dtype, algorithm));
    if (!primitives_.back()) return;
  }
}

float* floats(const Storage& storage) { return static_cast<float*>(storage.data()); }

std::size_t float_bytes(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(float);
}

// Weights in the order of each primitive; mostly one order for all.
class OrderedWeights {
 public:
  OrderedWeights(const Pieces& pieces, Backend& backend, const View& w) {
    const bool lies = w.dtype == pieces.dtype() && w.contiguous();
    const Storage copy(lies ? 0 : static_cast<std::size_t>(w.numel()) * size_of(pieces.dtype()),
                       cpu);
    void* const row_major = lies ? w.data : copy.data();
    if (!lies) {
      View plain = in_order(w, false);
      plain.data = row_major;
      plain.dtype = pieces.dtype();
      backend.copy(w, plain);
    }
    const OneThread one;
    for (std::size_t kind = 0; kind < pieces.kinds(); ++kind) {
      const auto same = [&](std::size_t k) { return pieces[k].weights == pieces[kind].weights; };
      std::size_t k = 0;
      while (!same(k)) ++k;
      ordered_.push_back(k < kind ? ordered_[k]
                                  : std::make_shared<Storage>(pieces[k].weights.get_size(), cpu));
      if (k == kind) Reorder{pieces[kind]}(row_major, ordered_.back()->data());
    }
  }
  void* operator[](std::size_t kind) const { return ordered_[kind]->data(); }

 private:
  std::vector<std::shared_ptr<Storage>> ordered_;
};

// The first of some samples.
void* sample(const View& v, Range samples) {
  return v.as<char>() + samples.first * v.stride[0] * static_cast<std::int64_t>(size_of(v.dtype));
}

// y from x for fewer samples than a piece has, those that it has more being zero.
void transform_rest(const Pieces& pieces, const OrderedWeights& weights, const View& bias,
                    const View& x, const View& y, Range samples) {
  const std::size_t last = pieces.kinds() - 1;
  const ConvPrimitive& p = pieces[last];
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

// y from x in the forward pass, x from y in the data pass. bf16 images lie channels-last.
void transform(const Pieces& pieces, const OrderedWeights& weights, const View& bias, const View& x,
               const View& y) {
  const bool forward = pieces[0].pass == Pass::forward;
  pieces.for_each_share([&](Range share) {
    for (std::size_t kind = 0; kind < pieces.kinds(); ++kind) {
      pieces.for_each_piece(kind, share, [&](ConvRun& run, Range samples) {
        if (pieces.dtype() == Dtype::bf16)
          return run(sample(x, samples), sample(y, samples), weights[kind], bias.as<float>());
        Images<float> xs(x, samples), ys(y, samples);
        (forward ? xs : ys).load();
        run(xs.data(), ys.data(), weights[kind], bias.as<float>());
        (forward ? ys : xs).store();
      });
    }
    if (const Range rest = pieces.rest(share); rest.count() > 0)
      transform_rest(pieces, weights, bias, x, y, rest);
  });
}

// Whether tiles pay: windows of 3 x 3 that move by one, in f32, with channels and pixels enough.
// (On Zen 4, 0.4 to 0.9 of the time for these, and more than all of it for fewer.)
bool suits_tiles(const Geometry& g, const View& x, const View& y) {
  constexpr std::int64_t least_channels = 32, least_width = 8, wide = 16, least_products = 2048;
  const Window& w = g.window;
  bool square = x.dtype == Dtype::f32 && y.dtype == Dtype::f32 && w.groups == 1 &&
                w.kernel[0] == 1 && g.in[0] == 1 && w.before[0] == 0 && w.after[0] == 0;
  for (const int axis : {1, 2}) {
    square = square && w.kernel[axis] == 3 && w.stride[axis] == 1 && w.dilation[axis] == 1 &&
             w.before[axis] <= 1 && w.after[axis] <= 1;
  }
  const std::int64_t width = std::min(g.out[1], g.out[2]);
  return square && std::min(g.channels, g.outputs) >= least_channels && width >= least_width &&
         (width >= wide || g.channels * g.outputs >= least_products);
}

// Pieces of a forward pass by tiles; not usable where they do not pay or oneDNN has none.
Pieces tiled_pieces(const Geometry& g, bool bias, const View& x, const View& y) {
  if (!suits_tiles(g, x, y)) return {Pass::forward, g, bias, {}};
  return {Pass::forward, g, bias, tiled, Dtype::f32, Algorithm::winograd};
}

// A data pass as the forward pass from dy to dx by the weights turned around in space, where
// windows move by one and do not end in the padding.
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

// Batch-reduce products, which oneDNN 2.6 has in forward passes alone, take 0.75 to 0.95 of its
// data pass, but more than that for few pixels or channels.
bool pays_as_forward(const Geometry& g) {
  constexpr std::int64_t least_width = 8, vector = 16;
  return g.window.positions() > 1 && g.in[2] >= least_width && g.outputs % vector == 0;
}

// w [o, c, kernel] as [c, o, kernel turned around].
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

void add(const float* x, std::size_t bytes, float* y) {
  for (std::size_t i = 0; i < bytes / sizeof(float); ++i) y[i] += x[i];
}

// sum += the weight gradients of a share, row-major.
void add_share(const Pieces& pieces, const View& dy, const View& x, Range share, float* sum) {
  for (std::size_t kind = 0; kind < pieces.kinds(); ++kind) {
    if (pieces.part(kind, share).count() == 0) continue;
    const ConvPrimitive& p = pieces[kind];
    const Storage total(p.weights.get_size(), cpu), one(p.weights.get_size(), cpu);
    bool first = true;
    pieces.for_each_piece(kind, share, [&](ConvRun& run, Range samples) {
      Images<float> xs(x, samples), ys(dy, samples);
      xs.load();
      ys.load();
      run(xs.data(), ys.data(), floats(first ? total : one), nullptr);
      if (!first) add(floats(one), one.bytes(), floats(total));
      first = false;
    });
    const Storage plain(p.plain.get_size(), cpu);
    Reorder{p}(floats(total), floats(plain));
    add(floats(plain), plain.bytes(), sum);
  }
}

// Calls f(row, dy, x, reorder, sample) for the weight gradient of each sample, in the primitive's
// order, and the images it came from, channels-last.
template <class F>
void for_each_row(const Pieces& pieces, const View& dy, const View& x, F&& f) {
  pieces.for_each_share([&](Range share) {
    const Storage row(pieces[0].weights.get_size(), cpu);
    Reorder reorder(pieces[0]);
    pieces.for_each_piece(0, share, [&](ConvRun& run, Range sample) {
      Images<float> xs(x, sample), ys(dy, sample);
      xs.load();
      ys.load();
      run(xs.data(), ys.data(), floats(row), nullptr);
      f(floats(row), ys.data(), xs.data(), reorder, sample.first);
    });
  });
}

// Whether the arithmetic on all is in f32 and none is empty. 16-bit images pass through f32 copies
// of a piece.
bool suits(std::initializer_list<View> views) {
  return std::all_of(views.begin(), views.end(),
                     [](const View& v) { return v.dtype != Dtype::f64 && v.numel() > 0; });
}

// Pieces of a batch whose results are stored as `y`. What is rounded to 16 bits must not depend on
// who else is in the batch: each sample is a piece.
std::span<const std::int64_t> piece_sizes(const View& y) {
  if (y.dtype == Dtype::f32) return together;
  return alone;
}

// The pieces of a forward or data pass: of bf16 where the processor multiplies it, else of f32.
Pieces pass_pieces(Pass pass, const Geometry& g, bool bias, const View& x, const View& w,
                   const View& y) {
  const bool bfloat = has_bf16_instructions() && lies_channels_last(x) && lies_channels_last(y) &&
                      x.dtype == Dtype::bf16 && y.dtype == Dtype::bf16 && w.dtype == Dtype::bf16;
  if (bfloat) {
    Pieces pieces(pass, g, bias, alone, Dtype::bf16);
    if (pieces.usable()) return pieces;
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
  if (suits({x, w, y}) && plain_bias) {
    const Pieces tiles = tiled_pieces(g, bias.data != nullptr, x, y);
    if (tiles.usable()) return transform(tiles, {tiles, *this, w}, bias, x, y);
    const Pieces pieces = pass_pieces(Pass::forward, g, bias.data != nullptr, x, w, y);
    if (pieces.usable()) return transform(pieces, {pieces, *this, w}, bias, x, y);
  }
  CpuBackend::conv(x, w, bias, window, y);
}

void OnednnBackend::conv_data(View dy, View w, const Window& window, View dx) {
  const Geometry g(dx, dy, window);
  const auto forward = as_forward(g);
  if (forward && suits({dy, w, dx})) {
    const Pieces tiles = tiled_pieces(*forward, false, dy, dx);
    if (tiles.usable()) return transform(tiles, {tiles, *this, turned_around(w)}, {}, dy, dx);
  }
  if (forward && pays_as_forward(g) && suits({dy, w, dx}) && dy.dtype == Dtype::f32 &&
      dx.dtype == Dtype::f32) {
    const Pieces pieces(Pass::forward, *forward, false, together);
    if (pieces.usable() && pieces[0].brgemm)
      return transform(pieces, {pieces, *this, turned_around(w)}, {}, dy, dx);
  }
  if (suits({dy, w, dx})) {
    const Pieces pieces = pass_pieces(Pass::data, g, false, dx, w, dy);
    if (pieces.usable()) return transform(pieces, {pieces, *this, w}, {}, dx, dy);
  }
  CpuBackend::conv_data(dy, w, window, dx);
}

// One sum for each thread, and these in order.
void OnednnBackend::conv_weight(View dy, View x, const Window& window, double beta, View dw) {
  const Geometry g(x, dy, window);
  if (!suits({dy, x, dw}) || dw.dtype != Dtype::f32 || !dw.contiguous()) {
    return CpuBackend::conv_weight(dy, x, window, beta, dw);
  }
  const Pieces pieces(Pass::weight, g, false, together);
  if (!pieces.usable()) return CpuBackend::conv_weight(dy, x, window, beta, dw);
  const std::int64_t parts = std::min<std::int64_t>(g.samples, thread_count()), size = dw.numel();
  const Storage sums(float_bytes(parts * size), cpu);
  std::fill_n(floats(sums), parts * size, 0.0F);
  const std::int64_t work = g.samples / std::max<std::int64_t>(parts, 1) * g.positions() * size;
  parallel_for(parts, product_grain(work), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t part = begin; part < end; ++part) {
      const Range share{g.samples * part / parts, g.samples * (part + 1) / parts};
      add_share(pieces, dy, x, share, floats(sums) + part * size);
    }
  });
  if (beta == 0) std::fill_n(dw.as<float>(), size, 0.0F);
  for (std::int64_t part = 0; part < parts; ++part) {
    add(floats(sums) + part * size, float_bytes(size), dw.as<float>());
  }
}

void OnednnBackend::conv_weight_rows(View dy, View x, const Window& window, View dw) {
  const Geometry g(x, dy, window);
  if (suits({dy, x, dw}) && dw.dtype == Dtype::f32 && dw.contiguous()) {
    const Pieces pieces(Pass::weight, g, false, alone);
    if (pieces.usable()) {
      const auto write = [&](float* row, auto, auto, Reorder& reorder, std::int64_t sample) {
        reorder(row, dw.as<float>() + sample * dw.stride[0]);
      };
      return for_each_row(pieces, dy, x, write);
    }
  }
  CpuBackend::conv_weight_rows(dy, x, window, dw);
}

// The order of a row, and the zeros that fill it up, do not show in its norm.
void OnednnBackend::conv_weight_norms(View dy, View x, const Window& window, View y) {
  const Geometry g(x, dy, window);
  if (suits({dy, x}) && !WeightNorms<float>::suits(g)) {
    const Pieces pieces(Pass::weight, g, false, alone);
    if (pieces.usable()) {
      const auto count = static_cast<std::int64_t>(pieces[0].weights.get_size() / sizeof(float));
      const auto write = [&](const float* row, const float* ys, const float* xs, auto&,
                             std::int64_t sample) {
        write_norms(g, squared_norm(row, count), ys, xs, y.as<double>() + 3 * sample);
      };
      return for_each_row(pieces, dy, x, write);
    }
  }
  CpuBackend::conv_weight_norms(dy, x, window, y);
}

}  // namespace sotto
