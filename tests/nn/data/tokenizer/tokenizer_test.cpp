// File tags: [sanitized]
#include "nn/data/tokenizer/tokenizer.h"

#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/throws.h"

using namespace sotto;
using nlohmann::json;

namespace {

using Ids = std::vector<std::int64_t>;

Tokenizer made(const json& document) {
  const TemporaryFolder folder;
  folder.write("tokenizer.json", document.dump());
  return load_tokenizer(folder.path());
}

Ids ids(const Tokenizer& tokenizer, std::string_view text) { return tokenizer.encode(text).ids; }

json added(std::int64_t id, const std::string& content, json flags = json::object()) {
  flags.update({{"id", id}, {"content", content}});
  return flags;
}

// Words of letters, spaces before them; ids of <s> and </s> are 0 and 1.
json bytes() {
  json vocabulary{{"<s>", 0},          {"</s>", 1},     {"a", 2},  {"b", 3},      {"\u0120", 4},
                  {"ab", 5},           {"\u0120ab", 6}, {"bb", 7}, {"\u00c3", 8}, {"\u00a9", 9},
                  {"\u00c3\u00a9", 10}};
  return {{"added_tokens",
           {added(0, "<s>", {{"special", true}}), added(1, "</s>", {{"special", true}})}},
          {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
          {"post_processor",
           {{"type", "RobertaProcessing"}, {"cls", {"<s>", 0}}, {"sep", {"</s>", 1}}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model",
           {{"type", "BPE"},
            {"vocab", vocabulary},
            {"merges", {"a b", json::array({"\u0120", "ab"}), "b b", "\u00c3 \u00a9"}}}}};
}

json word_piece() {
  json y{{"normalizer", {{"type", "BertNormalizer"}}},
         {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
         {"decoder", {{"type", "WordPiece"}}}};
  y["model"] = {
      {"type", "WordPiece"},
      {"unk_token", "[UNK]"},
      {"continuing_subword_prefix", "##"},
      {"max_input_chars_per_word", 6},
      {"vocab",
       {{"[UNK]", 0}, {"un", 1}, {"##able", 2}, {"##a", 3}, {"e", 4}, {".", 5}, {"\u65e5", 6}}}};
  return y;
}

}  // namespace

TEST_CASE("byte pairs are joined by rank, and special tokens put around") {
  const Tokenizer tokenizer = made(bytes());
  CHECK(tokenizer.size() == 11);
  CHECK(ids(tokenizer, "ab ab") == Ids{0, 5, 6, 1});
  CHECK(ids(tokenizer, "abb\u00e9") == Ids{0, 5, 3, 10, 1});
  CHECK(tokenizer.encode("ab", {.special_tokens = false, .pair = "b"}).ids == Ids{5, 3});
  CHECK(tokenizer.encode("ab", {.pair = "b"}).ids == Ids{0, 5, 1, 1, 3, 1});
  CHECK(ids(tokenizer, "a</s>b") == Ids{0, 2, 1, 3, 1});
  CHECK(tokenizer.decode(Ids{0, 5, 6, 1}) == "ab ab");
  CHECK(tokenizer.decode(Ids{0, 5, 1}, {.skip_special_tokens = false}) == "<s>ab</s>");
  CHECK(tokenizer.decode(Ids{8, 8, 9, 9, 12345}) == "\ufffd\u00e9\ufffd");
  CHECK(tokenizer.token(6) == "\u0120ab");
  CHECK(tokenizer.id("</s>") == 1);
  CHECK_FALSE(tokenizer.token(11));
  CHECK_FALSE(tokenizer.id("c"));
}

TEST_CASE("the longest pieces are taken from the left, and a word without them is unknown") {
  const Tokenizer tokenizer = made(word_piece());
  CHECK(ids(tokenizer, "UNable \u00c9.") == Ids{1, 2, 4, 5});
  CHECK(ids(tokenizer, "unablex una unaaaaa") == Ids{0, 1, 3, 0});
  CHECK(ids(tokenizer, "e\u65e5e") == Ids{4, 6, 4});
  CHECK(tokenizer.decode(Ids{1, 2, 5}) == "unable.");
}

TEST_CASE("a character without a token becomes bytes, or one unknown token for several") {
  json document{
      {"normalizer", {{"type", "Prepend"}, {"prepend", "_"}}},
      {"decoder",
       {{"type", "Sequence"}, {"decoders", {{{"type", "ByteFallback"}}, {{"type", "Fuse"}}}}}}};
  json vocabulary{{"<unk>", 0}, {"_", 1}, {"a", 2}, {"_a", 3}};
  document["model"] = {{"type", "BPE"},        {"vocab", vocabulary}, {"merges", {"_ a"}},
                       {"unk_token", "<unk>"}, {"fuse_unk", true},    {"byte_fallback", true}};
  CHECK(ids(made(document), "a\u00e9\u00e8a") == Ids{3, 0, 2});
  CHECK(ids(made(document), "").empty());
  for (const int byte : {0xa8, 0xa9, 0xc3})
    document["model"]["vocab"][fmt::format("<0x{:02X}>", byte)] = document["model"]["vocab"].size();
  const Tokenizer tokenizer = made(document);
  CHECK(ids(tokenizer, "a\u00e9\u00e8") == Ids{3, 6, 5, 6, 4});
  CHECK(tokenizer.decode(Ids{6, 5, 2, 6}) == "\u00e9a\ufffd");
}

TEST_CASE("added tokens are found by their flags") {
  json document = word_piece();
  document["added_tokens"] = {added(7, "[M]", {{"lstrip", true}, {"normalized", false}}),
                              added(8, "un", {{"single_word", true}, {"normalized", false}}),
                              added(9, "E.", {{"normalized", true}}),
                              added(10, "[M]e", {{"rstrip", true}, {"normalized", false}})};
  document["added_tokens"][1]["id"] = 1;
  document["added_tokens"][2]["id"] = 8;
  document["added_tokens"][3]["id"] = 9;
  const Tokenizer tokenizer = made(document);
  CHECK(ids(tokenizer, "e [M] e") == Ids{4, 7, 4});
  CHECK(ids(tokenizer, "un unable") == Ids{1, 1, 2});
  CHECK(ids(tokenizer, "e.\u00c9.") == Ids{8, 8});
  CHECK(ids(tokenizer, "[M]e  [M]") == Ids{9, 7});
  document["added_tokens"].push_back(added(10, "e.", {{"normalized", true}}));
  CHECK(ids(made(document), "E.") == Ids{8});
}

TEST_CASE("a space that is a token takes spaces around it, and another token once") {
  json document = word_piece();
  for (const bool left : {true, false}) {
    document["added_tokens"] = {
        added(7, " ", {{left ? "lstrip" : "rstrip", true}, {"normalized", false}})};
    const Ids found = ids(made(document), "e    e");
    CHECK(found == Ids{4, 7, 7, 7, 7, 4});
  }
}

TEST_CASE("steps that make much more of a text are refused, whatever lies within each other") {
  const auto refused = [](const char* part, const json& step, const char* steps, bool decoded) {
    json document = bytes();
    json all = json::array();
    for (int k = 0; k < 40; ++k) all.push_back({{"type", "Sequence"}, {steps, {step}}});
    document[part] = {{"type", "Sequence"}, {steps, all}};
    const Tokenizer tokenizer = made(document);
    CAPTURE(part);
    CHECK(throws<SystemFailure>(
        [&] {
          decoded ? void(tokenizer.decode(Ids{2, 3})) : void(ids(tokenizer, "ab"));
        },
        "tokenizer: a text of "));
  };
  const json doubled{{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  refused("normalizer", doubled, "normalizers", false);
  refused("decoder", doubled, "decoders", true);
  refused("pre_tokenizer", {{"type", "ByteLevel"}, {"use_regex", false}}, "pretokenizers", false);
  json document = bytes();
  document["normalizer"] = {
      {"type", "Replace"}, {"pattern", {{"Regex", ""}}}, {"content", std::string(1 << 16, 'a')}};
  CHECK(throws<SystemFailure>([&] { ids(made(document), "ab"); }, "tokenizer: a text of "));
}

TEST_CASE("a mark is put before the text alone, where its first character stays") {
  json document{{"normalizer", {{"type", "Strip"}}},
                {"added_tokens", {added(5, "<s>", {{"normalized", false}})}},
                {"pre_tokenizer", {{"type", "Metaspace"}, {"prepend_scheme", "first"}}}};
  document["model"] = {
      {"type", "WordLevel"},
      {"unk_token", "?"},
      {"vocab", {{"a", 0}, {"\u2581a", 1}, {"?", 2}, {"\u2581", 3}, {"\u2581\ta", 4}}}};
  const Tokenizer tokenizer = made(document);
  CHECK(ids(tokenizer, "a a<s>a") == Ids{1, 1, 5, 0});
  CHECK(ids(tokenizer, " a") == Ids{0});
  document["normalizer"]["strip_left"] = false;
  CHECK(ids(made(document), "\ta") == Ids{4});
  document["pre_tokenizer"]["prepend_scheme"] = "always";
  document["normalizer"]["strip_left"] = true;
  CHECK(ids(made(document), " a<s>a") == Ids{1, 5, 1});
}

TEST_CASE("a batch has rows of one length, with a mask and token types") {
  const Tokenizer tokenizer = made(bytes());
  const std::vector<std::string> texts{"a", "ab abab", ""}, pairs{"bb", "b", "a"};
  const TokenRows rows = tokenizer.encode_batch(texts);
  CHECK(rows.ids.shape() == Shape{3, 5});
  CHECK(rows.ids.to_vector<std::int64_t>() == Ids{0, 2, 1, 0, 0, 0, 5, 6, 5, 1, 0, 1, 0, 0, 0});
  CHECK(rows.mask.to_vector<std::int64_t>() == Ids{1, 1, 1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0});
  const TokenRows left = tokenizer.encode_batch(texts, {.max_tokens = 4, .pad_left = true});
  CHECK(left.ids.to_vector<std::int64_t>() == Ids{0, 0, 2, 1, 0, 5, 6, 1, 0, 0, 0, 1});
  CHECK(left.mask.to_vector<std::int64_t>() == Ids{0, 1, 1, 1, 1, 1, 1, 1, 0, 0, 1, 1});
  const TokenRows wide =
      tokenizer.encode_batch(texts, {.pairs = pairs, .max_tokens = 9, .pad_to_max = true});
  CHECK(wide.ids.shape() == Shape{3, 9});
  CHECK(tokenizer.encode("ab ab", {.pair = "a", .max_tokens = 6}).ids == Ids{0, 5, 1, 1, 2, 1});
  CHECK(throws([&] { tokenizer.encode("a", {.max_tokens = 1}); },
               "2 special tokens, max_tokens is 1"));
  CHECK(throws(
      [&] {
        tokenizer.encode_batch(std::vector<std::string>{"a", "a\xff"});
      },
      "byte 0xff at offset 1 is not UTF-8 (text 1)"));
  CHECK(throws([&] { tokenizer.encode_batch(texts, {.pairs = std::span(pairs).first(1)}); },
               "3 texts and 1 pairs"));
}

TEST_CASE("token types are those of the template, with special tokens or without") {
  json document = word_piece();
  const auto special = [](const char* id, int type) {
    return json{{"SpecialToken", {{"id", id}, {"type_id", type}}}};
  };
  const auto text = [](const char* id, int type) {
    return json{{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  document["post_processor"] = {{"type", "TemplateProcessing"},
                                {"single", {special(".", 0), text("A", 0)}},
                                {"pair", {text("B", 1), special(".", 1), text("A", 2)}},
                                {"special_tokens", {{".", {{"id", "."}, {"ids", {5, 5}}}}}}};
  const Tokenizer tokenizer = made(document);
  const Encoding y = tokenizer.encode("e", {.pair = "un"});
  CHECK(y.ids == Ids{1, 5, 5, 4});
  CHECK(y.token_types == Ids{1, 1, 1, 2});
  CHECK(tokenizer.encode("e", {.special_tokens = false, .pair = "un"}).token_types == Ids{1, 2});
  document["post_processor"]["special_tokens"]["."]["ids"] = {99};
  CHECK(throws([&] { made(document); }, "no token has id 99"));
}
