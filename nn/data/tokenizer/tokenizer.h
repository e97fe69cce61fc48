// Tokenizers of pretrained models: texts become ids, and ids texts.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace sotto {

// How a text is encoded.
struct EncodeOptions {
  bool special_tokens = true;                   // those that the model's publisher puts around it
  std::optional<std::string_view> pair = {};    // a second text
  std::optional<std::int64_t> max_tokens = {};  // the longer text is cut at its end
};

// An encoded text, or a pair.
struct Encoding {
  std::vector<std::int64_t> ids = {};          // of its tokens
  std::vector<std::int64_t> token_types = {};  // of each token, such as 0, and 1 for the pair
};

// How ids are decoded.
struct DecodeOptions {
  bool skip_special_tokens = true;  // leaves out added tokens that are special
};

// Ids of tokens with a role; nullopt where the files name none.
struct SpecialTokens {
  std::optional<std::int64_t> begin = {};     // bos_token
  std::optional<std::int64_t> end = {};       // eos_token
  std::optional<std::int64_t> unknown = {};   // unk_token
  std::optional<std::int64_t> padding = {};   // pad_token
  std::optional<std::int64_t> classify = {};  // cls_token
  std::optional<std::int64_t> separate = {};  // sep_token
  std::optional<std::int64_t> mask = {};      // mask_token
};

// How texts become rows.
struct BatchOptions {
  std::span<const std::string> pairs = {};      // a second text for each; empty: none
  bool special_tokens = true;                   // as in EncodeOptions
  std::optional<std::int64_t> max_tokens = {};  // of a row
  bool pad_to_max = false;                      // rows have max_tokens, not as many as the longest
  bool pad_left = false;                        // padding lies before the tokens
};

// Rows of tokens, i64 [n, t] on the CPU.
struct TokenRows {
  Tensor ids;          // padded with SpecialTokens::padding, or 0
  Tensor mask;         // 1 a token, 0 padding
  Tensor token_types;  // 0 for padding
};

struct TokenizerParts;

// A tokenizer, which does not change: copies share it, threads may use it at once. The files'
// settings of truncation and padding are left out, since they are of the moment.
class Tokenizer {
 public:
  explicit Tokenizer(std::shared_ptr<const TokenizerParts> parts) : parts_(std::move(parts)) {}

  // The ids of a text. Added tokens in the text become their ids. Throws std::invalid_argument,
  // with the offset, for bytes that are not UTF-8, for a character without a token where the
  // vocabulary lacks the unknown token too, and for max_tokens below the number of special tokens.
  Encoding encode(std::string_view text, const EncodeOptions& options = {}) const;
  // The text of ids. Ids without a token are left out, as by the original.
  std::string decode(std::span<const std::int64_t> ids, const DecodeOptions& options = {}) const;
  // Rows of one length. Throws as encode(), with the number of the text.
  TokenRows encode_batch(std::span<const std::string> texts,
                         const BatchOptions& options = {}) const;

  // The token of an id; nullopt if there is none.
  std::optional<std::string> token(std::int64_t id) const;
  // The id of a token; nullopt if there is none.
  std::optional<std::int64_t> id(std::string_view token) const;
  // The largest id plus 1: the number of rows of an embedding.
  std::int64_t size() const;
  // Ids of tokens with a role.
  const SpecialTokens& special_tokens() const;

 private:
  std::shared_ptr<const TokenizerParts> parts_;
};

// Reads tokenizer.json; vocab.json with merges.txt beside it (byte-level BPE of GPT-2 and RoBERTa);
// vocab.txt (BERT's WordPiece); a GGUF file; or a folder with the first of these that it has. The
// roles of tokens, and the options of vocab.json and vocab.txt, come from tokenizer_config.json and
// special_tokens_map.json beside the file. Throws SystemFailure if a file cannot be read;
// std::invalid_argument, with the file and the field, for one that violates its format, and for a
// part that is not supported, such as the model Unigram.
Tokenizer load_tokenizer(const std::string& path);

// Writes the tokenizer that load_tokenizer(path) reads to an existing folder, of which
// load_tokenizer() and transformers read it again: its files as they are, and of a GGUF file
// tokenizer.json and tokenizer_config.json. Throws as load_tokenizer() for GGUF files, and
// SystemFailure if a file cannot be read or written.
void save_tokenizer(const std::string& path, const std::string& folder);

}  // namespace sotto
