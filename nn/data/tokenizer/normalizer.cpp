#include "nn/data/tokenizer/normalizer.h"

#include <map>
#include <utility>
#include <vector>

#include "core/io/utf8.h"
#include "nn/data/tokenizer/byte_characters.h"
#include "nn/data/tokenizer/characters.h"

namespace sotto {

namespace {

// BERT's own: cleaning, spaces around ideographs, accents, lower case.
Normalizer make_bert(const Field& field) {
  field.only({"clean_text", "handle_chinese_chars", "strip_accents", "lowercase"});
  const bool clean = field.flag("clean_text", true);
  const bool chinese = field.flag("handle_chinese_chars", true);
  const bool lower = field.flag("lowercase", true);
  const bool strip = field.flag("strip_accents", lower);
  return [=](std::string text) {
    if (clean) text = cleaned(text);
    if (chinese) text = chinese_spaced(text);
    if (strip) text = without(normal_form(text, NormalForm::nfd), is_nonspacing_mark);
    return lower ? lower_case(text) : text;
  };
}

Normalizer make_form(NormalForm form) {
  return [form](const std::string& text) { return normal_form(text, form); };
}

Normalizer make_strip(const Field& field) {
  field.only({"strip_left", "strip_right"});
  return [left = field.flag("strip_left", true), right = field.flag("strip_right", true)](
             const std::string& text) { return std::string(stripped(text, left, right)); };
}

Normalizer make_prepend(const Field& field) {
  field.only({"prepend"});
  return [prefix = field["prepend"].text()](const std::string& text) {
    return text.empty() ? text : prefix + text;
  };
}

}  // namespace

Finder find_by(const Field& pattern) {
  pattern.only({"String", "Regex"});
  if (const auto regex = pattern.find("Regex"))
    return find_pattern(Pattern(regex->text(), regex->where()));
  const std::string literal = pattern["String"].text();
  pattern.expect(!literal.empty(), "the text to find is empty");
  return find_literal(literal);
}

Normalizer make_replace(const Field& field) {
  field.only({"pattern", "content"});
  return [find = find_by(field["pattern"]),
          content = field["content"].text()](const std::string& text) {
    std::string y;
    std::size_t at = 0;
    for (const TextRange& match : find(text)) {
      y.append(text, at, match.begin - at).append(content);
      check_growth(text.size(), y.size());
      at = match.end;
    }
    return y.append(text, at);
  };
}

namespace {

Normalizer make_step(const Field& field) {
  using Make = Normalizer (*)(const Field&);
  static const std::map<std::string, Make> kinds{
      {"BertNormalizer", make_bert},
      {"Lowercase", [](const Field&) -> Normalizer { return lower_case; }},
      {"NFC", [](const Field&) { return make_form(NormalForm::nfc); }},
      {"NFD", [](const Field&) { return make_form(NormalForm::nfd); }},
      {"NFKC", [](const Field&) { return make_form(NormalForm::nfkc); }},
      {"NFKD", [](const Field&) { return make_form(NormalForm::nfkd); }},
      {"StripAccents",
       [](const Field&) -> Normalizer {
         return [](const std::string& text) { return without(text, is_mark); };
       }},
      {"Strip", make_strip},
      {"Prepend", make_prepend},
      {"Replace", make_replace},
      {"ByteLevel", [](const Field&) -> Normalizer { return byte_characters; }}};
  const std::string type = field["type"].text();
  const auto kind = kinds.find(type);
  field.expect(kind != kinds.end(), "the normalizer {} is not supported", excerpt(type));
  return kind->second(field);
}

// The steps of a sequence, and of those in it.
void add_steps(const Field& field, std::vector<Normalizer>& steps) {
  if (field["type"].text() != "Sequence") return steps.push_back(make_step(field));
  field.only({"normalizers"});
  for (const Field& step : field["normalizers"].list()) add_steps(step, steps);
}

}  // namespace

Normalizer make_normalizer(const Field& field) {
  std::vector<Normalizer> steps;
  add_steps(field, steps);
  return [steps = std::move(steps)](std::string text) {
    const std::size_t bytes = text.size();
    for (const Normalizer& step : steps) {
      text = step(std::move(text));
      check_growth(bytes, text.size());
    }
    return text;
  };
}

}  // namespace sotto
