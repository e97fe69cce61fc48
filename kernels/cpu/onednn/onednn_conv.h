// oneDNN's convolutions on one thread, cached by shape. Each thread of parallel_for computes its
// own samples in chunks of few sizes, so that a batch of another size needs no new primitive.
#pragma once

#include <cstdint>
#include <memory>

#include <oneapi/dnnl/dnnl.hpp>

#include "core/tensor.h"
#include "kernels/cpu/conv/conv_images.h"

namespace sotto {

enum class Pass { forward, data, weight };

// The algorithm of a convolution: direct sums, or Winograd tiles of 4 x 4 results with a quarter of
// the multiplications (Lavin and Gray 2016, "Fast algorithms for convolutional neural networks"),
// whose rounding errors are up to twice as large.
enum class Algorithm { direct, winograd };

struct ConvPrimitive {
  Pass pass;
  dnnl::memory::desc x, y, bias;
  // Set if the primitive has its own order of images: reorders from channels-last, and y back in
  // forward passes.
  dnnl::memory::desc own_x, own_y;
  dnnl::primitive order_x, order_y;
  dnnl::memory::desc plain;    // weights [o, c, kernel], row-major
  dnnl::memory::desc weights;  // in the primitive's order
  dnnl::memory::desc scratchpad;
  dnnl::primitive primitive;
  dnnl::primitive reorder;  // from plain weights; in the weight pass, to plain weights
  bool brgemm = false;      // uses oneDNN's batch-reduce products
};

// The primitive of a convolution of g.samples samples, with images and weights in f32 or, except in
// the weight pass, bf16. Winograd needs f32 and has no data pass. nullptr if oneDNN has no fast
// primitive.
std::shared_ptr<const ConvPrimitive> conv_primitive(Pass pass, const Geometry& g, bool bias,
                                                    Dtype dtype = Dtype::f32,
                                                    Algorithm algorithm = Algorithm::direct);

const dnnl::engine& onednn_engine();
// True if the processor has bf16 multiplication (AVX-512 or AMX). It flushes subnormal numbers to
// zero, which norms of gradients must not.
bool has_bf16_instructions();

// Runs a primitive repeatedly on the calling thread.
class ConvRun {
 public:
  explicit ConvRun(const ConvPrimitive& p);
  ~ConvRun();
  // x and y are channels-last, `weights` in the primitive's order; bias may be nullptr.
  void operator()(void* x, void* y, void* weights, const float* bias);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Reorders row-major weights for the primitive; in the weight pass the reverse.
class Reorder {
 public:
  explicit Reorder(const ConvPrimitive& p);
  ~Reorder();
  void operator()(void* from, void* to);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sotto
