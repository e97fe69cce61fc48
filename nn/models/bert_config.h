// The parts that the configs of BERT, DistilBERT and RoBERTa have in common.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "nn/models/architecture.h"
#include "nn/models/bert_encoder.h"

namespace sotto::nn {

// The lines of a names table (nn/models/names.h) that BERT and RoBERTa share.
extern const char* const bert_body_names;

// True if `architectures` or the options ask for a classifier.
bool asks_for_classifier(const nlohmann::json& config, const PretrainedOptions& options);
// Gives the head its classes and PretrainedOptions::pooling. Throws std::invalid_argument for an
// unknown pooling.
void set_head(BertEncoderOptions& encoder, const nlohmann::json& config,
              const PretrainedOptions& options);
// The body of BERT and RoBERTa, which differ in defaults.
struct BertDefaults {
  const char* name = "BERT";
  std::int64_t vocabulary = 30522, token_types = 2, padding = 0;
  double norm_eps = 1e-12;
};
BertEncoderOptions bert_body(const nlohmann::json& config, const BertDefaults& defaults);
// classifier_dropout, or hidden_dropout_prob where it is absent.
double classifier_dropout(const nlohmann::json& config);

}  // namespace sotto::nn
