// Batches of a convolution cut into pieces that oneDNN has primitives for.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "core/threads/parallel.h"
#include "kernels/cpu/conv/images.h"
#include "kernels/cpu/grain.h"
#include "kernels/cpu/onednn/onednn_conv.h"

namespace sotto {

// Samples that a thread hands to oneDNN together: as many of the first size as fit into its share,
// then of the next. Making a primitive takes 0.1 to 0.5 ms, and Poisson batches are of another size
// at every step.
inline constexpr std::int64_t together[] = {32, 8, 1};
inline constexpr std::int64_t alone[] = {1};

inline std::size_t float_bytes(std::int64_t count) {
  return static_cast<std::size_t>(count) * sizeof(float);
}

inline float* floats(const Storage& storage) { return static_cast<float*>(storage.data()); }

// Whether the arithmetic on all is in f32 and none is empty. 16-bit images pass through f32 copies
// of a piece.
bool suits_onednn(std::initializer_list<View> views);

// Whether oneDNN may have tiles for it: 3 x 3 windows over images in f32.
bool in_tiles(const Geometry& g, const View& x, const View& y);

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

}  // namespace sotto
