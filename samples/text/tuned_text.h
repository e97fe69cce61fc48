// A published model that is tuned on text: all that makes it, and its inputs of texts, again.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "nn/data/text/token_dataset.h"
#include "nn/models/language_model.h"
#include "samples/pretrained/start.h"

namespace sotto::text {

struct TunedText {
  samples::Start start = {};
  std::string tokenizer = {};  // its folder or file; empty: where the weights are
  std::string pooling = {};    // of a classifier (nn::PretrainedOptions)
  std::int64_t blocks = 0;     // the first so many alone; 0: all
  double dropout = 0;          // in place of the model's own rates
  std::string unit = "row";   // of privacy: "row" or "user" of a table; "line", "paragraph", "file"
  TextColumns columns = {};   // of tables
  std::int64_t context = 64;  // tokens of a row
  std::string long_texts = "cut";         // or "split"
  std::vector<std::string> classes = {};  // public names, by number; none of a language model

  const std::string& tokenizer_path() const;
  TokenRowOptions row_options() const;
};

// The texts of a path: a table, a file, or a folder of classes. Throws SystemFailure as the
// readers.
TextRecords read_records(const TunedText& text, const std::string& path);

nlohmann::json to_json(const TunedText& text);
TunedText tuned_text_from_json(const nlohmann::json& object);

// A tuned model with its tokenizer.
struct TunedModel {
  TunedText text;
  Tokenizer tokenizer;
  samples::StartedModel started;

  nn::TokenModel& network() const { return started.pretrained.tokens(); }
  // Null for a classifier.
  nn::LanguageModel* writer() const;
  // The model's rows of texts.
  Dataset rows(const TextRecords& records) const;
};
// A model whose head is new. Throws std::invalid_argument and SystemFailure as load_pretrained()
// and load_tokenizer() do.
TunedModel make_tuned(const TunedText& text);
// The key of a model file's metadata under which its TunedText is.
inline constexpr const char* tuned_key = "sotto.text.tuned";
// True for a model file of a tuned model.
bool is_tuned(const std::string& path);
// A saved model. Throws SystemFailure for another file.
TunedModel load_tuned(const std::string& path);

// The block that begins what is trained of a classifier, if its frozen part can be computed once:
// 0 where nothing is frozen below, and where dropout changes the values.
std::int64_t frozen_blocks(const TunedModel& model);
// Replaces ids by the values in front of block `frozen` (TokenValues), unless it is 0 or the values
// of so many rows take more than 4 GiB. How many rows there are can be private, so that
// forward_tokens() has the same bits either way.
void keep_values(nn::TokenModel& network, std::int64_t frozen, Dataset& rows);

// The model's result for rows that TunedModel::rows() made. With `frozen` blocks it is computed
// from the values in front of that block: the rows' inputs, or made of these.
Var forward_tokens(nn::TokenModel& network, Tape& tape, const Dataset& rows,
                   std::int64_t frozen = 0);
// The numbers that results are computed from: the logarithms of the classes' probabilities [n,
// classes]; of a language model the sum of the negative logarithms of each row's tokens, and their
// number [n, 2].
Var tuned_outputs(nn::TokenModel& network, Tape& tape, const Dataset& rows,
                  std::int64_t frozen = 0);
// The mean over all tokens of a language model's outputs.
double nats_per_token(const Tensor& outputs);

}  // namespace sotto::text
