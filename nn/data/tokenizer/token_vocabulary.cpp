#include "nn/data/tokenizer/token_vocabulary.h"

#include <algorithm>

#include "core/io/utf8.h"

namespace sotto {

Vocabulary::Vocabulary(const Field& vocabulary) {
  vocabulary.expect(vocabulary.value().is_object(), "not an object");
  ids_.reserve(vocabulary.value().size());
  tokens_.reserve(vocabulary.value().size());
  for (const auto& [token, id] : vocabulary.value().items()) {
    const Field field(id, vocabulary.where() + "." + excerpt(token));
    add(token, field.number(), vocabulary.where());
  }
}

void Vocabulary::add(const std::string& token, std::int64_t id, const std::string& where) {
  const auto [place, added] = ids_.emplace(token, id);
  check(added, "{}: the token {} occurs twice", where, excerpt(token));
  const auto [other, fresh] = tokens_.emplace(id, &place->first);
  check(fresh, "{}: {} and {} both have id {}", where, excerpt(*other->second), excerpt(token), id);
  end_ = std::max(end_, id + 1);
  longest_ = std::max(longest_, token.size());
}

}  // namespace sotto
