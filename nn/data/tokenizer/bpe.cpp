#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <queue>
#include <unordered_map>
#include <utility>

#include "core/io/utf8.h"
#include "nn/data/tokenizer/characters.h"
#include "nn/data/tokenizer/word_model.h"

namespace sotto {

namespace {

constexpr int byte_count = 256;
constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

// The join of a pair.
struct Joined {
  std::uint32_t rank = 0;  // smaller joins first
  std::int64_t id = 0;
};
using Joins = std::unordered_map<std::uint64_t, Joined>;

std::uint64_t pair_key(std::int64_t left, std::int64_t right) {
  constexpr int id_bits = 32;
  return (static_cast<std::uint64_t>(left) << id_bits) | static_cast<std::uint64_t>(right);
}

// The tokens of a word while they are joined: a list linked in both directions.
class Word {
 public:
  Word(const Joins& joins, const std::vector<std::int64_t>& ids) : joins_(joins) {
    symbols_.reserve(ids.size());
    for (std::size_t k = 0; k < ids.size(); ++k)
      symbols_.push_back({ids[k], k == 0 ? none : k - 1, k + 1 < ids.size() ? k + 1 : none, false});
    for (std::size_t k = 0; k + 1 < symbols_.size(); ++k) propose(k);
  }

  void join_all() {
    while (!queue_.empty()) {
      const Proposal proposal = queue_.top();
      queue_.pop();
      const Symbol& left = symbols_[proposal.at];
      if (left.gone || left.next == none) continue;
      // Out of date if the pair there has become another. A pair of other tokens with the same
      // join keeps its place, as in the original.
      const auto found = joins_.find(pair_key(left.id, symbols_[left.next].id));
      if (found != joins_.end() && found->second.id == proposal.id) join(proposal.at, proposal.id);
    }
  }

  void append_to(std::vector<std::int64_t>& ids) const {
    for (const Symbol& symbol : symbols_) {
      if (!symbol.gone) ids.push_back(symbol.id);
    }
  }

 private:
  struct Symbol {
    std::int64_t id;
    std::size_t previous, next;
    bool gone;
  };
  struct Proposal {
    std::uint32_t rank;
    std::size_t at;
    std::int64_t id;
    // The smallest rank is on top, the leftmost of equals.
    bool operator<(const Proposal& other) const {
      return rank != other.rank ? rank > other.rank : at > other.at;
    }
  };

  void propose(std::size_t at) {
    const Symbol& left = symbols_[at];
    const auto found = joins_.find(pair_key(left.id, symbols_[left.next].id));
    if (found != joins_.end()) queue_.push({found->second.rank, at, found->second.id});
  }
  void join(std::size_t at, std::int64_t id) {
    Symbol& left = symbols_[at];
    Symbol& right = symbols_[left.next];
    left.id = id;
    right.gone = true;
    left.next = right.next;
    if (left.next != none) {
      symbols_[left.next].previous = at;
      propose(at);
    }
    if (left.previous != none) propose(left.previous);
  }

  const Joins& joins_;
  std::vector<Symbol> symbols_;
  std::priority_queue<Proposal> queue_;
};

class Bpe final : public WordModel {
 public:
  Bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges, BpeOptions options,
      const std::string& where)
      : vocabulary_(vocabulary), options_(std::move(options)) {
    unknown_ = vocabulary_.id(options_.unknown);
    for (int byte = 0; byte < byte_count; ++byte)
      bytes_[static_cast<std::size_t>(byte)] = vocabulary_.id(fmt::format("<0x{:02X}>", byte));
    joins_.reserve(merges.size());
    for (std::size_t k = 0; k < merges.size(); ++k) add(merges[k], k, where);
  }

  void encode(std::string_view word, std::vector<std::int64_t>& ids) const override {
    if (options_.ignore_merges) {
      if (const std::int64_t id = vocabulary_.id(word); id != Vocabulary::none) {
        ids.push_back(id);
        return;
      }
    }
    Word joined(joins_, characters(word));
    joined.join_all();
    joined.append_to(ids);
  }

