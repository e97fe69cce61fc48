#include "nn/layers/attention_layers.h"
#include "tests/conformance/vocabulary.h"

namespace sotto::conformance {

namespace {

Var sdpa(const Call& call) {
  AttentionOptions options{.causal = call.arg<bool>("is_causal")};
  if (!call.arg<Json>("scale").is_null()) options.scale = call.arg<double>("scale");
  std::vector<Var> masks;
  if (const auto mask = call.maybe("mask")) masks.push_back(*mask);
  return attention(call["q"], call["k"], call["v"], masks, options);
}

Var multihead(const Call& call) {
  const nn::AttentionWeights weights{
      call.maybe("in_proj_weight"), call.maybe("q_proj_weight"),   call.maybe("k_proj_weight"),
      call.maybe("v_proj_weight"),  call.maybe("in_proj_bias"),    call.maybe("bias_k"),
      call.maybe("bias_v"),         call.maybe("out_proj.weight"), call.maybe("out_proj.bias")};
  const nn::MultiheadOptions options{.heads = call.arg<std::int64_t>("num_heads"),
                                     .add_zero_attn = call.arg<bool>("add_zero_attn")};
  const nn::AttentionMasks masks{call.maybe("key_padding_mask"), call.maybe("attn_mask"),
                                 call.arg<bool>("is_causal")};
  const bool batch_first = call.arg<bool>("batch_first");
  const auto first = [&](const char* operand) {
    return batch_first ? call[operand] : transpose(call[operand], 0, 1);
  };
  const Var y = nn::multihead_attention(first("query"), first("key"), first("value"), weights,
                                        options, masks);
  return batch_first ? y : transpose(y, 0, 1);
}

}  // namespace

void add_attention(Vocabulary& vocabulary) {
  vocabulary["sdpa"] = single(sdpa);
  vocabulary["MultiheadAttention"] = single(multihead);
}

}  // namespace sotto::conformance
