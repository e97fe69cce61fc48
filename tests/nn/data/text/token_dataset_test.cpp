#include "nn/data/text/token_dataset.h"

#include <algorithm>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

using namespace sotto;

namespace {

using Numbers = std::vector<std::int64_t>;

// WordPiece of a few words: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, then a, b, c, d.
Tokenizer words() {
  const TemporaryFolder folder;
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\nc\nd\n");
  return load_tokenizer(folder.path());
}

Numbers row(const Tensor& x, std::int64_t k) { return x.select(0, k).to_vector<std::int64_t>(); }

}  // namespace

TEST_CASE("a classifier's rows have one length, a mask and labels") {
  const Dataset rows =
      classifier_rows(words(), {.texts = {"a b", "c"}, .labels = {1, 0}}, {.context = 5});
  CHECK(row(rows.inputs, 0) == Numbers{2, 4, 5, 3, 0});
  CHECK(row(rows.inputs, 1) == Numbers{2, 6, 3, 0, 0});
  CHECK(row(rows.field("mask"), 1) == Numbers{1, 1, 1, 0, 0});
  CHECK(rows.targets.to_vector<std::int64_t>() == Numbers{1, 0});
  CHECK(rows.units.empty());
}

TEST_CASE("a prompt is the first of a pair") {
  const Dataset rows = classifier_rows(words(), {.texts = {"b"}, .prompts = {"a"}}, {.context = 6});
  CHECK(row(rows.inputs, 0) == Numbers{2, 4, 3, 5, 3, 0});
  CHECK(row(rows.field("token_types"), 0) == Numbers{0, 0, 0, 1, 1, 0});
}

TEST_CASE("long texts are cut, or become rows of one unit") {
  const TextRecords records{.texts = {"a b c d", "a"}};
  const Dataset cut = classifier_rows(words(), records, {.context = 4});
  CHECK(cut.size() == 2);
  CHECK(row(cut.inputs, 0) == Numbers{2, 4, 5, 3});  // the special tokens stay
  const Dataset split =
      classifier_rows(words(), records, {.context = 4, .long_texts = LongUnit::split});
  CHECK(split.size() == 3);
  CHECK(row(split.inputs, 1) == Numbers{7, 3, 0, 0});
  CHECK(split.units == Numbers{0, 0, 1});
}

TEST_CASE("units of records are units of rows") {
  const Dataset rows =
      classifier_rows(words(), {.texts = {"a", "b", "c"}, .units = {5, 2, 5}}, {.context = 3});
  CHECK(rows.units == Numbers{5, 2, 5});
}

TEST_CASE("a language model learns the text behind the prompt, and no padding") {
  const Tokenizer tokenizer = words();
  const Dataset rows =
      language_rows(tokenizer, {.texts = {"b c"}, .prompts = {"a"}}, {.context = 7});
  const Numbers prompt = prompt_tokens(tokenizer, "a");
  const Numbers ids = row(rows.inputs, 0), targets = row(rows.targets, 0);
  for (std::size_t k = 0; k < prompt.size(); ++k) {
    CHECK(ids[k] == prompt[k]);
    CHECK(targets[k] == -100);
  }
  CHECK(targets[prompt.size()] == 5);
  CHECK(targets[prompt.size() + 1] == 6);
  for (std::size_t k = 0; k < ids.size(); ++k) {
    if (row(rows.field("mask"), 0)[k] == 0) CHECK(targets[k] == -100);
  }
}

TEST_CASE("a row is cut to a length that its own tokens decide") {
  CHECK(cut_length(0, 64) == 8);
  CHECK(cut_length(8, 64) == 8);
  CHECK(cut_length(9, 64) == 16);
  CHECK(cut_length(32, 64) == 32);
  CHECK(cut_length(33, 64) == 40);
  CHECK(cut_length(65, 200) == 80);
  CHECK(cut_length(65, 70) == 70);
  for (std::int64_t tokens = 1; tokens < 1000; ++tokens) {
    CHECK(cut_length(tokens, 1000) >= tokens);
    CHECK(cut_length(tokens, 1000) <= std::max<std::int64_t>(8, tokens + tokens / 4 + 8));
  }
}

TEST_CASE("rows are cut to the longest of them, and a unit has its longest row's length") {
  std::string nine = "a";
  for (int k = 0; k < 8; ++k) nine += " b";
  const TextRecords records{.texts = {"a b", nine, "c"}, .labels = {1, 0, 1}, .units = {7, 5, 5}};
  const Dataset rows = classifier_rows(words(), records, {.context = 20});
  CHECK(unit_lengths(rows) == Numbers{16, 8});  // units 5 and 7
  Dataset each = rows;
  each.units.clear();
  CHECK(unit_lengths(each) == Numbers{8, 16, 8});
  const Dataset short_rows = cut_to_length(rows.batch(Numbers{0, 2}));
  CHECK(short_rows.inputs.shape() == Shape{2, 8});
  CHECK(short_rows.field("mask").shape() == Shape{2, 8});
  CHECK(short_rows.targets.shape() == Shape{2});
  CHECK(row(short_rows.inputs, 1) == Numbers{2, 6, 3, 0, 0, 0, 0, 0});
  CHECK(cut_to_length(rows).inputs.shape() == Shape{3, 16});
  const Dataset written = cut_to_length(language_rows(words(), {.texts = {"b"}}, {.context = 20}));
  CHECK(written.targets.shape() == Shape{1, 8});
}
