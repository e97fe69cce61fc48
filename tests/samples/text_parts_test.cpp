// The parts of the sample `text`: its networks, its data, and text that a model writes.
#include <nlohmann/json.hpp>

#include "nn/init.h"
#include "samples/text/generation.h"
#include "samples/text/results.h"
#include "samples/text/sentences.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;
using text::TextModel;

namespace {

constexpr std::int64_t context = 5;

// A small model of the letters a, b, c, d.
TextModel small(const std::string& task, const std::string& network) {
  return {.task = task,
          .network = {.model = network, .embedding = 3, .hidden = 4, .layers = 2, .heads = 2},
          .alphabet = "abcd",
          .context = context,
          .classes = {"one", "two", "three"}};
}

Dataset rows_of(const std::vector<std::int64_t>& numbers,
                const std::vector<std::int64_t>& lengths) {
  const std::int64_t n = std::ssize(lengths);
  return {.inputs = Tensor::from(numbers, {n, context}),
          .targets = Tensor::from(std::vector<std::int64_t>(lengths.size()), {n}),
          .fields = {{"lengths", Tensor::from(lengths, {n})}}};
}

// The outputs of a new model for the rows.
std::vector<float> outputs(const TextModel& model, const Dataset& rows) {
  nn::manual_seed(1);
  const auto network = model.make_network();
  Tape tape({.training = false});
  return text::forward_rows(*network, tape, rows).value().to_vector<float>();
}

std::vector<float> first(const std::vector<float>& values, std::int64_t count) {
  return {values.begin(), values.begin() + count};
}

}  // namespace

TEST_CASE("padding and other rows have no effect on a row's outputs") {
  for (const std::string& network : text::network_names()) {
    INFO(network);
    const TextModel model = small("classify", network);
    const auto alone = outputs(model, rows_of({1, 2, 3, 0, 0}, {3}));
    REQUIRE(alone.size() == 3);
    CHECK(alone == outputs(model, rows_of({1, 2, 3, 4, 2}, {3})));
    CHECK(alone != outputs(model, rows_of({1, 2, 3, 4, 2}, {4})));
    const auto beside = outputs(model, rows_of({1, 2, 3, 0, 0, 4, 4, 4, 4, 4}, {3, 5}));
    for (std::size_t k = 0; k < 3; ++k) CHECK(beside[k] == Approx(alone[k]).margin(1e-6));
  }
}

TEST_CASE("a language model's outputs depend on earlier symbols only") {
  for (const std::string& network : text::network_names()) {
    INFO(network);
    const TextModel model = small("generate", network);
    const std::int64_t two = 2 * model.vocabulary().size();  // two positions' outputs
    const auto before = outputs(model, rows_of({0, 1, 2, 3, 4}, {5}));
    const auto after = outputs(model, rows_of({0, 1, 4, 4, 1}, {5}));
    CHECK(first(before, two) == first(after, two));
    CHECK(first(before, two + 5) != first(after, two + 5));
  }
}

TEST_CASE("a language model is to predict each symbol and the end of a unit that fits") {
  const TextModel model = small("generate", "gru");
  const Dataset data =
      text::prepared(model, text_dataset("ab\nabcdab", "text", model.text_options()));
  constexpr auto none = text::ignored;
  CHECK(data.inputs.to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{0, 1, 2, 0, 0, 0, 1, 2, 3, 4});
  CHECK(data.targets.to_vector<std::int64_t>() ==
        std::vector<std::int64_t>{1, 2, 0, none, none, 1, 2, 3, 4, 1});
  CHECK(data.field("lengths").to_vector<std::int64_t>() == std::vector<std::int64_t>{3, 5});
}

TEST_CASE("the rows of a unit are scored together") {
  nn::manual_seed(1);
  const TextModel model = small("classify", "gru");
  const auto network = model.make_network();
  Dataset rows = rows_of({1, 2, 0, 0, 0, 3, 3, 0, 0, 0, 4, 0, 0, 0, 0}, {2, 2, 1});
  const auto each = text::scores_of_units(*network, rows).to_vector<float>();
  rows.units = {0, 0, 1};
  const auto both = text::scores_of_units(*network, rows).to_vector<float>();
  REQUIRE(each.size() == 9);
  REQUIRE(both.size() == 6);
  for (std::size_t c = 0; c < 3; ++c) {
    CHECK(both[c] == Approx((each[c] + each[3 + c]) / 2));
    CHECK(both[3 + c] == each[6 + c]);
  }
  CHECK(text::classes_of_units(rows).numel() == 2);
}

TEST_CASE("a model's description survives its JSON") {
  TextModel model = small("generate", "lstm");
  model.other_characters = true;
  model.unit = "paragraph";
  model.long_units = "split";
  const nlohmann::json object = text::to_json(model);
  CHECK(text::to_json(text::text_model_from_json(object)) == object);
}

TEST_CASE("sentences are a function of the seed and tell their places") {
  CHECK(text::sentence(3, 7).text == text::sentence(3, 7).text);
  CHECK(text::sentence(3, 7).text != text::sentence(4, 7).text);
  const TextOptions options{.context = 64};
  const Dataset rows = text::sentences(300, 0, 0, options);
  CHECK(rows.size() == 300);
  std::vector<std::int64_t> counts(text::sentence_classes().size());
  for (const std::int64_t place : rows.targets.to_vector<std::int64_t>())
    ++counts.at(static_cast<std::size_t>(place));
  for (const std::int64_t count : counts) CHECK(count > 70);
  for (std::int64_t k = 0; k < 300; ++k)
    CHECK(text::sentence(0, k).text.size() <= static_cast<std::size_t>(options.context));
}

TEST_CASE("what a model of bytes writes is UTF-8 without control characters") {
  nn::manual_seed(1);
  TextModel model = small("generate", "gru");
  model.alphabet = "bytes";
  const auto network = model.make_network();
  const std::string written = text::generate_text(*network, model, {.length = 300});
  CHECK(written.find("\xef\xbf\xbd") != std::string::npos);
  for (const char c : written)
    CHECK((static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t'));
}
