// Layers without parameters that arrange values: softmax over an axis, padding, pixel shuffling.
#pragma once

#include "autograd/ops/indexing.h"
#include "autograd/ops/reductions.h"
#include "autograd/ops/shape_ops.h"
#include "nn/module.h"

namespace sotto::nn {

class Softmax final : public Module {
 public:
  explicit Softmax(int axis = -1) : axis_(axis) {}
  Var forward(const Var& x) override { return softmax(x, axis_); }

 private:
  int axis_;
};

class LogSoftmax final : public Module {
 public:
  explicit LogSoftmax(int axis = -1) : axis_(axis) {}
  Var forward(const Var& x) override { return log_softmax(x, axis_); }

 private:
  int axis_;
};

// Pads the last axes: `sizes` are those before and after the last axis, then the axis before it,
// and so on. Throws std::invalid_argument for an odd number of sizes.
class Pad final : public Module {
 public:
  explicit Pad(const Shape& sizes, PadMode mode = PadMode::zeros);
  Var forward(const Var& x) override;

 private:
  Shape sizes_;
  PadMode mode_;
};

class PixelShuffle final : public Module {
 public:
  explicit PixelShuffle(std::int64_t factor) : factor_(factor) {}
  Var forward(const Var& x) override { return pixel_shuffle(x, factor_); }

 private:
  std::int64_t factor_;
};

class PixelUnshuffle final : public Module {
 public:
  explicit PixelUnshuffle(std::int64_t factor) : factor_(factor) {}
  Var forward(const Var& x) override { return pixel_unshuffle(x, factor_); }

 private:
  std::int64_t factor_;
};

}  // namespace sotto::nn
