#include "kernels/cpu/onednn/onednn_batches.h"

#include <algorithm>

#include "core/threads/simd_dispatch.h"

namespace sotto {

bool suits_onednn(const Geometry& g, std::initializer_list<View> views) {
  if (!has_avx512() && g.group_channels() >= few_channels) return false;
  return std::all_of(views.begin(), views.end(),
                     [](const View& v) { return v.dtype != Dtype::f64 && v.numel() > 0; });
}

bool in_tiles(const Geometry& g, const View& x, const View& y) {
  return x.dtype == Dtype::f32 && y.dtype == Dtype::f32 && g.window.suits_tiles() && g.in[0] == 1;
}

BatchChunks::BatchChunks(Pass pass, const Geometry& g, bool bias,
                         std::span<const std::int64_t> sizes, Dtype dtype, Algorithm algorithm)
    : g_(g), dtype_(dtype), sizes_(sizes) {
  for (const std::int64_t size : sizes) {
    Geometry piece = g;
    piece.samples = size;
    primitives_.push_back(conv_primitive(pass, piece, bias, dtype, algorithm));
    if (!primitives_.back()) return;
  }
}

}  // namespace sotto
