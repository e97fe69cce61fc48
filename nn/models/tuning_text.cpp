// Tunings as the programs spell them.
#include <charconv>
#include <limits>
#include <utility>

#include "nn/models/path_pattern.h"
#include "nn/models/tuning.h"

namespace sotto::nn {

namespace {

using Kind = Tuning::Kind;

constexpr std::pair<const char*, Kind> kinds[] = {{"all", Kind::all},       {"head", Kind::head},
                                                  {"bitfit", Kind::bitfit}, {"norms", Kind::norms},
                                                  {"last", Kind::last},     {"lora", Kind::lora}};

std::vector<std::string> words_of(const std::string& text) {
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

// "name=value" or "name:value", or a name with an empty value.
std::pair<std::string, std::string> divided(const std::string& word, char by) {
  const std::size_t at = word.find(by);
  if (at == std::string::npos) return {word, ""};
  return {word.substr(0, at), word.substr(at + 1)};
}

template <class Number>
Number number(const std::string& word, const std::string& text) {
  Number y{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), y);
  check(error == std::errc() && end == text.data() + text.size() && y >= 0 &&
            y <= std::numeric_limits<Number>::max(),
        "tuning: {}: \"{}\" is not a number", word, text);
  return y;
}

std::int64_t count(const std::string& word, const std::string& text) {
  const auto y = number<std::int64_t>(word, text);
  check(y >= 1, "tuning: {}: {} is less than 1", word, y);
  return y;
}

Tuning of_kind(const std::string& word) {
  const auto [name, value] = divided(word, ':');
  Tuning tuning;
  bool known = false;
  for (const auto& [text, kind] : kinds) {
    if (name != text) continue;
    tuning.kind = kind;
    known = true;
  }
  check(known, "tuning: no kind is called \"{}\"; there are {}", word, tuning_texts);
  if (tuning.kind == Kind::last) tuning.blocks = count(word, value);
  if (tuning.kind == Kind::lora) {
    tuning.lora.rank = count(word, value);
    tuning.lora.alpha = 2 * static_cast<double>(tuning.lora.rank);
  }
  const bool counted = tuning.kind == Kind::last || tuning.kind == Kind::lora;
  check(counted || name == word, "tuning: {} takes no number: \"{}\"", name, word);
  return tuning;
}

void add_option(Tuning& tuning, const std::string& word) {
  const auto [name, value] = divided(word, '=');
  if (word == "embeddings=frozen") {
    tuning.train_embeddings = false;
    return;
  }
  const bool in_blocks = tuning.kind == Kind::bitfit || tuning.kind == Kind::norms;
  if (word.starts_with("last:") && (in_blocks || tuning.kind == Kind::lora)) {
    tuning.blocks = count("last", divided(word, ':').second);
    return;
  }
  check(tuning.kind == Kind::lora, "tuning: \"{}\" is no option here; there are {}", word,
        tuning_texts);
  if (name == "alpha") {
    tuning.lora.alpha = number<double>(word, value);
  } else if (name == "dropout") {
    tuning.lora.dropout = number<double>(word, value);
    check(tuning.lora.dropout < 1, "tuning: {}: not below 1", word);
  } else if (word == "rslora") {
    tuning.lora.rank_stabilized = true;
  } else if (name == "targets" && !value.empty()) {
    static_cast<void>(PathPattern(value));
    tuning.targets = value;
  } else {
    fail(fmt::format("tuning: \"{}\" is no option of lora; there are {}", word, tuning_texts));
  }
}

}  // namespace

Tuning parse_tuning(const std::string& text) {
  const std::vector<std::string> words = words_of(text);
  Tuning tuning = of_kind(words[0]);
  for (std::size_t i = 1; i < words.size(); ++i) add_option(tuning, words[i]);
  return tuning;
}

}  // namespace sotto::nn
