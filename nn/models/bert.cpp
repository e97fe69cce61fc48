#include "autograd/ops/elementwise.h"
#include "nn/models/bert_config.h"

namespace sotto::nn {

namespace {

constexpr char names[] = R"(# BERT as transformers writes it
known   embeddings.word_embeddings.weight
prefix  bert.
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
classifier.{weight,bias}                               =  head
cls.**         -  outside other-task  # pretraining: masked words, next sentence
qa_outputs.**  -  outside other-task  # question answering
)";

std::unique_ptr<PretrainedModel> make(const nlohmann::json& config,
                                      const PretrainedOptions& options) {
  BertEncoderOptions encoder = bert_body(config, {});
  encoder.head.dense = "pooler.dense";
  encoder.head.activation = [](Var x) { return tanh(std::move(x)); };
  encoder.head.first_only = true;
  set_head(encoder, config, options);
  if (asks_for_classifier(config, options)) {
    encoder.head.out = "classifier";
    encoder.head.out_dropout = classifier_dropout(config);
  }
  return std::make_unique<BertEncoder>(encoder);
}

}  // namespace

Architecture bert_architecture() {
  return {.names = {"bert", "Bert**"}, .tables = {names}, .make = make};
}

}  // namespace sotto::nn
