// Files of tokenizers as documents like tokenizer.json.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace sotto {

// A document like tokenizer.json, and who it is from.
struct TokenizerDocument {
  nlohmann::json document;
  nlohmann::json roles;  // the token of "bos_token", "eos_token", ...
};

// Reads a JSON object, with `path` in messages.
nlohmann::json read_tokenizer_json(const std::string& path);

// Roles of tokenizer_config.json with special_tokens_map.json, merged to one object.
nlohmann::json roles_in(const nlohmann::json& config);

// GGUF's metadata (tokenizer.ggml.*). Throws std::invalid_argument, with path and key, for a model
// or a pattern (tokenizer.ggml.pre) that is not supported.
TokenizerDocument gguf_tokenizer(const nlohmann::json& metadata, const std::string& path);
// Byte-level BPE of GPT-2, or of RoBERTa where the config's tokenizer_class says so.
TokenizerDocument bpe_files(const std::string& vocabulary, const std::string& merges,
                            const nlohmann::json& config);
// BERT's WordPiece; the id of a token is its line's number from 0.
TokenizerDocument word_piece_file(const std::string& vocabulary, const nlohmann::json& config);

}  // namespace sotto