 private:
  void add(const Merge& merge, std::size_t rank, const std::string& where) {
    const auto id = [&](const std::string& token) {
      const std::int64_t found = vocabulary_.id(token);
      check(found != Vocabulary::none, "{}.merges[{}]: {} is not in the vocabulary", where, rank,
            excerpt(token));
      return found;
    };
    const std::int64_t left = id(merge.left), right = id(merge.right);
    check(merge.right.size() >= options_.prefix.size(), "{}.merges[{}]: {} is shorter than {}",
          where, rank, excerpt(merge.right), excerpt(options_.prefix));
    const std::int64_t together = id(merge.left + merge.right.substr(options_.prefix.size()));
    joins_[pair_key(left, right)] = {static_cast<std::uint32_t>(rank), together};
  }

  // The ids of the word's characters.
  std::vector<std::int64_t> characters(std::string_view word) const {
    std::vector<std::int64_t> ids;
    ids.reserve(word.size());
    // An unknown token waits for the next one that is known, or unknown if they are not fused;
    // bytes go ahead of it, as in the original.
    std::size_t pending = 0;
    std::size_t at = 0;
    for_each_character(word, [&](char32_t, std::string_view bytes) {
      const std::int64_t id = character(bytes, at == 0, at + bytes.size() == word.size());
      at += bytes.size();
      if (id != Vocabulary::none) {
        ids.insert(ids.end(), std::exchange(pending, 0), unknown_);
        ids.push_back(id);
      } else if (!fall_back(bytes, at == bytes.size(), at == word.size(), ids)) {
        if (!options_.fuse_unknown) ids.insert(ids.end(), pending, unknown_);
        pending = count_unknown(bytes);
      }
    });
    ids.insert(ids.end(), pending, unknown_);
    return ids;
  }

  std::int64_t character(std::string_view bytes, bool first, bool last) const {
    const bool prefixed = !first && !options_.prefix.empty();
    const bool suffixed = last && !options_.suffix.empty();
    if (!prefixed && !suffixed) return vocabulary_.id(bytes);
    return vocabulary_.id(affixed(bytes, first, last));
  }
  std::string affixed(std::string_view bytes, bool first, bool last) const {
    std::string y = first ? "" : options_.prefix;
    return y.append(bytes).append(last ? options_.suffix : "");
  }

  // Appends the tokens of a character's bytes, if all have one.
  bool fall_back(std::string_view bytes, bool first, bool last,
                 std::vector<std::int64_t>& ids) const {
    if (!options_.byte_fallback) return false;
    const std::size_t before = ids.size();
    for (const char byte : affixed(bytes, first, last))
      ids.push_back(bytes_[static_cast<unsigned char>(byte)]);
    const bool all = std::find(ids.begin() + static_cast<std::ptrdiff_t>(before), ids.end(),
                               Vocabulary::none) == ids.end();
    if (!all) ids.resize(before);
    return all;
  }

  std::size_t count_unknown(std::string_view bytes) const {
    if (options_.unknown.empty()) return 0;
    check(unknown_ != Vocabulary::none,
          "tokenizer: {} has no token, and the vocabulary no unknown token {}", excerpt(bytes),
          excerpt(options_.unknown));
    return 1;
  }

  const Vocabulary& vocabulary_;
  BpeOptions options_;
  std::int64_t unknown_ = Vocabulary::none;
  std::array<std::int64_t, byte_count> bytes_ = {};  // tokens of bytes
  Joins joins_;
};

}  // namespace

std::unique_ptr<WordModel> make_bpe(const Vocabulary& vocabulary, const std::vector<Merge>& merges,
                                    const BpeOptions& options, const std::string& where) {
  return std::make_unique<Bpe>(vocabulary, merges, options, where);
}

}  // namespace sotto
