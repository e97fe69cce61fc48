#include "nn/data/tokenizer/pattern_syntax.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

#include "core/error.h"
#include "core/io/utf8.h"

namespace sotto {

namespace {

// \w of Oniguruma; that of PCRE2 differs from version to version.
constexpr std::string_view word = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
// Outside of sets it counts the fractions and powers of Latin-1, too.
constexpr std::string_view lone_word =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
constexpr std::string_view hexadecimal = "0-9a-fA-F";

// Oniguruma's names of sets, in lower case, as [:alpha:] and \p{Alpha}.
const std::map<std::string_view, std::string_view> named_sets{
    {"alpha", "\\p{Alphabetic}"},  {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"digit", "\\p{Nd}"},          {"lower", "\\p{Lowercase}"},
    {"upper", "\\p{Uppercase}"},   {"punct", "\\p{P}\\p{S}"},
    {"space", "\\p{White_Space}"}, {"xdigit", hexadecimal},
    {"cntrl", "\\p{Cc}"},          {"word", word}};
// Properties whose names are no scripts'.
const std::set<std::string_view> binary_properties{
    "Any", "Alphabetic", "Lowercase", "Uppercase", "White_Space", "Emoji", "Ideographic"};

class Translation {
 public:
  explicit Translation(std::string_view expression) : in_(expression) {}

  std::string run() {
    while (at_ < in_.size()) {
      if (in_[at_] == '\\') {
        escape();
      } else if (in_set_) {
        in_set();
      } else {
        outside();
      }
    }
    return out_;
  }

 private:
  bool next_is(std::string_view text) const { return in_.substr(at_).starts_with(text); }
  void copy(std::size_t bytes) {
    out_ += in_.substr(at_, bytes);
    at_ += bytes;
  }
  void refuse(bool refused, std::string_view what) const {
    check(!refused, "pattern {}: {} at byte {} is not supported", excerpt(in_), what, at_);
  }
  // A set of characters, which stands alone or within another; the complement only alone.
  void set(std::string_view members, bool complement) {
    refuse(in_set_ && complement, in_.substr(at_, 2));
    in_set_ ? out_ += members : out_ += fmt::format("[{}{}]", complement ? "^" : "", members);
  }
  void boundary(bool inverse) {
    const std::string_view ahead = inverse ? "=" : "!", other = inverse ? "!" : "=";
    out_ += fmt::format("(?:(?<=[{0}])(?{1}[{0}])|(?<![{0}])(?{2}[{0}]))", lone_word, ahead, other);
    at_ += 2;
  }
  void escape() {
    const char c = at_ + 1 < in_.size() ? in_[at_ + 1] : '\0';
    switch (c) {
      case 's': at_ += 2, out_ += "\\p{White_Space}"; break;
      case 'S': at_ += 2, out_ += "\\P{White_Space}"; break;
      case 'w':
      case 'W': set(in_set_ ? word : lone_word, c == 'W'), at_ += 2; break;
      case 'h':
      case 'H': set(hexadecimal, c == 'H'), at_ += 2; break;
      case 'p':
      case 'P': property(c == 'P'); break;
      case 'b':
      case 'B': in_set_ ? copy(2) : boundary(c == 'B'); break;
      default:
        // Either \Q, \E, \C and \N of PCRE2, or what the two read differently.
        refuse(std::string_view("QECNvVRXgkyYuUoK").find(c) != std::string_view::npos && c != '\0',
               in_.substr(at_, 2));
        copy(2);
    }
  }
  // \p{Name} of a category, a script or one of the named sets; PCRE2 would take the name of a
  // script for Script_Extensions.
  void property(bool complement) {
    const std::size_t end = in_.find('}', at_);
    refuse(!in_.substr(at_ + 2).starts_with("{") || end == in_.npos, in_.substr(at_, 2));
    const std::size_t begin = at_ + 3;
    std::string_view name = in_.substr(begin, end - begin);
    if (name.starts_with("^")) {
      complement = !complement;
      name.remove_prefix(1);
    }
    std::string lower(name);
    for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (const auto named = named_sets.find(lower); named != named_sets.end()) {
      set(named->second, complement);
    } else {
      constexpr std::size_t category = 2;  // letters
      const bool script = name.size() > category && !binary_properties.contains(name);
      out_ += fmt::format("\\{}{{{}{}}}", complement ? 'P' : 'p', script ? "sc:" : "", name);
    }
    at_ = end + 1;
  }
  void in_set() {
    refuse(next_is("&&"), "an intersection of sets");
    refuse(next_is("[") && !next_is("[:"), "a set within a set");
    if (next_is("[:")) {
      const std::size_t end = std::min(in_.find(":]", at_), in_.size());
      const auto named = named_sets.find(in_.substr(at_ + 2, end - at_ - 2));
      refuse(named == named_sets.end(), in_.substr(at_, end + 2 - at_));
      out_ += named->second;
      at_ = end + 2;
      return;
    }
    in_set_ = !next_is("]");
    copy(1);
  }
  void outside() {
    if (next_is("[")) {
      in_set_ = true;
      copy(at_ + 1 < in_.size() && in_[at_ + 1] == '^' ? 2 : 1);
      refuse(next_is("]"), "an empty set");
    } else if (next_is("(?")) {
      group();
    } else if (next_is("{")) {
      quantifier();
    } else {
      copy(1);
    }
  }
  // Ruby's option m lets a point match line ends, as PCRE2's s does.
  void group() {
    copy(2);
    std::size_t end = at_;
    while (end < in_.size() && std::string_view("imx-").find(in_[end]) != std::string_view::npos)
      ++end;
    const bool options = end < in_.size() && (in_[end] == ':' || in_[end] == ')');
    refuse(!options && end < in_.size() && std::isalpha(static_cast<unsigned char>(in_[end])) &&
               in_[end] != 'P',
           "a group's option");
    // Ruby's (?i) reaches over the alternatives behind it, as PCRE2's does at the beginning alone.
    refuse(options && in_[end] == ')' && at_ != 2, "an option in the middle");
    for (; options && at_ < end; ++at_) out_ += in_[at_] == 'm' ? 's' : in_[at_];
  }
  // In Ruby's syntax {n,m}+ is not possessive, {n}? is not reluctant, and {,m} is {0,m}.
  void quantifier() {
    const std::size_t end = in_.find('}', at_);
    const std::string_view inner = in_.substr(at_ + 1, end == in_.npos ? 0 : end - at_ - 1);
    const bool counts = inner.find_first_not_of("0123456789,") == inner.npos && !inner.empty();
    refuse(counts && in_.substr(end + 1).starts_with("+"), "{n,m}+");
    refuse(counts && (inner.starts_with(",") ||
                      (inner.find(',') == inner.npos && in_.substr(end + 1).starts_with("?"))),
           "{,m} or {n}?");
    copy(counts ? end + 1 - at_ : 1);
  }

  std::string_view in_;
  std::size_t at_ = 0;
  bool in_set_ = false;
  std::string out_;
};

}  // namespace

std::string pcre2_syntax(std::string_view expression) { return Translation(expression).run(); }

}  // namespace sotto
