// Pieces of decoders: attention to what comes before, with or without a cache.
#pragma once

#include <optional>
#include <vector>

#include "autograd/ops/sequence/attention.h"
#include "autograd/ops/sequence/rotary.h"
#include "nn/models/language_model.h"

namespace sotto::nn {

// All that the blocks of a call read besides the hidden values.
struct DecoderStep {
  std::vector<Var> masks = {};              // hidden_keys()
  std::optional<RotaryAngles> angles = {};  // of rotary positions
  KeyValueCache* cache = nullptr;           // none in training
  std::size_t layer = 0;                    // the number of the block
};

// Attention of queries [n, heads, t, e] to keys and values [n, kv_heads, t, e] at their own and
// earlier positions, and to those in the cache; kv_heads divides heads, and each key head serves
// neighbouring query heads. `options` says scale and dropout.
Var decoder_attention(const Var& q, const Var& k, const Var& v, const DecoderStep& step,
                      AttentionOptions options = {});

// A block of a decoder.
class DecoderBlock : public Module {
 public:
  virtual Var forward(const Var& x, const DecoderStep& step) = 0;
  Var forward(const Var& x) final { return forward(x, DecoderStep{}); }
  using Module::operator();
  // Calls forward() in the block's precision and reports the call to the ModuleHook.
  Var operator()(const Var& x, const DecoderStep& step);
};

// The positions of `inputs`: those given, else 0, 1, ... behind those in the cache. Throws
// std::invalid_argument for one outside 0 .. max_positions - 1 (0: any), naming both.
Var decoder_positions(const TokenInputs& inputs, const KeyValueCache* cache,
                      std::int64_t max_positions);

}  // namespace sotto::nn
