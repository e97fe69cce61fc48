#include "nn/models/bert_config.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "nn/models/config.h"
#include "nn/models/model_blocks.h"

namespace sotto::nn {

const char* const bert_body_names = R"(# the body of both
known   embeddings.word_embeddings.weight
old     LayerNorm.gamma  LayerNorm.weight
old     LayerNorm.beta   LayerNorm.bias
embeddings.word_embeddings.weight                      =
embeddings.position_embeddings.weight                  =
embeddings.token_type_embeddings.weight                =
embeddings.LayerNorm.{weight,bias}                     =
embeddings.position_ids                                -  ignored  # 0, 1, ... of older versions
embeddings.token_type_ids                              -  ignored  # zeros of older versions
encoder.layer.*.attention.self.query.{weight,bias}     =
encoder.layer.*.attention.self.key.{weight,bias}       =
encoder.layer.*.attention.self.value.{weight,bias}     =
encoder.layer.*.attention.output.dense.{weight,bias}   =
encoder.layer.*.attention.output.LayerNorm.{weight,bias}  =
encoder.layer.*.intermediate.dense.{weight,bias}       =
encoder.layer.*.output.dense.{weight,bias}             =
encoder.layer.*.output.LayerNorm.{weight,bias}         =
pooler.dense.{weight,bias}                             =  new
pooler_query                                           =  head  # of pooling by attention
)";

namespace {

constexpr double dropout_rate = 0.1;  // transformers' default

}  // namespace

bool asks_for_classifier(const nlohmann::json& config, const PretrainedOptions& options) {
  if (options.classes > 0) return true;
  const auto names = config.find("architectures");
  if (names == config.end() || !names->is_array() || names->empty()) return false;
  const nlohmann::json& first = names->front();
  return first.is_string() && first.get<std::string>().ends_with("ForSequenceClassification");
}

void set_head(BertEncoderOptions& encoder, const nlohmann::json& config,
              const PretrainedOptions& options) {
  const std::string& pooling = options.pooling;
  check(pooling.empty() || pooling == "mean" || pooling == "attention",
        "{}: pooling {} is neither \"mean\" nor \"attention\"", encoder.name, pooling);
  encoder.head.pooling = pooling.empty()     ? Pooling::first
                         : pooling == "mean" ? Pooling::mean
                                             : Pooling::attention;
  encoder.head.classes = ConfigFields(config).classes();
}

BertEncoderOptions bert_body(const nlohmann::json& config, const BertDefaults& defaults) {
  const ConfigFields fields(config);
  fields.require("position_embedding_type", "absolute");
  fields.require("is_decoder", false);
  fields.require("add_cross_attention", false);
  fields.require("pruned_heads", nlohmann::json::object());
  const double dropout = fields.rate("hidden_dropout_prob", dropout_rate);
  return {.name = defaults.name,
          .vocabulary = fields.size("vocab_size", defaults.vocabulary),
          .positions = fields.size("max_position_embeddings", 512),
          .token_types = fields.size("type_vocab_size", defaults.token_types),
          .padding = fields.index("pad_token_id").value_or(defaults.padding),
          .embedding_dropout = dropout,
          .blocks = "encoder.layer",
          .block_count = fields.size("num_hidden_layers", 12),
          .block = {.features = fields.size("hidden_size", 768),
                    .heads = fields.size("num_attention_heads", 12),
                    .hidden_features = fields.size("intermediate_size", 3072),
                    .names = {.query = "attention.self.query",
                              .key = "attention.self.key",
                              .value = "attention.self.value",
                              .projection = "attention.output.dense",
                              .attention_norm = "attention.output.LayerNorm",
                              .fc1 = "intermediate.dense",
                              .fc2 = "output.dense",
                              .feed_forward_norm = "output.LayerNorm"},
                    .activation = activation_of(fields.text("hidden_act", "gelu"), "hidden_act"),
                    .norm_eps = fields.positive("layer_norm_eps", defaults.norm_eps),
                    .attention_dropout = fields.rate("attention_probs_dropout_prob", dropout_rate),
                    .projection_dropout = dropout,
                    .feed_forward_dropout = dropout}};
}

double classifier_dropout(const nlohmann::json& config) {
  const ConfigFields fields(config);
  return fields.rate("classifier_dropout", fields.rate("hidden_dropout_prob", dropout_rate));
}

}  // namespace sotto::nn
