// File tags: [sanitized]
#include "nn/data/tokenizer/pattern.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

#include "core/error.h"
#include "nn/data/tokenizer/split.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

using Texts = std::vector<std::string>;

Texts found(const std::string& expression, const std::string& text) {
  Texts y;
  for (const TextRange& match : Pattern(expression, "test").matches(text))
    y.push_back(text.substr(match.begin, match.end - match.begin));
  return y;
}

Texts cut(const std::string& text, const Split& how) {
  Texts y;
  for (const Piece& piece : split({text}, how)) y.push_back((piece.first ? "^" : "") + piece.text);
  return y;
}

}  // namespace

TEST_CASE("classes of characters are Oniguruma's") {
  CHECK(found("\\s", "a\u0085\u180e\u00a0\u2028b") == Texts{"\u0085", "\u00a0", "\u2028"});
  CHECK(found("[^\\S\\n]", " \n\t") == Texts{" ", "\t"});
  CHECK(found("\\w+", "e\u0301_\u203f1\u00b2+") == Texts{"e\u0301_\u203f1\u00b2"});
  CHECK(found("[^\\w]+", "e\u00b2+") == Texts{"\u00b2+"});
  CHECK(found("\\p{Han}", "\u65e5\u3001") == Texts{"\u65e5"});
  CHECK(found("[[:punct:]]", "$a\u00a7") == Texts{"$", "\u00a7"});
  CHECK(found("\\W", "a-b") == Texts{"-"});
  CHECK(found("\\h+", "xfF09g") == Texts{"fF09"});
  CHECK(found("\\bt\\B", "t to at\u0301t") == Texts{"t"});
  CHECK(found("(?m:.)", "\n").size() == 1);
  CHECK(found("^b$", "a\nb\nc") == Texts{"b"});
  CHECK(found("[[:alpha:]\\]]+", "a]b-") == Texts{"a]b"});
}

TEST_CASE("empty matches do not follow a match at its end") {
  CHECK(found("a*", "aab") == Texts{"aa", ""});
  CHECK(found("(?=b)", "\u00e9bb") == Texts{"", ""});
}

TEST_CASE("a construct with another meaning in PCRE2 is refused by its name") {
  const auto refused = [](const char* expression, const char* part) {
    return throws([&] { Pattern(expression, "file.json: pattern"); }, part) &&
           throws([&] { Pattern(expression, "file.json: pattern"); }, "file.json: pattern");
  };
  CHECK(refused("[a&&b]", "an intersection of sets"));
  CHECK(refused("[a[b]]", "a set within a set"));
  CHECK(refused("[\\W]", "\\W"));
  CHECK(refused("a{1,3}+", "{n,m}+"));
  CHECK(refused("a{,3}", "{,m}"));
  CHECK(refused("b(?i)a", "an option in the middle"));
  CHECK(refused("(a", "parenthesis"));
  CHECK(refused("\\p{Nothing}", "unknown property"));
  CHECK(refused("\\", "\\"));
}

TEST_CASE("a text that needs more steps than PCRE2 allows is an error") {
  CHECK(throws<SystemFailure>([] { found("(a+a+)+b", std::string(40, 'a') + "cb"); }, "(a+a+)+b"));
}

TEST_CASE("a match is removed, stands alone or joins a neighbour") {
  const Finder dash = find_literal("-");
  CHECK(cut("a--b-", {dash, SplitBehavior::removed}) == Texts{"^a", "b"});
  CHECK(cut("a--b-", {dash, SplitBehavior::isolated}) == Texts{"^a", "-", "-", "b", "-"});
  CHECK(cut("a--b-", {dash, SplitBehavior::merged_with_previous}) == Texts{"^a-", "-", "b-"});
  CHECK(cut("-a--b", {dash, SplitBehavior::merged_with_next}) == Texts{"^-a", "-", "-b"});
  CHECK(cut("a--b-", {dash, SplitBehavior::contiguous}) == Texts{"^a", "--", "b", "-"});
  CHECK(cut("a--b-", {dash, SplitBehavior::removed, true}) == Texts{"-", "-", "-"});
}
