// Layers without parameters that arrange values: softmax over an axis, padding, pixel shuffling.
#pragma once

#include "autograd/ops/indexing.h"
#include "autograd/ops/reductions.h"
#include "autograd/ops/shape_ops.h"
#include "nn/module.h"

namespace sotto::nn {

// e^x over its sum along an axis.
class Softmax final : public Module {
 public:
  // The axis; negative ones count from the end.
  explicit Softmax(int axis = -1) : axis_(axis) {}
  Var forward(const Var& x) override { return softmax(x, axis_); }

 private:
  int axis_;
};

// log_softmax(): x minus log(sum e^x) along an axis.
class LogSoftmax final : public Module {
 public:
  // The axis; negative ones count from the end.
  explicit LogSoftmax(int axis = -1) : axis_(axis) {}
  Var forward(const Var& x) override { return log_softmax(x, axis_); }

 private:
  int axis_;
};

// Pads the last axes: `sizes` are those before and after the last axis, then the axis before it,
// and so on. Throws std::invalid_argument for an odd number of sizes.
class Pad final : public Module {
 public:
  // Sizes in pairs; `mode` chooses the values.
  explicit Pad(const Shape& sizes, PadMode mode = PadMode::zeros);
  Var forward(const Var& x) override;

 private:
  Shape sizes_;
  PadMode mode_;
};

// pixel_shuffle() with f >= 1: [n, c f^2, h, w] to [n, c, h f, w f].
class PixelShuffle final : public Module {
 public:
  explicit PixelShuffle(std::int64_t factor) : factor_(factor) {}
  Var forward(const Var& x) override { return pixel_shuffle(x, factor_); }

 private:
  std::int64_t factor_;
};

// pixel_unshuffle(), the inverse of pixel_shuffle() for f >= 1: [n, c, h f, w f] to [n, c f^2, h,
// w].
class PixelUnshuffle final : public Module {
 public:
  explicit PixelUnshuffle(std::int64_t factor) : factor_(factor) {}
  Var forward(const Var& x) override { return pixel_unshuffle(x, factor_); }

 private:
  std::int64_t factor_;
};

}  // namespace sotto::nn
