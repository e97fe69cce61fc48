// BERT, DistilBERT and RoBERTa: padding, pooling, positions, and each row's own gradient.
#include "autograd/per_sample/per_sample_grad.h"
#include "dp/clipping/clipper.h"
#include "nn/init.h"
#include "nn/models/bert_encoder.h"
#include "tests/nn/models/encoder_cases.h"
#include "tests/support/throws.h"

using namespace sotto;
using nlohmann::json;

namespace {

// Small enough for milliseconds, with two heads and two blocks.
json bert_config() {
  return {{"architectures", {"BertForSequenceClassification"}},
          {"vocab_size", 30},
          {"hidden_size", 8},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 2},
          {"intermediate_size", 12},
          {"max_position_embeddings", 12},
          {"num_labels", 3}};
}

json distilbert_config() {
  return {{"architectures", {"DistilBertForSequenceClassification"}},
          {"vocab_size", 30},
          {"dim", 8},
          {"n_layers", 2},
          {"n_heads", 2},
          {"hidden_dim", 12},
          {"max_position_embeddings", 12}};
}

json roberta_config() {
  json config = bert_config();
  config["architectures"] = {"RobertaForSequenceClassification"};
  config["type_vocab_size"] = 1;
  return config;
}

std::unique_ptr<nn::TextEncoder> made(const nn::Architecture& architecture, const json& config,
                                      const nn::PretrainedOptions& options = {}) {
  nn::manual_seed(5);
  auto model = architecture.make(config, options);
  return std::unique_ptr<nn::TextEncoder>(dynamic_cast<nn::TextEncoder*>(model.release()));
}

// Two rows of tokens, the second with padding (id 1, RoBERTa's) at its end.
struct Batch {
  Tensor ids = Tensor::from(std::vector<std::int64_t>{2, 9, 4, 7, 3, 2, 8, 3, 1, 1}, {2, 5});
  Tensor mask = Tensor::from(std::vector<std::int64_t>{1, 1, 1, 1, 1, 1, 1, 1, 0, 0}, {2, 5});

  // The inputs of rows [begin, end), of their first `tokens` tokens.
  nn::TokenInputs rows(Tape& tape, std::int64_t begin, std::int64_t end,
                       std::int64_t tokens = 5) const {
    const auto part = [&](const Tensor& all) {
      return tape.input(contiguous(all.slice(0, begin, end).slice(1, 0, tokens)));
    };
    return {.ids = part(ids), .mask = part(mask)};
  }
};

Tensor labels(std::int64_t begin, std::int64_t end) {
  return Tensor::from(std::vector<std::int64_t>{1, 0}, {2}).slice(0, begin, end);
}

struct Kind {
  const char* name;
  nn::Architecture architecture;
  json config;
  std::string pooling;
};

std::vector<Kind> kinds() {
  return {{"BERT", nn::bert_architecture(), bert_config(), ""},
          {"BERT, mean", nn::bert_architecture(), bert_config(), "mean"},
          {"BERT, attention", nn::bert_architecture(), bert_config(), "attention"},
          {"DistilBERT", nn::distilbert_architecture(), distilbert_config(), ""},
          {"DistilBERT, mean", nn::distilbert_architecture(), distilbert_config(), "mean"},
          {"RoBERTa", nn::roberta_architecture(), roberta_config(), ""}};
}

}  // namespace

TEST_CASE("each row of a text classifier has the gradient of the row alone") {
  for (const Kind& kind : kinds()) {
    INFO(kind.name);
    const auto model = made(kind.architecture, kind.config, {.pooling = kind.pooling});
    model->to(Dtype::f64);
    const Batch batch;
    check_rows_alone(
        *model,
        [&](Tape& tape, std::int64_t begin, std::int64_t end) {
          return cross_entropy((*model)(batch.rows(tape, begin, end)), labels(begin, end));
        },
        2);
  }
}

