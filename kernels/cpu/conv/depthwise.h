// Convolutions of which each channel is a group of its own (depthwise), over channels-last images.
// All loops run over channels, which lie side by side: an element's terms are added in an order
// that depends on the window alone.
#pragma once

#include <cstddef>
#include <iterator>
#include <span>
#include <vector>

#include "kernels/cpu/conv/conv_images.h"

namespace sotto {

bool is_depthwise(const Geometry& g);

// The taps of the window along one axis: for each place of an image, those that reach a place of
// the other image.
class AxisTaps {
 public:
  struct Tap {
    std::int64_t tap, place;  // of the window, and of the other image
  };
  // For the places of the convolution's result, or of its input.
  static AxisTaps of_result(const Geometry& g, int axis);
  static AxisTaps of_input(const Geometry& g, int axis);

  std::int64_t places() const { return std::ssize(begins_) - 1; }
  std::span<const Tap> operator[](std::int64_t place) const {
    const std::size_t k = static_cast<std::size_t>(place);
    return std::span(taps_).subspan(begins_[k], begins_[k + 1] - begins_[k]);
  }

 private:
  std::vector<Tap> taps_;
  std::vector<std::size_t> begins_ = {0};  // of each place in taps_, and the end
};

// The passes of one sample, in the accumulation type. Weights are [taps, c].
template <class T>
class Depthwise {
 public:
  explicit Depthwise(const Geometry& g) : g_(g) {}
  // y[p] = bias + sum over the taps k of position p of x[q] w[k]; `bias` may be nullptr.
  void forward(const T* x, const T* w, const T* bias, T* y) const;
  // dx[q] = sum over the taps k through which pixel q is seen of dy[p] w[k].
  void data(const T* dy, const T* w, T* dx) const;
  // dw[k] += sum_p dy[p] x[q], in chains of at most conv_chain positions.
  void add_weight(const T* dy, const T* x, T* dw) const;

 private:
  Geometry g_;
};

// dw [c, taps] = the sum over `samples` of their weight gradients.
template <class T>
void sum_depthwise_weight(const View& dy, const View& x, const Geometry& g, Range samples, T* dw);

}  // namespace sotto
