#include "nn/data/tokenizer/added_tokens.h"

#include <algorithm>
#include <set>

#include "core/io/utf8.h"
#include "nn/data/tokenizer/characters.h"

namespace sotto {

namespace {

// A character beside which a single word cannot stand: \w of the original.
const Pattern& word_character() {
  static const Pattern pattern =
      Pattern::of_pcre2("[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}]");
  return pattern;
}

// The last character of a text that is not empty.
std::string_view last_character(std::string_view text) {
  constexpr unsigned continuation = 0x80, continuation_mask = 0xc0;
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & continuation_mask) == continuation) --at;
  return text.substr(at);
}

bool stands_alone(std::string_view before, std::string_view behind) {
  return (before.empty() || !word_character().begins(last_character(before))) &&
         (behind.empty() || !word_character().begins(behind));
}

// Bytes of white space at the end.
std::size_t space_before(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    const std::string_view last = last_character(text.substr(0, end));
    if (!is_white_space(utf8_character(last, 0).code)) break;
    end -= last.size();
  }
  return text.size() - end;
}

// Bytes of white space at the beginning.
std::size_t space_behind(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Character c = utf8_character(text, at);
    if (!is_white_space(c.code)) break;
    at += c.bytes;
  }
  return at;
}

}  // namespace

std::vector<AddedToken> read_added_tokens(const Field& list, const Vocabulary& model) {
  std::vector<AddedToken> y;
  std::set<std::string> known;
  std::int64_t next = model.count();
  for (const Field& field : list.list()) {
    field.only({"id", "content", "special", "single_word", "lstrip", "rstrip", "normalized"});
    const bool special = field.flag("special", false);
    AddedToken token{.content = field["content"].text(),
                     .id = field["id"].number(),
                     .special = special,
                     .single_word = field.flag("single_word", false),
                     .lstrip = field.flag("lstrip", false),
                     .rstrip = field.flag("rstrip", false),
                     .normalized = field.flag("normalized", !special)};
    if (token.content.empty()) continue;
    const std::int64_t in_model = model.id(token.content);
    const std::int64_t id = in_model == Vocabulary::none ? next : in_model;
    field.expect(
        id == token.id, "{} has id {} where {} is {}", excerpt(token.content), token.id, id,
        in_model == Vocabulary::none ? "the next after the vocabulary" : "that of the vocabulary");
    const std::string* other = model.token(id);
    field.expect(other == nullptr || *other == token.content, "{} and {} both have id {}",
                 excerpt(token.content), other == nullptr ? "" : excerpt(*other), id);
    field.expect(known.insert(token.content).second, "{} occurs twice", excerpt(token.content));
    next = std::max(next, id + 1);
    y.push_back(std::move(token));
  }
  return y;
}

TokenSearch::TokenSearch(std::vector<Entry> entries) {
  for (Entry& entry : entries) {
    if (entry.text.empty()) continue;
    by_first_byte_[static_cast<unsigned char>(entry.text[0])].push_back(std::move(entry));
  }
  for (auto& bucket : by_first_byte_) {
    std::stable_sort(bucket.begin(), bucket.end(),
                     [](const Entry& a, const Entry& b) { return a.text.size() > b.text.size(); });
  }
}

const TokenSearch::Entry* TokenSearch::longest_at(std::string_view text, std::size_t at) const {
  for (const Entry& entry : by_first_byte_[static_cast<unsigned char>(text[at])]) {
    if (text.substr(at).starts_with(entry.text)) return &entry;
  }
  return nullptr;
}

std::vector<TextSegment> TokenSearch::segments(std::string_view text) const {
  std::vector<TextSegment> y;
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Entry* entry = longest_at(text, at);
    if (entry == nullptr) {
      ++at;
      continue;
    }
    TextRange range{at, at + entry->text.size()};
    at = range.end;
    const AddedToken& token = entry->token;
    if (token.single_word && !stands_alone(text.substr(0, range.begin), text.substr(range.end)))
      continue;
    // Not across `done`, so that each space is looked at once.
    if (token.lstrip) {
      range.begin = std::max(range.begin, done);
      range.begin -= space_before(text.substr(done, range.begin - done));
    }
    if (token.rstrip) {
      range.end = std::max(range.end, done);
      range.end += space_behind(text.substr(range.end));
    }
    if (done < range.begin) y.push_back({{done, range.begin}});
    y.push_back({range, token.id});
    done = range.end;
  }
  if (done != text.size()) y.push_back({{done, text.size()}});
  return y;
}

}  // namespace sotto