TEST_CASE("a text classifier goes on from the values in front of each of its blocks") {
  for (const Kind& kind : kinds()) {
    INFO(kind.name);
    const auto model = made(kind.architecture, kind.config, {.pooling = kind.pooling});
    const Batch batch;
    Tape tape({.training = false});
    const nn::TokenInputs inputs = batch.rows(tape, 0, 2);
    const auto whole = values_of((*model)(inputs));
    for (std::int64_t k = 0; k <= 2; ++k) {
      const Var values = model->before_block(inputs, k);
      CHECK(values.shape() == Shape{2, 5, 8});
      CHECK(values_of(model->from_block(values, inputs.mask, k)) == whole);
    }
    CHECK(throws([&] { model->before_block(inputs, 3); }, "blocks 0 to 3 of 2"));
  }
}

TEST_CASE("padding changes neither a row's logits nor its gradient") {
  for (const Kind& kind : kinds()) {
    INFO(kind.name);
    const auto model = made(kind.architecture, kind.config, {.pooling = kind.pooling});
    model->to(Dtype::f64);
    const Batch batch;
    const auto run = [&](std::int64_t tokens) {
      const LossOfRows loss = [&](Tape& tape, std::int64_t begin, std::int64_t end) {
        return cross_entropy((*model)(batch.rows(tape, begin, end, tokens)), labels(begin, end));
      };
      Tape tape({.training = false});
      return std::pair(values_of((*model)(batch.rows(tape, 1, 2, tokens))),
                       gradients_of_rows(*model, loss, 1, 2));
    };
    const auto padded = run(5), alone = run(3);
    for (std::size_t i = 0; i < alone.first.size(); ++i)
      CHECK(padded.first[i] == Approx(alone.first[i]).epsilon(1e-13));
    for (const auto& [name, gradient] : alone.second) {
      INFO(name);
      for (std::size_t i = 0; i < gradient.size(); ++i)
        CHECK(padded.second.at(name)[i] == Approx(gradient[i]).margin(1e-13));
    }
  }
}

TEST_CASE("a pooler that no loss reads does not disturb private training") {
  const auto model = made(nn::bert_architecture(), bert_config(), {.pooling = "mean"});
  const Batch batch;
  Clipper clipper(flat_group(model->parameters(), 1));
  Tape tape({.private_data = true});
  clipper.add(tape, cross_entropy((*model)(batch.rows(tape, 0, 2)), labels(0, 2)));
  for (const auto& [name, parameter] : model->named_parameters()) {
    if (!name.starts_with("pooler")) continue;
    for (const auto& [owner, sum] : clipper.clipped_sums()) {
      if (owner != parameter) continue;
      const auto values = sum.to_vector<double>();
      CHECK(std::all_of(values.begin(), values.end(), [](double x) { return x == 0; }));
    }
  }
  CHECK(model->parts().head == std::vector<std::string>{"classifier"});
}

TEST_CASE("the row of the padding token has no gradient, even where no mask hides it") {
  json config = bert_config();
  config["pad_token_id"] = 4;
  const auto model = made(nn::bert_architecture(), config);
  const Batch batch;
  const auto gradients = gradients_of_rows(
      *model,
      [&](Tape& tape, std::int64_t begin, std::int64_t end) {
        return cross_entropy((*model)(batch.rows(tape, begin, end)), labels(begin, end));
      },
      0, 1);
  const std::vector<double>& words = gradients.at("embeddings.word_embeddings.weight");
  const auto row_is_zero = [&](std::size_t id) {
    return std::all_of(words.begin() + id * 8, words.begin() + (id + 1) * 8,
                       [](double x) { return x == 0; });
  };
  CHECK(row_is_zero(4));
  CHECK_FALSE(row_is_zero(9));
}

TEST_CASE("RoBERTa counts positions of tokens from behind the padding's number") {
  const auto model = made(nn::roberta_architecture(), roberta_config());
  const Batch batch;
  Tape tape({.training = false});
  nn::TokenInputs given = batch.rows(tape, 0, 2);
  given.positions =
      tape.input(Tensor::from(std::vector<std::int64_t>{2, 3, 4, 5, 6, 2, 3, 4, 1, 1}, {2, 5}));
  CHECK(values_of((*model)(batch.rows(tape, 0, 2))) == values_of((*model)(given)));
}

