// Texts as rows of a tokenizer's ids, with the units of privacy that they belong to.
#pragma once

#include <cstdint>
#include <vector>

#include "nn/data/dataset.h"
#include "nn/data/text/text_records.h"
#include "nn/data/tokenizer/tokenizer.h"

namespace sotto {

struct TokenRowOptions {
  std::int64_t context = 128;           // tokens of a row, special ones included
  LongUnit long_texts = LongUnit::cut;  // those with more tokens
};

// Rows for a classifier: inputs are ids [n, context] i64, the field "mask" [n, context] is 1 at a
// token and 0 at padding, "token_types" [n, context] tells a prompt (0) from the text behind it
// (1), and targets [n] are the labels, or 0. Every row has the public length `context`, whatever
// the texts are. A text that is split becomes several rows of one unit. Throws
// std::invalid_argument where the tokenizer does.
Dataset classifier_rows(const Tokenizer& tokenizer, const TextRecords& records,
                        const TokenRowOptions& options = {});

// Rows for a language model: a prompt with the end of its line, the text, and the token that ends
// texts, if there is one. Targets [n, context] are the ids themselves beside the inputs
// (next_token_loss), and -100 at padding and within prompts.
Dataset language_rows(const Tokenizer& tokenizer, const TextRecords& records,
                      const TokenRowOptions& options = {});

// The number of columns to which rows with `tokens` tokens are cut, at most `context`: a multiple
// of 8, and of a quarter of the power of two below.
std::int64_t cut_length(std::int64_t tokens, std::int64_t context);

// The cut_length() of each unit's longest row, for EngineOptions::bucket_of_unit. Rows are those
// above; units are in the order of Dataset::rows_of_units().
std::vector<std::int64_t> unit_lengths(const Dataset& rows);

// These rows without the columns behind the longest row's cut_length(): of the inputs, of the
// fields, and of targets that have as many columns as the mask. A row's columns so depend on the
// others: private training computes rows of one bucket together.
Dataset cut_to_length(const Dataset& rows);

// The ids of a prompt as language_rows() begins a row with it.
std::vector<std::int64_t> prompt_tokens(const Tokenizer& tokenizer, const std::string& prompt);

}  // namespace sotto
