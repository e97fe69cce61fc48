#include "nn/data/tokenizer/tokenizer.h"

#include <algorithm>

#include "core/io/utf8.h"
#include "nn/data/tokenizer/tokenizer_parts.h"

namespace sotto {

namespace {

using Ids = std::vector<std::int64_t>;

void check_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bytes = character_bytes(text.substr(at));
    check(bytes > 0, "tokenizer: byte 0x{:02x} at offset {} is not UTF-8",
          static_cast<unsigned char>(text[at]), at);
    at += bytes;
  }
}

Piece piece_of(const Piece& whole, TextRange range) {
  return {whole.text.substr(range.begin, range.end - range.begin), whole.first && range.begin == 0};
}

void encode_words(const TokenizerParts& parts, const Piece& piece, Ids& ids) {
  if (!parts.pre_tokenizer) return parts.model->encode(piece.text, ids);
  for (const Piece& word : parts.pre_tokenizer(piece)) {
    if (!word.text.empty()) parts.model->encode(word.text, ids);
  }
}

// True if the normalizer keeps the first character of a text, which begins at its beginning then.
bool keeps_first(const Normalizer& normalizer, const std::string& text) {
  const std::string behind = "x";
  return normalizer(text.substr(0, character_bytes(text)) + behind) != normalizer(behind);
}

// The pieces between the tokens that are searched in the text as it is.
void encode_between(const TokenizerParts& parts, Piece piece, Ids& ids) {
  if (parts.normalizer) {
    piece.first = piece.first && keeps_first(parts.normalizer, piece.text);
    piece.text = parts.normalizer(std::move(piece.text));
  }
  for (const TextSegment& segment : parts.in_normalized.segments(piece.text)) {
    if (segment.id != Vocabulary::none) {
      ids.push_back(segment.id);
    } else {
      encode_words(parts, piece_of(piece, segment.range), ids);
    }
  }
}

// Without special tokens around it.
Ids encode_plain(const TokenizerParts& parts, std::string_view text) {
  check_utf8(text);
  Ids ids;
  const Piece whole{std::string(text)};
  for (const TextSegment& segment : parts.in_text.segments(text)) {
    if (segment.id != Vocabulary::none) {
      ids.push_back(segment.id);
    } else {
      encode_between(parts, piece_of(whole, segment.range), ids);
    }
  }
  return ids;
}

// Cuts the longer of the two until they fit together; equal ones to halves, the second the larger.
void truncate(Ids& text, Ids& pair, std::int64_t max) {
  Ids& shorter = text.size() > pair.size() ? pair : text;
  Ids& longer = text.size() > pair.size() ? text : pair;
  if (std::ssize(shorter) + std::ssize(longer) <= max) return;
  const std::int64_t first = std::min<std::int64_t>(std::ssize(shorter), max / 2);
  shorter.resize(static_cast<std::size_t>(first));
  longer.resize(static_cast<std::size_t>(max - first));
}

}  // namespace

Encoding Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  Ids first = encode_plain(*parts_, text);
  Ids second = options.pair ? encode_plain(*parts_, *options.pair) : Ids();
  const bool paired = options.pair.has_value();
  if (options.max_tokens) {
    const std::int64_t special = options.special_tokens ? parts_->special.special_count(paired) : 0;
    check(*options.max_tokens >= special, "tokenizer: {} special tokens, max_tokens is {}", special,
          *options.max_tokens);
    truncate(first, second, *options.max_tokens - special);
  }
  Encoding y;
  for (const TemplatePart& part : paired ? parts_->special.pair : parts_->special.single) {
    using Kind = TemplatePart::Kind;
    if (part.kind == Kind::special && !options.special_tokens) continue;
    const Ids& ids = part.kind == Kind::special ? part.ids
                     : part.kind == Kind::text  ? first
                                                : second;
    y.ids.insert(y.ids.end(), ids.begin(), ids.end());
    y.token_types.resize(y.ids.size(), part.type);
  }
  return y;
}

std::string Tokenizer::decode(std::span<const std::int64_t> ids,
                              const DecodeOptions& options) const {
  std::vector<std::string> tokens;
  for (const std::int64_t id : ids) {
    const auto normalized = parts_->decoded.find(id);
    const std::optional<std::string> text =
        normalized == parts_->decoded.end() ? token(id) : normalized->second;
    if (text && !(options.skip_special_tokens && parts_->is_special(*text)))
      tokens.push_back(*text);
  }
  if (parts_->decoder) tokens = parts_->decoder(std::move(tokens));
  return fmt::format("{}", fmt::join(tokens, parts_->decoder ? "" : " "));
}

TokenRows Tokenizer::encode_batch(std::span<const std::string> texts,
                                  const BatchOptions& options) const {
  check(options.pairs.empty() || options.pairs.size() == texts.size(),
        "tokenizer: {} texts and {} pairs", texts.size(), options.pairs.size());
  check(!options.pad_to_max || options.max_tokens, "tokenizer: pad_to_max without max_tokens");
  std::vector<Encoding> rows;
  std::int64_t width = options.pad_to_max ? *options.max_tokens : 0;
  for (std::size_t k = 0; k < texts.size(); ++k) {
    EncodeOptions one{.special_tokens = options.special_tokens, .max_tokens = options.max_tokens};
    if (!options.pairs.empty()) one.pair = options.pairs[k];
    try {
      rows.push_back(encode(texts[k], one));
    } catch (const std::invalid_argument& error) {
      fail(fmt::format("{} (text {})", error.what(), k));
    }
    width = std::max<std::int64_t>(width, std::ssize(rows.back().ids));
  }
  const std::int64_t padding = special_tokens().padding.value_or(0);
  Ids ids, mask, types;
  for (const Encoding& row : rows) {
    const auto gap = static_cast<std::size_t>(width - std::ssize(row.ids));
    const auto append = [&](Ids& to, const Ids& values, std::int64_t filler) {
      if (options.pad_left) to.insert(to.end(), gap, filler);
      to.insert(to.end(), values.begin(), values.end());
      if (!options.pad_left) to.insert(to.end(), gap, filler);
    };
    append(ids, row.ids, padding);
    append(mask, Ids(row.ids.size(), 1), 0);
    append(types, row.token_types, 0);
  }
  const Shape shape{std::ssize(texts), width};
  return {Tensor::from(ids, shape), Tensor::from(mask, shape), Tensor::from(types, shape)};
}

std::optional<std::string> Tokenizer::token(std::int64_t id) const {
  const std::string* token = parts_->added.token(id);
  if (token == nullptr) token = parts_->vocabulary.token(id);
  return token == nullptr ? std::nullopt : std::optional(*token);
}

std::optional<std::int64_t> Tokenizer::id(std::string_view token) const {
  std::int64_t id = parts_->added.id(token);
  if (id == Vocabulary::none) id = parts_->vocabulary.id(token);
  return id == Vocabulary::none ? std::nullopt : std::optional(id);
}

std::int64_t Tokenizer::size() const {
  return std::max(parts_->vocabulary.end(), parts_->added.end());
}

const SpecialTokens& Tokenizer::special_tokens() const { return parts_->roles; }

}  // namespace sotto
