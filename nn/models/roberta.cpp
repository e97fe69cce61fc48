#include "autograd/ops/elementwise.h"
#include "nn/models/bert_config.h"

namespace sotto::nn {

namespace {

constexpr char heads[] = R"(# RoBERTa as transformers writes it
prefix  roberta.
classifier.dense.{weight,bias}                         =  outside new
classifier.out_proj.{weight,bias}                      =  head
lm_head.**     -  outside other-task  # masked words
qa_outputs.**  -  outside other-task  # question answering
)";

std::unique_ptr<PretrainedModel> make(const nlohmann::json& config,
                                      const PretrainedOptions& options) {
  BertEncoderOptions encoder = bert_body(
      config,
      {.name = "RoBERTa", .vocabulary = 50265, .token_types = 1, .padding = 1, .norm_eps = 1e-5});
  encoder.positions_after_padding = true;
  encoder.head.dense = "pooler.dense";
  encoder.head.activation = [](Var x) { return tanh(std::move(x)); };
  set_head(encoder, config, options);
  if (asks_for_classifier(config, options)) {
    encoder.head.dense = "classifier.dense";
    encoder.head.out = "classifier.out_proj";
    encoder.head.dense_dropout = encoder.head.out_dropout = classifier_dropout(config);
  }
  return std::make_unique<BertEncoder>(encoder);
}

}  // namespace

Architecture roberta_architecture() {
  return {.names = {"roberta", "Roberta**"},
          .tables = {std::string(heads) + bert_body_names},
          .make = make};
}

}  // namespace sotto::nn
