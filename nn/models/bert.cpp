#include "autograd/ops/elementwise.h"
#include "nn/models/bert_config.h"

namespace sotto::nn {

namespace {

constexpr char heads[] = R"(# BERT as transformers writes it
prefix  bert.
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
  return {
      .names = {"bert", "Bert**"}, .tables = {std::string(heads) + bert_body_names}, .make = make};
}

}  // namespace sotto::nn
