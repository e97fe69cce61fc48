#include "nn/data/tokenizer/pre_tokenizer.h"

#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "core/io/utf8.h"
#include "nn/data/tokenizer/byte_characters.h"
#include "nn/data/tokenizer/characters.h"
#include "nn/data/tokenizer/normalizer.h"

namespace sotto {

namespace {

// GPT-2's words (Radford et al. 2019).
constexpr const char* gpt2_words =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
// \w+|[^\w\s]+ as the original's other engine reads it: joiners belong to words.
constexpr const char* words_and_symbols =
    "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}]+|"
    "[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}\\p{White_Space}]+";

PreTokenizer in_turn(std::vector<PreTokenizer> steps) {
  return [steps = std::move(steps)](const Piece& piece) {
    std::vector<Piece> pieces{piece};
    for (const PreTokenizer& step : steps) {
      std::vector<Piece> words;
      std::size_t bytes = 0;
      for (const Piece& whole : pieces) {
        std::vector<Piece> parts = step(whole);
        for (const Piece& part : parts) bytes += part.text.size();
        check_growth(piece.text.size(), bytes);
        std::move(parts.begin(), parts.end(), std::back_inserter(words));
      }
      pieces = std::move(words);
    }
    return pieces;
  };
}

PreTokenizer by(Split how) {
  return [how = std::move(how)](const Piece& piece) { return split(piece, how); };
}

SplitBehavior behavior_of(const Field& field) {
  static const std::map<std::string, SplitBehavior> names{
      {"Removed", SplitBehavior::removed},
      {"Isolated", SplitBehavior::isolated},
      {"MergedWithPrevious", SplitBehavior::merged_with_previous},
      {"MergedWithNext", SplitBehavior::merged_with_next},
      {"Contiguous", SplitBehavior::contiguous}};
  const std::string name = field.text_or("behavior", "Isolated");
  const auto found = names.find(name);
  field.expect(found != names.end(), "the behavior {} is not known", excerpt(name));
  return found->second;
}

PreTokenizer make_byte_level(const Field& field) {
  field.only({"add_prefix_space", "trim_offsets", "use_regex"});
  std::optional<Split> cut;
  if (field.flag("use_regex", true)) cut = Split{find_pattern(Pattern(gpt2_words, field.where()))};
  return [cut, prefix = field.flag("add_prefix_space", true)](const Piece& piece) {
    Piece whole = piece;
    if (prefix && !whole.text.starts_with(' ')) whole.text.insert(0, 1, ' ');
    std::vector<Piece> words = cut ? split(whole, *cut) : std::vector<Piece>{whole};
    for (Piece& word : words) word.text = byte_characters(word.text);
    return words;
  };
}

PreTokenizer make_split(const Field& field) {
  field.only({"pattern", "behavior", "invert"});
  return by({find_by(field["pattern"]), behavior_of(field), field.flag("invert", false)});
}

PreTokenizer make_delimiter(const Field& field) {
  field.only({"delimiter"});
  const std::string delimiter = field["delimiter"].text();
  field.expect(is_one_character(delimiter), "the delimiter {} is not one character",
               excerpt(delimiter));
  return by({find_literal(delimiter), SplitBehavior::removed});
}

PreTokenizer make_digits(const Field& field) {
  field.only({"individual_digits"});
  return by({find_characters(is_numeric), field.flag("individual_digits", false)
                                              ? SplitBehavior::isolated
                                              : SplitBehavior::contiguous});
}

PreTokenizer make_punctuation(const Field& field) {
  field.only({"behavior"});
  return by({find_characters(is_punctuation), behavior_of(field)});
}

PreTokenizer make_metaspace(const Field& field) {
  field.only({"replacement", "prepend_scheme", "split", "add_prefix_space", "str_rep"});
  const std::string mark = metaspace_mark(field), scheme = prepend_scheme(field);
  std::optional<Split> cut;
  if (field.flag("split", true)) cut = Split{find_literal(mark), SplitBehavior::merged_with_next};
  return [=](const Piece& piece) {
    Piece whole{replaced(piece.text, " ", mark), piece.first};
    const bool wanted = scheme == "always" || (scheme == "first" && piece.first);
    if (wanted && !whole.text.starts_with(mark)) whole.text.insert(0, mark);
    return cut ? split(whole, *cut) : std::vector<Piece>{whole};
  };
}

}  // namespace

std::string metaspace_mark(const Field& field) {
  const std::string mark = field.text_or("replacement", "\u2581");
  field.expect(is_one_character(mark), "the replacement {} is not one character", excerpt(mark));
  return mark;
}

std::string prepend_scheme(const Field& field) {
  const bool prefix = field.flag("add_prefix_space", true);
  const std::string scheme = field.text_or("prepend_scheme", prefix ? "always" : "never");
  field.expect(scheme == "always" || scheme == "first" || scheme == "never",
               "the prepend_scheme {} is not known", excerpt(scheme));
  field.expect(prefix || scheme == "never", "add_prefix_space is false and prepend_scheme {}",
               scheme);
  return scheme;
}

namespace {

PreTokenizer make_step(const Field& field) {
  using Make = PreTokenizer (*)(const Field&);
  static const std::map<std::string, Make> kinds{
      {"ByteLevel", make_byte_level},
      {"BertPreTokenizer",
       [](const Field&) {
         return in_turn({by({find_characters(is_white_space), SplitBehavior::removed}),
                         by({find_characters(is_punctuation)})});
       }},
      {"Whitespace",
       [](const Field&) {
         return by(
             {find_pattern(Pattern::of_pcre2(words_and_symbols)), SplitBehavior::removed, true});
       }},
      {"WhitespaceSplit",
       [](const Field&) {
         return by({find_characters(is_white_space), SplitBehavior::removed});
       }},
      {"Split", make_split},
      {"CharDelimiterSplit", make_delimiter},
      {"Digits", make_digits},
      {"Punctuation", make_punctuation},
      {"Metaspace", make_metaspace}};
  const std::string type = field["type"].text();
  const auto kind = kinds.find(type);
  field.expect(kind != kinds.end(), "the pre-tokenizer {} is not supported", excerpt(type));
  return kind->second(field);
}

// The steps of a sequence, and of those in it.
void add_steps(const Field& field, std::vector<PreTokenizer>& steps) {
  if (field["type"].text() != "Sequence") return steps.push_back(make_step(field));
  field.only({"pretokenizers"});
  for (const Field& step : field["pretokenizers"].list()) add_steps(step, steps);
}

}  // namespace

PreTokenizer make_pre_tokenizer(const Field& field) {
  std::vector<PreTokenizer> steps;
  add_steps(field, steps);
  return steps.size() == 1 ? steps[0] : in_turn(std::move(steps));
}

}  // namespace sotto
