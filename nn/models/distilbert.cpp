#include <nlohmann/json.hpp>

#include "autograd/ops/elementwise.h"
#include "nn/models/bert_config.h"
#include "nn/models/config.h"
#include "nn/models/model_blocks.h"

namespace sotto::nn {

namespace {

constexpr char names[] = R"(# DistilBERT as transformers writes it
known   embeddings.word_embeddings.weight
prefix  distilbert.
old     LayerNorm.gamma  LayerNorm.weight
old     LayerNorm.beta   LayerNorm.bias
embeddings.word_embeddings.weight                      =
embeddings.position_embeddings.weight                  =
embeddings.LayerNorm.{weight,bias}                     =
embeddings.position_ids                                -  ignored  # 0, 1, ... of older versions
transformer.layer.*.attention.q_lin.{weight,bias}      =
transformer.layer.*.attention.k_lin.{weight,bias}      =
transformer.layer.*.attention.v_lin.{weight,bias}      =
transformer.layer.*.attention.out_lin.{weight,bias}    =
transformer.layer.*.sa_layer_norm.{weight,bias}        =
transformer.layer.*.ffn.lin1.{weight,bias}             =
transformer.layer.*.ffn.lin2.{weight,bias}             =
transformer.layer.*.output_layer_norm.{weight,bias}    =
pooler_query                                           =  head  # of pooling by attention
pre_classifier.{weight,bias}                           =  outside new
classifier.{weight,bias}                               =  head
vocab_**       -  outside other-task  # masked words
qa_outputs.**  -  outside other-task  # question answering
)";

BertEncoderOptions body(const nlohmann::json& config) {
  const ConfigFields fields(config);
  fields.require("pruned_heads", nlohmann::json::object());
  const double dropout = fields.rate("dropout", 0.1);
  return {.name = "DistilBERT",
          .vocabulary = fields.size("vocab_size", 30522),
          .positions = fields.size("max_position_embeddings", 512),
          .padding = fields.index("pad_token_id").value_or(0),
          .embedding_dropout = dropout,
          .blocks = "transformer.layer",
          .block_count = fields.size("n_layers", 6),
          .block = {.features = fields.size("dim", 768),
                    .heads = fields.size("n_heads", 12),
                    .hidden_features = fields.size("hidden_dim", 3072),
                    .names = {.query = "attention.q_lin",
                              .key = "attention.k_lin",
                              .value = "attention.v_lin",
                              .projection = "attention.out_lin",
                              .attention_norm = "sa_layer_norm",
                              .fc1 = "ffn.lin1",
                              .fc2 = "ffn.lin2",
                              .feed_forward_norm = "output_layer_norm"},
                    .activation = activation_of(fields.text("activation", "gelu"), "activation"),
                    .norm_eps = 1e-12,  // of every DistilBERT: no field sets it
                    .attention_dropout = fields.rate("attention_dropout", 0.1),
                    .feed_forward_dropout = dropout}};
}

std::unique_ptr<PretrainedModel> make(const nlohmann::json& config,
                                      const PretrainedOptions& options) {
  BertEncoderOptions encoder = body(config);
  set_head(encoder, config, options);
  if (asks_for_classifier(config, options)) {
    encoder.head.dense = "pre_classifier";
    encoder.head.out = "classifier";
    encoder.head.activation = [](Var x) { return relu(std::move(x)); };
    encoder.head.out_dropout = ConfigFields(config).rate("seq_classif_dropout", 0.2);
  }
  return std::make_unique<BertEncoder>(encoder);
}

}  // namespace

Architecture distilbert_architecture() {
  return {.names = {"distilbert", "DistilBert**"}, .tables = {names}, .make = make};
}

}  // namespace sotto::nn
