// oneDNN's convolutions for one thread, kept by shape. The threads are ours: each works on samples
// of its own, in pieces of few sizes, so that a batch of another size needs no new primitive.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>

#include <oneapi/dnnl/dnnl.hpp>

#include "core/tensor.h"
#include "kernels/cpu/conv/images.h"

namespace sotto {

enum class Pass { forward, data, weight };

// How products are taken: as they are, or of tiles of 4 x 4 results with a quarter of the
// multiplications (Winograd; Lavin and Gray 2016, "Fast algorithms for convolutional neural
// networks"), whose results differ from the sums that they stand for by up to two times as much.
enum class Algorithm { direct, winograd };

struct ConvPrimitive {
  Pass pass;
  dnnl::memory::desc x, y, bias;
  // Where it wants images in an order of its own: from channels-last, and y back forwards.
  dnnl::memory::desc own_x, own_y;
  dnnl::primitive order_x, order_y;
  dnnl::memory::desc plain;    // weights [o, c, kernel], row-major
  dnnl::memory::desc weights;  // in the order that the primitive wants
  dnnl::memory::desc scratchpad;
  dnnl::primitive primitive;
  dnnl::primitive reorder;  // from plain weights; to plain in the weight pass
  bool brgemm = false;      // by oneDNN's batch-reduce products
};

// A convolution of g.samples samples, of images and weights in f32 or, but for the weight pass,
// bf16; by tiles in f32, and not in the data pass. nullptr when oneDNN has none that is worth
// having.
std::shared_ptr<const ConvPrimitive> conv_primitive(Pass pass, const Geometry& g, bool bias,
                                                    Dtype dtype = Dtype::f32,
                                                    Algorithm algorithm = Algorithm::direct);

const dnnl::engine& onednn_engine();
// Whether the processor multiplies bf16 itself (AVX-512 or AMX). It takes subnormal numbers for
// zeros, which norms of gradients must not.
bool has_bf16_instructions();

// Runs a primitive on the calling thread, again and again.
class ConvRun {
 public:
  explicit ConvRun(const ConvPrimitive& p);
  // Channels-last x and y, `weights` in the primitive's order; bias may be nullptr.
  void operator()(void* x, void* y, void* weights, const float* bias);

 private:
  const ConvPrimitive& p_;
  dnnl::stream stream_;
  Storage scratch_, own_;
  dnnl::memory x_, y_, weights_, bias_, own_x_, own_y_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

// From row-major weights to the primitive's order; in the weight pass the other way.
class Reorder {
 public:
  explicit Reorder(const ConvPrimitive& p);
  void operator()(void* from, void* to);

 private:
  const ConvPrimitive& p_;
  dnnl::stream stream_;
  dnnl::memory from_, to_;
  std::unordered_map<int, dnnl::memory> arguments_;
};

}  // namespace sotto
