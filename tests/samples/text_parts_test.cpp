// The parts of the sample `text`: its networks, its data, and text that a model writes.
#include <nlohmann/json.hpp>

#include "dp/engine/engine.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/data/text/token_dataset.h"
#include "nn/init.h"
#include "nn/models/architecture.h"
#include "nn/optim/optimizer.h"
#include "samples/text/generation.h"
#include "samples/text/results.h"
#include "samples/text/sentences.h"
#include "samples/text/token_values.h"
#include "samples/text/trigram.h"
#include "samples/text/tuned_text.h"
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

// The networks with weights: all but the table of counts.
const std::vector<std::string> neural = {"gru", "lstm", "transformer"};

std::vector<float> first(const std::vector<float>& values, std::int64_t count) {
  return {values.begin(), values.begin() + count};
}

}  // namespace

TEST_CASE("padding and other rows have no effect on a row's outputs") {
  for (const std::string& network : neural) {
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
  for (const std::string& network : neural) {
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
  const Tensor outputs = text::outputs_of_rows(model, *network, rows);
  const auto each = text::scores_of_units(outputs, rows).to_vector<float>();
  rows.units = {0, 0, 1};
  const auto both = text::scores_of_units(outputs, rows).to_vector<float>();
  REQUIRE(each.size() == 9);
  REQUIRE(both.size() == 6);
  for (std::size_t c = 0; c < 3; ++c) {
    CHECK(both[c] == Approx((each[c] + each[3 + c]) / 2));
    CHECK(both[3 + c] == each[6 + c]);
  }
  CHECK(text::classes_of_units(rows).numel() == 2);
}

namespace {

// Units of one to three rows.
const char* const speeches = "abcabcabcabc\nab\ndddddddd\nacacacb\na\nabcdabcd\n";

Dataset speech_rows(TextModel model) {
  model.long_units = "split";
  return text::prepared(model, text_dataset(speeches, "text", model.text_options()));
}

// The counts of each unit's trigrams.
std::vector<std::vector<double>> counts_of_units(const Dataset& rows, std::int64_t symbols) {
  const auto inputs = rows.inputs.to_vector<std::int64_t>();
  const auto targets = rows.targets.to_vector<std::int64_t>();
  std::vector<std::vector<double>> counts(static_cast<std::size_t>(rows.unit_count()));
  for (std::size_t k = 0; k < inputs.size(); ++k) {
    if (targets[k] == text::ignored) continue;
    const std::int64_t a = k % context == 0 ? 0 : inputs[k - 1];
    auto& unit = counts[static_cast<std::size_t>(rows.units[k / context])];
    unit.resize(static_cast<std::size_t>(symbols * symbols * symbols));
    unit[static_cast<std::size_t>((a * symbols + inputs[k]) * symbols + targets[k])] += 1;
  }
  return counts;
}

// The table after the only step of a private training without noise.
std::vector<float> table_of(const TextModel& model, const Dataset& rows, double bound) {
  text::TrigramNetwork network(model.vocabulary().size());
  const auto units = static_cast<double>(rows.unit_count());
  nn::Sgd optimizer(network, {.learning_rate = units});
  const std::string unit = "one line of the text";
  Engine engine(network, optimizer, rows, Ledger({.unit = unit}),
                {.noise_multiplier = 0,
                 .steps = 1,
                 .logical_batch = units,
                 .unit = unit,
                 .clip_bound = bound});
  engine.step([&](Tape& tape, std::span<const std::int64_t> batch) {
    return network.losses(tape, rows.batch(batch));
  });
  return network.parameters().front()->value.to_vector<float>();
}

double norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

}  // namespace

TEST_CASE("a trigram model without noise is the sum of the units' counts, each of them clipped") {
  const TextModel model = small("generate", "trigram");
  const Dataset rows = speech_rows(model);
  const auto counts = counts_of_units(rows, model.vocabulary().size());
  for (const double bound : {1e3, 2.0}) {
    const auto table = table_of(model, rows, bound);
    for (std::size_t k = 0; k < table.size(); ++k) {
      double sum = 0;
      for (const auto& unit : counts) sum += unit[k] * std::min(1.0, bound / norm(unit));
      CHECK(table[k] == Approx(sum).margin(1e-5));
    }
  }
}

TEST_CASE("a unit changes the table of a trigram model by no more than the bound") {
  const TextModel model = small("generate", "trigram");
  const Dataset rows = speech_rows(model);
  constexpr double bound = 1.5;
  const auto table = table_of(model, rows, bound);
  for (std::int64_t unit = 0; unit < rows.unit_count(); ++unit) {
    std::vector<std::int64_t> others;
    for (std::int64_t row = 0; row < rows.size(); ++row) {
      if (rows.units[static_cast<std::size_t>(row)] != unit) others.push_back(row);
    }
    const auto without = table_of(model, rows.batch(others), bound);
    std::vector<double> change;
    for (std::size_t k = 0; k < table.size(); ++k) change.push_back(table[k] - without[k]);
    CHECK(norm(change) <= bound * (1 + 1e-5));
    CHECK(norm(change) > 1);
  }
}

TEST_CASE("a trigram model's probabilities are smoothed shares of what followed") {
  const TextModel model = small("generate", "trigram");
  const auto network = model.make_network();
  const auto size = static_cast<std::size_t>(model.vocabulary().size());
  const auto probabilities = [&](const std::vector<std::int64_t>& ids) {
    Tape tape({.training = false});
    const Tensor y = text::forward_rows(*network, tape, rows_of(ids, {context})).value();
    std::vector<double> p;
    for (const float score : y.to_vector<float>()) p.push_back(std::exp(score));
    return p;
  };
  for (const double p : probabilities({0, 1, 2, 3, 4})) CHECK(p == Approx(1.0 / 5));
  std::vector<float> table(size * size * size);
  table[(1 * size + 2) * size + 3] = 6;  // c after ab
  table[(4 * size + 2) * size + 4] = 2;  // d after db
  Tensor& value = network->parameters().front()->value;
  value = Tensor::from(table, value.shape());
  const auto p = probabilities({0, 1, 2, 3, 4});
  const double unigram = 7.0 / 13, bigram = (6 + 0.5 * unigram) / 8.5;
  CHECK(p[2 * size + 3] == Approx((6 + 0.5 * bigram) / 6.5));  // after end, a, b
  CHECK(p[1 * size + 3] == Approx(unigram));                   // after end, a: never seen
  table[0] = table[1] = -8;  // noise of that deviation hides counts of 6
  value = Tensor::from(table, value.shape());
  for (const double hidden : probabilities({0, 1, 2, 3, 4})) CHECK(hidden == Approx(1.0 / 5));
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

TEST_CASE("a row's values in front of a block depend on no other row") {
  nn::manual_seed(1);
  const auto made =
      nn::bert_architecture().make({{"architectures", {"BertForSequenceClassification"}},
                                    {"vocab_size", 30},
                                    {"hidden_size", 8},
                                    {"num_hidden_layers", 2},
                                    {"num_attention_heads", 2},
                                    {"intermediate_size", 12},
                                    {"max_position_embeddings", 24}},
                                   {});
  auto& encoder = dynamic_cast<nn::TextEncoder&>(*made);
  constexpr std::int64_t rows = 5, width = 20;
  const std::vector<std::int64_t> counts = {3, 12, 8, 17, 3};
  std::vector<std::int64_t> ids, mask;
  for (std::int64_t k = 0; k < rows * width; ++k) {
    const bool token = k % width < counts[static_cast<std::size_t>(k / width)];
    mask.push_back(token);
    ids.push_back(token ? 1 + k * 7 % 29 : 0);
  }
  const Dataset data{.inputs = Tensor::from(ids, {rows, width}),
                     .targets = Tensor::from(std::vector<std::int64_t>(rows), {rows}),
                     .fields = {{"mask", Tensor::from(mask, {rows, width})}}};
  const text::TokenValues values(encoder, 1);
  const Tensor all = values(data);
  CHECK(all.shape() == Shape{rows, width, 8});
  CHECK(values.bytes(data) == all.bytes());
  for (std::int64_t row = 0; row < rows; ++row) {
    const Tensor alone = values(data.slice(row, row + 1));
    const auto expected = to_dtype(all.select(0, row), Dtype::f32).to_vector<float>();
    CHECK(to_dtype(alone, Dtype::f32).to_vector<float>() == expected);
    const std::int64_t end = cut_length(counts[static_cast<std::size_t>(row)], width) * 8;
    CHECK(std::all_of(expected.begin() + end, expected.end(), [](float x) { return x == 0; }));
  }
  // Kept values and those of each step have the same bits: the number of rows decides between them,
  // and is private.
  Dataset kept = data;
  text::keep_values(encoder, 1, kept);
  CHECK(kept.inputs.dtype() == Dtype::f16);
  const auto results = [&](const Dataset& of) {
    Tape tape({.training = false});
    return text::forward_tokens(encoder, tape, cut_to_length(of.slice(1, 3)), 1)
        .value()
        .to_vector<float>();
  };
  CHECK(results(kept) == results(data));
  Tape tape({.training = false});
  const Var mask_of_all = tape.input(data.field("mask"));
  const auto whole = encoder({.ids = tape.input(data.inputs), .mask = mask_of_all}).value();
  const Var wide = tape.input(to_dtype(all, Dtype::f32));
  const auto again = encoder.from_block(wide, mask_of_all, 1).value().to_vector<float>();
  const auto expected = whole.to_vector<float>();
  for (std::size_t k = 0; k < expected.size(); ++k)
    CHECK(again[k] == Approx(static_cast<double>(expected[k])).margin(5e-3));
}
