#include "kernels/cpu/conv/pair_conv.h"

#include <algorithm>

#include "kernels/cpu/conv/depthwise.h"
#include "kernels/cpu/gemm/pair_packing.h"

namespace sotto {
namespace {

using pairs::lanes;
using pairs::Pair;
using pairs::rounded_up;

// A longer sum is split, so that its roundings are at most roundings(positions, conv_chain).
constexpr std::int64_t longest = 8192 / 2;

std::int64_t quotient(std::int64_t n, std::int64_t unit) { return (n + unit - 1) / unit; }

// The places of a sample's grid along an axis: its outputs, and those that taps reach beyond them.
std::int64_t grid_extent(const Geometry& g, int axis) {
  const Window& w = g.window;
  return g.out[axis] + (w.kernel[axis] - 1) * w.dilation[axis] / w.stride[axis];
}

// The channels of a pixel, or the outputs of a position.
const std::uint16_t* channels_at(const View& images, std::int64_t sample, std::int64_t channel,
                                 const std::int64_t (&at)[3]) {
  const auto& s = images.stride;
  return images.as<const std::uint16_t>() + sample * s[0] + channel * s[1] + at[0] * s[2] +
         at[1] * s[3] + at[2] * s[4];
}

// Calls f(place) for the places of a box in order.
template <class F>
void for_each_place(const std::int64_t (&box)[3], const F& f) {
  std::int64_t at[3];
  for (at[0] = 0; at[0] < box[0]; ++at[0]) {
    for (at[1] = 0; at[1] < box[1]; ++at[1]) {
      for (at[2] = 0; at[2] < box[2]; ++at[2]) f(at);
    }
  }
}

// to [channels, pitch] = the places' channels, transposed; pitch counts pairs.
void transpose_places(const PlaceRows& rows, std::int64_t channels, std::int64_t pitch, Pair* to) {
  const std::int64_t count = rows.count() / 2,
                     whole_pairs = rows.adjacent() ? count / lanes * lanes : 0,
                     whole_channels = channels / lanes * lanes;
  for (std::int64_t p = 0; p < whole_pairs; p += lanes) {
    for (std::int64_t c = 0; c < whole_channels; c += lanes)
      pairs::store_transposed(
          [&](int k) {
            return pairs::interleaved(rows[2 * (p + k)] + c, rows[2 * (p + k) + 1] + c);
          },
          to + c * pitch + p, pitch);
  }
  for (std::int64_t c = 0; c < channels; ++c) {
    for (std::int64_t p = c < whole_channels ? whole_pairs : 0; p < count; ++p)
      to[c * pitch + p] = rows.pair(p, c);
  }
}

}  // namespace

bool PairConv::suits(const Geometry& g, const View& dy, const View& x) {
  constexpr std::int64_t fewest_channels = 3;  // of fewer, tiles would be empty
  return pair_kernel() && dy.dtype == Dtype::bf16 && x.dtype == Dtype::bf16 && !is_depthwise(g) &&
         g.positions() > 0 && std::min(g.group_channels(), g.group_outputs()) >= fewest_channels;
}

std::int64_t PairConv::bytes_of_sample(const Geometry& g) {
  std::int64_t grid = 1, phases = 1;
  for (int axis = 0; axis < 3; ++axis) {
    grid *= grid_extent(g, axis);
    phases *= std::min(g.window.stride[axis], g.window.kernel[axis]);
  }
  return 2 * grid * (g.group_outputs() + phases * g.group_channels());
}

PairConv::PairConv(const Geometry& g, std::int64_t samples)
    : kernel_(*pair_kernel()),
      g_(g),
      taps_(g.window.positions()),
      channel_blocks_(quotient(g.group_channels(), kernel_.rows)),
      output_blocks_(quotient(g.group_outputs(), kernel_.columns)),
      rows_(std::max(g.channels, g.outputs)) {
  for (int axis = 0; axis < 3; ++axis) extent_[axis] = grid_extent(g, axis);
  // Rows of pixels end with zeros for the taps of the last places, and begin in different sets of a
  // cache.
  constexpr std::int64_t cache_line = 2 * lanes;
  pitch_ = rounded_up((samples + 1) * grid() + 2 * kernel_.pairs, 2 * cache_line) + cache_line;
  lay_out_taps();
  const std::int64_t width = rounded_up(g.group_outputs(), panel_unit),
                     most_pairs = rounded_up(quotient(samples * grid(), 2), kernel_.pairs);
  gradients_ =
      std::make_unique<Storage>(static_cast<std::size_t>(most_pairs * width) * sizeof(Pair), cpu);
}

// The pixels that a tap sees at stride s are every s-th one: those of all taps lie in s phases of
// the image along each axis.
void PairConv::lay_out_taps() {
  const Window& w = g_.window;
  for_each_place(w.kernel, [&](const std::int64_t(&at)[3]) {
    std::int64_t first[3], moved[3];
    for (int axis = 0; axis < 3; ++axis) {
      const std::int64_t reach = at[axis] * w.dilation[axis];
      first[axis] = reach % w.stride[axis];
      moved[axis] = reach / w.stride[axis];
    }
    const auto same = [&](const Phase& phase) { return std::equal(first, first + 3, phase.first); };
    auto found = std::find_if(phases_.begin(), phases_.end(), same);
    if (found == phases_.end()) {
      const auto rows = static_cast<std::size_t>(rounded_up(g_.group_channels(), kernel_.unit));
      const auto bytes = rows * static_cast<std::size_t>(pitch_) * sizeof(std::uint16_t);
      phases_.push_back({{first[0], first[1], first[2]}, std::make_unique<Storage>(bytes, cpu)});
      std::fill_n(static_cast<char*>(phases_.back().pixels->data()), bytes, char{0});
      found = phases_.end() - 1;
    }
    places_.push_back({found - phases_.begin(), place(moved[0], moved[1], moved[2])});
  });
}

void PairConv::load(const View& dy, const View& x, Range samples, std::int64_t group) {
  const std::int64_t used =
      (samples.count() - 1) * grid() + place(g_.out[0] - 1, g_.out[1] - 1, g_.out[2] - 1) + 1;
  pairs_ = rounded_up(quotient(used, 2), kernel_.pairs);
  pairs::in_vectors([&] {
    for (Phase& phase : phases_) load_pixels(x, samples, group, phase);
    load_gradients(dy, samples, group);
  });
}

void PairConv::load_pixels(const View& x, Range samples, std::int64_t group, Phase& phase) {
  const Window& w = g_.window;
  rows_.clear(x.stride[1]);
  for (std::int64_t n = samples.first; n < samples.last; ++n) {
    for_each_place(extent_, [&](const std::int64_t(&at)[3]) {
      std::int64_t pixel[3];
      bool inside = true;
      for (int axis = 0; axis < 3; ++axis) {
        pixel[axis] = at[axis] * w.stride[axis] + phase.first[axis] - w.before[axis];
        inside = inside && pixel[axis] >= 0 && pixel[axis] < g_.in[axis];
      }
      rows_.add(inside ? channels_at(x, n, group * g_.group_channels(), pixel) : nullptr);
    });
  }
  // Taps of the last places read zeros.
  rows_.resize(rounded_up(2 * pairs_ + grid(), 2));
  transpose_places(rows_, g_.group_channels(), pitch_ / 2,
                   static_cast<Pair*>(phase.pixels->data()));
}

void PairConv::load_gradients(const View& dy, Range samples, std::int64_t group) {
  const std::int64_t outputs = g_.group_outputs();
  rows_.clear(dy.stride[1]);
  rows_.resize(2 * pairs_);
  for (std::int64_t n = samples.first; n < samples.last; ++n) {
    for_each_place(g_.out, [&](const std::int64_t(&at)[3]) {
      rows_.set((n - samples.first) * grid() + place(at[0], at[1], at[2]),
                channels_at(dy, n, group * outputs, at));
    });
  }
  auto* panel = static_cast<Pair*>(gradients_->data());
  for (std::int64_t o = 0; o < outputs; o += kernel_.columns) {
    const std::int64_t columns = std::min(kernel_.columns, outputs - o),
                       width = rounded_up(columns, panel_unit),
                       whole = rows_.adjacent() ? columns / lanes * lanes : 0;
    for (std::int64_t p = 0; p < pairs_; ++p) {
      Pair* const to = panel + p * width;
      for (std::int64_t j = 0; j < whole; j += lanes)
        tiles::store(pairs::interleaved(rows_[2 * p] + o + j, rows_[2 * p + 1] + o + j), to + j);
      for (std::int64_t j = whole; j < width; ++j) to[j] = j < columns ? rows_.pair(p, o + j) : 0;
    }
    panel += pairs_ * width;
  }
}

WeightBlock PairConv::block(std::int64_t k, float* room) const {
  const std::int64_t tap = k / (channel_blocks_ * output_blocks_),
                     channel = k / output_blocks_ % channel_blocks_ * kernel_.rows,
                     output = k % output_blocks_ * kernel_.columns;
  const std::int64_t channels = std::min(kernel_.rows, g_.group_channels() - channel),
                     outputs = std::min(kernel_.columns, g_.group_outputs() - output),
                     width = rounded_up(outputs, panel_unit);
  const auto& [phase, offset] = places_[static_cast<std::size_t>(tap)];
  const auto* const pixels =
      static_cast<const std::uint16_t*>(phases_[static_cast<std::size_t>(phase)].pixels->data()) +
      channel * pitch_ + offset;
  const Pair* const panel = static_cast<const Pair*>(gradients_->data()) + output * pairs_;
  float* const part = room + block_floats / 2;
  for (std::int64_t p = 0; p < pairs_; p += longest) {
    kernel_.multiply(rounded_up(channels, kernel_.unit), std::min(longest, pairs_ - p),
                     {reinterpret_cast<const char*>(pixels + 2 * p), 2 * pitch_},
                     {reinterpret_cast<const char*>(panel + p * width), width},
                     {p == 0 ? room : part, width}, false);
    for (std::int64_t i = 0; p > 0 && i < channels * width; ++i) room[i] += part[i];
  }
  return {tap, channel, channels, output, outputs, room, width};
}

}  // namespace sotto
