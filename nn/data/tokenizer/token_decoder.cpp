#include "nn/data/tokenizer/token_decoder.h"

#include <charconv>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "core/io/utf8.h"
#include "nn/data/tokenizer/byte_characters.h"
#include "nn/data/tokenizer/characters.h"
#include "nn/data/tokenizer/normalizer.h"
#include "nn/data/tokenizer/pre_tokenizer.h"

namespace sotto {

namespace {

using Texts = std::vector<std::string>;

std::string joined(const Texts& texts) {
  return std::accumulate(
      texts.begin(), texts.end(), std::string(),
      [](std::string y, const std::string& text) { return std::move(y) + text; });
}

// A decoder that changes each token by itself; `change` knows whether it is the first, the last.
Decoder for_each_token(std::function<std::string(const std::string&, bool, bool)> change) {
  return [change = std::move(change)](Texts tokens) {
    std::size_t bytes = 0, made = 0;
    for (std::size_t k = 0; k < tokens.size(); ++k) {
      bytes += tokens[k].size();
      tokens[k] = change(tokens[k], k == 0, k + 1 == tokens.size());
      check_growth(bytes, made += tokens[k].size());
    }
    return tokens;
  };
}

Texts decode_bytes(const Texts& tokens) {
  std::string bytes;
  for (const std::string& token : tokens) bytes += bytes_of_characters(token).value_or(token);
  return {replace_invalid(bytes)};
}

// Spaces that BERT's decoder takes back, in its order.
std::string tidy(std::string text) {
  static const std::vector<std::pair<std::string, std::string>> changes{
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : changes) text = replaced(text, from, to);
  return text;
}

Decoder make_word_piece(const Field& field) {
  field.only({"prefix", "cleanup"});
  return for_each_token(
      [prefix = field.text_or("prefix", "##"), clean = field.flag("cleanup", true)](
          const std::string& token, bool first, bool) {
        std::string y = first                       ? token
                        : token.starts_with(prefix) ? token.substr(prefix.size())
                                                    : " " + token;
        return clean ? tidy(std::move(y)) : y;
      });
}

Decoder make_metaspace(const Field& field) {
  field.only({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  return for_each_token([mark = metaspace_mark(field), prefixed = prepend_scheme(field) != "never"](
                            const std::string& token, bool first, bool) {
    return replaced(token, mark, first && prefixed ? "" : " ");
  });
}

Decoder make_bpe(const Field& field) {
  field.only({"suffix"});
  const std::string suffix = field.text_or("suffix", "</w>");
  field.expect(!suffix.empty(), "the suffix is empty");
  return for_each_token([suffix](const std::string& token, bool, bool last) {
    return replaced(token, suffix, last ? "" : " ");
  });
}

// The byte of a token <0x41>.
std::optional<char> byte_of(const std::string& token) {
  unsigned byte = 0;
  constexpr int base = 16;
  constexpr std::size_t size = 6, begin = 3, end = 5;
  if (token.size() != size || !token.starts_with("<0x") || !token.ends_with('>')) return {};
  const auto [rest, error] = std::from_chars(token.data() + begin, token.data() + end, byte, base);
  if (error != std::errc() || rest != token.data() + end) return {};
  return static_cast<char>(byte);
}

// Tokens of bytes become characters, or U+FFFD each if they are not UTF-8 together.
Texts fall_back(const Texts& tokens) {
  Texts y;
  std::string bytes;
  const auto flush = [&] {
    if (valid_utf8(bytes)) {
      if (!bytes.empty()) y.push_back(bytes);
    } else {
      y.insert(y.end(), bytes.size(), "\uFFFD");
    }
    bytes.clear();
  };
  for (const std::string& token : tokens) {
    if (const auto byte = byte_of(token)) {
      bytes += *byte;
    } else {
      flush();
      y.push_back(token);
    }
  }
  flush();
  return y;
}

Decoder make_strip(const Field& field) {
  field.only({"content", "start", "stop"});
  const std::string content = field["content"].text();
  field.expect(is_one_character(content), "the content {} is not one character", excerpt(content));
  return for_each_token([content, start = field.number_or("start", 0),
                         stop = field.number_or("stop", 0)](const std::string& token, bool, bool) {
    std::string_view y = token;
    for (std::int64_t k = 0; k < start && y.starts_with(content); ++k)
      y.remove_prefix(content.size());
    for (std::int64_t k = 0; k < stop && y.ends_with(content); ++k) y.remove_suffix(content.size());
    return std::string(y);
  });
}

Decoder make_step(const Field& field) {
  using Make = Decoder (*)(const Field&);
  static const std::map<std::string, Make> kinds{
      {"ByteLevel", [](const Field&) -> Decoder { return decode_bytes; }},
      {"WordPiece", make_word_piece},
      {"Metaspace", make_metaspace},
      {"BPEDecoder", make_bpe},
      {"ByteFallback", [](const Field&) -> Decoder { return fall_back; }},
      {"Fuse",
       [](const Field&) -> Decoder {
         return [](const Texts& tokens) { return Texts{joined(tokens)}; };
       }},
      {"Strip", make_strip},
      {"Replace", [](const Field& replace) {
         return for_each_token([change = make_replace(replace)](const std::string& token, bool,
                                                                bool) { return change(token); });
       }}};
  const std::string type = field["type"].text();
  const auto kind = kinds.find(type);
  field.expect(kind != kinds.end(), "the decoder {} is not supported", excerpt(type));
  return kind->second(field);
}

// The steps of a sequence, and of those in it.
void add_steps(const Field& field, std::vector<Decoder>& steps) {
  if (field["type"].text() != "Sequence") return steps.push_back(make_step(field));
  field.only({"decoders"});
  for (const Field& step : field["decoders"].list()) add_steps(step, steps);
}

std::size_t bytes_of(const Texts& texts) {
  return std::accumulate(
      texts.begin(), texts.end(), std::size_t{0},
      [](std::size_t bytes, const std::string& text) { return bytes + text.size(); });
}

}  // namespace

Decoder make_decoder(const Field& field) {
  std::vector<Decoder> steps;
  add_steps(field, steps);
  return [steps = std::move(steps)](Texts tokens) {
    const std::size_t bytes = bytes_of(tokens);
    for (const Decoder& step : steps) {
      tokens = step(std::move(tokens));
      check_growth(bytes, bytes_of(tokens));
    }
    return tokens;
  };
}

}  // namespace sotto
