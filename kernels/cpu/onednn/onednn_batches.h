// Splits the batch of a convolution into chunks for which oneDNN has primitives.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "core/threads/parallel.h"
#include "kernels/cpu/conv/conv_images.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/onednn/onednn_conv.h"

namespace sotto {

// Chunk sizes, in samples: a thread takes as many chunks of the first size as fit into its range,
// then of the next. Few sizes suffice for Poisson batches, whose size changes at every step; making
// a primitive takes 0.1 to 0.5 ms.
inline constexpr std::int64_t together[] = {32, 8, 1};
inline constexpr std::int64_t alone[] = {1};

inline std::size_t float_bytes(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(float);
}

inline float* floats(const Storage& storage) { return static_cast<float*>(storage.data()); }

// Convolutions of fewer channels are oneDNN's wherever it computes them.
inline constexpr std::int64_t few_channels = 8;

// True if all views are computed in f32, none is empty, and our own convolutions do not take less
// time, as they do in AVX2 from some channels on. 16-bit images are converted to f32 chunk by
// chunk.
bool suits_onednn(const Geometry& g, std::initializer_list<View> views);

// True if oneDNN may have a Winograd primitive: 3 x 3 windows over 2-D images in f32.
bool in_tiles(const Geometry& g, const View& x, const View& y);

// The primitives of a convolution for each chunk size, and the division of a batch into chunks.
class BatchChunks {
 public:
  BatchChunks(Pass pass, const Geometry& g, bool bias, std::span<const std::int64_t> sizes,
              Dtype dtype = Dtype::f32, Algorithm algorithm = Algorithm::direct);
  // True if oneDNN has a primitive for each chunk size.
  bool usable() const { return !primitives_.empty() && primitives_.back(); }
  std::size_t kinds() const { return primitives_.size(); }
  // True if single samples are the last of several sizes.
  bool has_singles() const { return kinds() > 1 && sizes_.back() == 1; }
  const ConvPrimitive& operator[](std::size_t kind) const { return *primitives_[kind]; }
  Dtype dtype() const { return dtype_; }

  // Calls f(samples) in parallel for ranges that cover the batch.
  template <class F>
  void for_each_range(F&& f) const {
    const std::int64_t work = g_.positions() * g_.outputs * g_.taps();
    parallel_for(g_.samples, product_grain(work), [&](std::int64_t begin, std::int64_t end) {
      f(Range{begin, end});
    });
  }

  // The samples of a range that form chunks of size number `kind`.
  Range part(std::size_t kind, Range share) const {
    for (std::size_t k = 0; k < kind; ++k) share.first += share.count() / sizes_[k] * sizes_[k];
    return {share.first, share.first + share.count() / sizes_[kind] * sizes_[kind]};
  }

  // The samples of a range that are too few for any chunk.
  Range rest(Range share) const { return {part(kinds() - 1, share).last, share.last}; }

  // Calls f(run, samples) for the chunks of one size in a range.
  template <class F>
  void for_each_chunk(std::size_t kind, Range share, F&& f) const {
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

}  // namespace sotto
