// Weight gradients of convolutions of bf16 images, by instructions for pairs of terms
// (pair_kernel.h): for each tap a product of the images' pixels, as its window sees them, and the
// gradients. Pixels are laid out on a grid so that the pixels of a tap are those of another, moved:
// images are transposed once, and patches are never written.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/tensor.h"
#include "kernels/cpu/conv/conv_images.h"
#include "kernels/cpu/gemm/pair_kernel.h"

namespace sotto {

// A block of a weight gradient: channels and outputs of one tap, f32, row-major.
struct WeightBlock {
  std::int64_t tap;
  std::int64_t channel, channels;  // the first, within the group, and the number
  std::int64_t output, outputs;
  const float* sums;
  std::int64_t stride;

  // The place of row k in all weight gradients of a group, [tap, channel, output].
  std::int64_t row(const Geometry& g, std::int64_t k) const {
    return (tap * g.group_channels() + channel + k) * g.group_outputs() + output;
  }
};

// The places of a grid: their channels in memory, or zeros in the padding.
class PlaceRows {
 public:
  explicit PlaceRows(std::int64_t channels) : zeros_(static_cast<std::size_t>(channels)) {}
  // Channels of a place are `step` apart from now on.
  void clear(std::int64_t step) {
    rows_.clear();
    step_ = step;
  }
  void add(const std::uint16_t* row) { rows_.push_back(row ? row : zeros_.data()); }
  void set(std::int64_t place, const std::uint16_t* row) {
    rows_[static_cast<std::size_t>(place)] = row;
  }
  // New places are zeros.
  void resize(std::int64_t places) {
    rows_.resize(static_cast<std::size_t>(places), zeros_.data());
  }
  std::int64_t count() const { return std::ssize(rows_); }
  // True if the channels of a place are adjacent: then operator[] is where they begin.
  bool adjacent() const { return step_ == 1; }
  const std::uint16_t* operator[](std::int64_t place) const {
    return rows_[static_cast<std::size_t>(place)];
  }
  // A channel of the places 2 p and 2 p + 1.
  std::uint32_t pair(std::int64_t p, std::int64_t channel) const {
    return at(2 * p, channel) | std::uint32_t{at(2 * p + 1, channel)} << 16;
  }

 private:
  std::uint16_t at(std::int64_t place, std::int64_t channel) const {
    const std::uint16_t* const row = (*this)[place];
    return row == zeros_.data() ? std::uint16_t{0} : row[channel * step_];
  }
  std::vector<std::uint16_t> zeros_;
  std::vector<const std::uint16_t*> rows_;
  std::int64_t step_ = 1;
};

// The images of some samples of a group.
class PairConv {
 public:
  // True if images of these types and shapes are multiplied so.
  static bool suits(const Geometry& g, const View& dy, const View& x);

  // For up to `samples` samples, whose weight gradients are added.
  PairConv(const Geometry& g, std::int64_t samples);
  // The bytes of one sample's images.
  static std::int64_t bytes_of_sample(const Geometry& g);

  void load(const View& dy, const View& x, Range samples, std::int64_t group);
  // Every weight gradient consists of this many blocks.
  std::int64_t blocks() const { return taps_ * channel_blocks_ * output_blocks_; }
  // Computes block k into memory of block_floats.
  WeightBlock block(std::int64_t k, float* room) const;
  static constexpr std::int64_t block_floats = 2 * 48 * 48;

 private:
  struct Phase {
    std::int64_t first[3];            // the pixel of the padded image that is at the grid's origin
    std::unique_ptr<Storage> pixels;  // [channels, pitch], bf16
  };
  struct Tap {
    std::int64_t phase, offset;
  };
  void lay_out_taps();
  std::int64_t grid() const { return extent_[0] * extent_[1] * extent_[2]; }
  std::int64_t place(std::int64_t i, std::int64_t j, std::int64_t k) const {
    return (i * extent_[1] + j) * extent_[2] + k;
  }
  void load_pixels(const View& x, Range samples, std::int64_t group, Phase& phase);
  void load_gradients(const View& dy, Range samples, std::int64_t group);

  const PairKernel& kernel_;
  Geometry g_;
  std::int64_t taps_, channel_blocks_, output_blocks_;
  std::int64_t extent_[3];     // of a sample's grid
  std::int64_t pitch_ = 0;     // terms in a row of pixels
  std::int64_t pairs_ = 0;     // of the loaded samples
  std::vector<Phase> phases_;  // the pixels that windows of a stride reach by one tap
  std::vector<Tap> places_;
  std::unique_ptr<Storage> gradients_;  // panels of pairs
  PlaceRows rows_;                      // scratch
};

// The passes of Backend, for images that suit: the sum of weight gradients; each of them, and their
// norms, either of which may be without data; and the sum of weighted terms.
void pair_conv_weight(const Geometry& g, const View& dy, const View& x, double beta,
                      const View& dw);
void pair_conv_rows(const Geometry& g, const View& dy, const View& x, const View& dw,
                    const View& norms);
void add_rounded_pair_conv(const Geometry& g, const View& dy, const View& x, const View& w,
                           double spacing, const View& dw);
// Backend::add_rounded_products of bf16 factors. Returns false without any effect for others.
bool add_rounded_pairs(const View& b, const View& a, const View& w, double spacing, const View& y);

}  // namespace sotto
