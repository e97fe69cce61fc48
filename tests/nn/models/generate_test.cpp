// Tokens drawn from a language model.
#include "nn/models/generate.h"
#include "tests/nn/models/small_models.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

TEST_CASE("greedy text is the likeliest token of the whole row each time") {
  nn::manual_seed(5);
  nn::Llama model(small_llama());
  const std::vector<std::int64_t> prompt = some_ids(4);
  std::vector<std::int64_t> row = prompt;
  for (int k = 0; k < 6; ++k) {
    const auto t = static_cast<std::int64_t>(row.size());
    const Tensor logits = logits_of(model, Tensor::from(row, {1, t}));
    row.push_back(static_cast<std::int64_t>(argmax(logits.select(1, t - 1)).item()));
  }
  const auto text = nn::generate(model, prompt, {.max_tokens = 6});
  CHECK(text == std::vector<std::int64_t>(row.begin() + 4, row.end()));
  CHECK(nn::generate(model, prompt, {.max_tokens = 6, .temperature = 2, .top_k = 1}) == text);
  CHECK(model.embed_tokens != nullptr);
  for (const Parameter* parameter : model.parameters()) CHECK(parameter->trainable);
}

TEST_CASE("the same seed draws the same text") {
  nn::manual_seed(6);
  nn::Gpt2 model(small_gpt2());
  const auto prompt = some_ids(2);
  const auto text = [&](std::uint64_t seed) {
    return nn::generate(model, prompt, {.max_tokens = 9, .temperature = 1.5, .seed = seed});
  };
  CHECK(text(1) == text(1));
  CHECK(text(1) != text(2));
}

TEST_CASE("text ends at a stop token, by its reader, and at the model's last position") {
  nn::manual_seed(7);
  nn::Gpt2 model(small_gpt2());
  const auto prompt = some_ids(2);
  const auto all = nn::generate(model, prompt, {.max_tokens = 100});
  CHECK(all.size() == 11);  // the last one behind the 12 positions
  const auto stopped = nn::generate(model, prompt, {.stop = {all[0]}});
  CHECK(stopped.empty());
  int read = 0;
  nn::generate(model, prompt, {.on_token = [&](std::int64_t) { return ++read < 3; }});
  CHECK(read == 3);
}

TEST_CASE("a token is drawn by its probability among the likeliest") {
  const Tensor logits =
      Tensor::from({std::log(0.5), std::log(0.1), std::log(0.4)}, {3}, Dtype::f64);
  const auto token = [&](double u, std::int64_t top_k, double top_p) {
    return nn::sample_token(logits, {.temperature = 1, .top_k = top_k, .top_p = top_p}, u);
  };
  CHECK((token(0.49, 0, 1) == 0 && token(0.51, 0, 1) == 2 && token(0.91, 0, 1) == 1));
  CHECK((token(0.99, 2, 1) == 2 && token(0.54, 2, 1) == 0 && token(0.57, 2, 1) == 2));
  CHECK((token(0.99, 0, 0.85) == 2 && token(0.99, 0, 0.5) == 0));
  CHECK(nn::sample_token(logits, {}, 0.99) == 0);
  CHECK(nn::sample_token(logits, {.temperature = 1e-3}, 0.99) == 0);
}

TEST_CASE("options of generation that are out of range are refused") {
  nn::manual_seed(8);
  nn::Gpt2 model(small_gpt2());
  const auto prompt = some_ids(2);
  CHECK(throws([&] { nn::generate(model, {}); }, "the prompt has no tokens"));
  CHECK(throws([&] { nn::generate(model, prompt, {.temperature = -1}); }, "temperature -1"));
  CHECK(throws([&] { nn::generate(model, prompt, {.top_p = 0}); }, "top_p 0 outside"));
  CHECK(throws([&] { nn::generate(model, some_ids(13)); }, "13 tokens behind 0"));
  CHECK(throws([&] { nn::generate(model, prompt, {.top_k = -1}); }, "top_k -1"));
}