TEST_CASE("a sentence vector is the mean over the row's tokens, of length 1 if asked") {
  json config = bert_config();
  config["architectures"] = {"BertModel"};
  config.erase("num_labels");
  const auto model = made(nn::bert_architecture(), config);
  const Batch batch;
  Tape tape({.training = false});
  const nn::TokenInputs inputs = batch.rows(tape, 0, 2);
  const auto hidden = values_of((*model)(inputs));
  const auto means = values_of(model->sentence_vectors(inputs, false)),
             unit = values_of(model->sentence_vectors(inputs));
  double length = 0;
  for (std::size_t i = 0; i < 8; ++i) {
    double mean = 0;
    for (std::size_t t = 0; t < 3; ++t) mean += hidden[(5 + t) * 8 + i] / 3;
    CHECK(means[8 + i] == Approx(mean).margin(1e-6));
    length += unit[8 + i] * unit[8 + i];
  }
  CHECK(length == Approx(1).epsilon(1e-6));
  CHECK(model->pooled(inputs).shape() == Shape{2, 8});
}

TEST_CASE("embeddings and blocks one after the other are what an encoder computes") {
  const auto model = made(nn::bert_architecture(), bert_config());
  const Batch batch;
  Tape tape({.training = false});
  Var first, last;
  const nn::ModuleHook hook([&](const nn::Module& module, const Var& x, const Var& y) {
    if (!dynamic_cast<const nn::EncoderBlock*>(&module)) return;
    if (!last.value().defined()) first = x;
    last = y;
  });
  const nn::TokenInputs inputs = batch.rows(tape, 0, 2);
  const auto hidden = values_of(model->hidden(inputs));
  CHECK(values_of(last) == hidden);
  model->visit(nn::Visitor([](const std::string&, Parameter&) {},
                           [&](const std::string&, nn::Module& child) {
                             auto* table = dynamic_cast<nn::BertEmbeddings*>(&child);
                             if (table)
                               CHECK(values_of(table->forward(inputs)) == values_of(first));
                           }));
}

TEST_CASE("pooling by attention begins as the mean") {
  const auto trained = made(nn::bert_architecture(), bert_config(), {.pooling = "attention"});
  const auto mean = made(nn::bert_architecture(), bert_config(), {.pooling = "mean"});
  const Batch batch;
  Tape tape({.training = false});
  const auto expected = values_of((*mean)(batch.rows(tape, 0, 2)));
  const auto got = values_of((*trained)(batch.rows(tape, 0, 2)));
  for (std::size_t i = 0; i < got.size(); ++i) CHECK(got[i] == Approx(expected[i]).margin(1e-6));
  CHECK(trained->parts().head == std::vector<std::string>{"pooler_query", "classifier"});
}

TEST_CASE("dropout of a text encoder is drawn for each row by itself") {
  const auto model = made(nn::distilbert_architecture(), distilbert_config());
  const Batch batch;
  Tape both({.seed = 3}), second({.seed = 3, .first_row = 1}), still({.training = false});
  const auto all = values_of((*model)(batch.rows(both, 0, 2)));
  const auto alone = values_of((*model)(batch.rows(second, 1, 2)));
  CHECK(alone[0] == Approx(all[2]).epsilon(1e-5));
  CHECK(alone[1] == Approx(all[3]).epsilon(1e-5));
  CHECK(values_of((*model)(batch.rows(still, 1, 2)))[0] != Approx(alone[0]).epsilon(1e-5));
}

TEST_CASE("configs of text encoders that compute something else are refused by name") {
  const auto refused = [](const char* field, const json& value, const std::string& text) {
    json config = bert_config();
    config[field] = value;
    return throws([&] { made(nn::bert_architecture(), config); }, text);
  };
  CHECK(refused("position_embedding_type", "relative_key", "position_embedding_type"));
  CHECK(refused("is_decoder", true, "is_decoder"));
  CHECK(refused("add_cross_attention", true, "add_cross_attention"));
  CHECK(refused("hidden_act", "geglu", "geglu"));
  CHECK(refused("num_attention_heads", 3, "3 heads of 8 features"));
  CHECK(throws([] { made(nn::bert_architecture(), bert_config(), {.pooling = "max"}); }, "max"));
  const auto model = made(nn::bert_architecture(), bert_config());
  Tape tape;
  const Var ids = tape.input(zeros({1, 13}, Dtype::i64));
  CHECK(throws([&] { (*model)(ids); }, "13 tokens for 12 positions"));
}
