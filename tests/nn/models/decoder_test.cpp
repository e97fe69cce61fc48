// GPT-2 and Llama: padding, caches, positions, tied tables, losses of rows.
#include <cmath>
#include <map>
#include <memory>
#include <numbers>

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "dp/clipping/clipper.h"
#include "nn/models/decoder.h"
#include "tests/nn/models/small_models.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

std::vector<std::unique_ptr<nn::LanguageModel>> both() {
  nn::manual_seed(3);
  std::vector<std::unique_ptr<nn::LanguageModel>> models;
  models.push_back(std::make_unique<nn::Gpt2>(small_gpt2()));
  models.push_back(std::make_unique<nn::Llama>(small_llama()));
  for (const auto& model : models) model->to(Dtype::f64);
  return models;
}

std::vector<double> norms(nn::TokenModel& model, const Tensor& ids, const Tensor& labels) {
  Clipper clipper(flat_group(model.parameters(), 1));
  Tape tape({.private_data = true, .training = false});
  clipper.add(tape, nn::next_token_loss(model({.ids = tape.input(ids)}), labels));
  return clipper.statistics().norms[0];
}

}  // namespace

TEST_CASE("padding on either side changes nothing at a row's own tokens") {
  const std::vector<std::int64_t> text = some_ids(5);
  for (const auto& model : both()) {
    const Tensor alone = logits_of(*model, Tensor::from(text, {1, 5}));
    std::vector<std::int64_t> right = text, left{7, 7, 7};
    right.insert(right.end(), {7, 7, 7});
    left.insert(left.end(), text.begin(), text.end());
    const Tensor on_right = logits_of(*model, Tensor::from(right, {1, 8}),
                                      Tensor::from<std::int64_t>({1, 1, 1, 1, 1, 0, 0, 0}, {1, 8}));
    const Tensor on_left = logits_of(*model, Tensor::from(left, {1, 8}),
                                     Tensor::from<std::int64_t>({0, 0, 0, 1, 1, 1, 1, 1}, {1, 8}),
                                     Tensor::from<std::int64_t>({0, 0, 0, 0, 1, 2, 3, 4}, {1, 8}));
    CHECK(difference(on_right.slice(1, 0, 5), alone) < 1e-12);
    CHECK(difference(on_left.slice(1, 3, 8), alone) < 1e-12);
  }
}

TEST_CASE("a cache gives the logits of the whole row") {
  const std::vector<std::int64_t> text = some_ids(11);
  for (const auto& model : both()) {
    const Tensor whole = logits_of(*model, Tensor::from(text, {1, 11}));
    nn::KeyValueCache cache;
    std::int64_t read = 0;
    for (const std::int64_t part : {4, 1, 1, 3, 2}) {
      Tape tape({.training = false});
      const std::span<const std::int64_t> ids(text.data() + read, static_cast<std::size_t>(part));
      const Var next = model->next(tape.input(Tensor::from(ids, {1, part})), cache);
      read += part;
      CHECK(cache.length() == read);
      CHECK(difference(next.value(), whole.select(1, read - 1)) < 1e-12);
    }
  }
}

TEST_CASE("rotary positions count distances alone, GPT-2's table places") {
  const Tensor ids = Tensor::from(some_ids(5), {1, 5});
  const Tensor moved = Tensor::from<std::int64_t>({4, 5, 6, 7, 8}, {1, 5});
  const auto models = both();
  CHECK(difference(logits_of(*models[0], ids), logits_of(*models[0], ids, {}, moved)) > 0.1);
  CHECK(difference(logits_of(*models[1], ids), logits_of(*models[1], ids, {}, moved)) < 1e-12);
}

TEST_CASE("every block of a decoder is called as a module") {
  for (const auto& model : both()) {
    std::int64_t called = 0;
    const nn::ModuleHook hook([&](const nn::Module& module, const Var&, const Var&) {
      called += dynamic_cast<const nn::DecoderBlock*>(&module) != nullptr;
    });
    logits_of(*model, Tensor::from(some_ids(3), {1, 3}));
    CHECK(called == model->parts().block_count);
  }
}

TEST_CASE("the gradient of a tied table is the sum of its uses") {
  nn::manual_seed(4);
  nn::Gpt2 tied(small_gpt2());
  nn::Gpt2Config config = small_gpt2();
  config.tied = false;
  nn::Gpt2 untied(config);
  const auto from = tied.named_parameters();
  std::map<std::string, Tensor> values;
  for (const auto& [name, parameter] : from) values[name] = parameter->value;
  for (const auto& [name, parameter] : untied.named_parameters())
    parameter->value = clone(values.at(name == "lm_head.weight" ? "wte.weight" : name));
  const auto gradients = [](nn::Gpt2& model) {
    const Tensor ids = Tensor::from(some_ids(6), {2, 3});
    Tape tape({.training = false});
    SumSink sink;
    tape.backward(nn::next_token_loss(model({.ids = tape.input(ids)}), ids), sink);
    std::map<std::string, Tensor> all;
    for (const auto& [name, parameter] : model.named_parameters()) {
      for (const auto& [given, gradient] : sink.gradients()) {
        if (given == parameter) all[name] = gradient;
      }
    }
    return all;
  };
  const auto one = gradients(tied), two = gradients(untied);
  CHECK(difference(one.at("wte.weight"), add(two.at("wte.weight"), two.at("lm_head.weight"))) <
        1e-5);
  CHECK(difference(one.at("ln_f.weight"), two.at("ln_f.weight")) < 1e-5);
}

TEST_CASE("a row's gradient norm is that of the row alone") {
  const std::vector<std::int64_t> all = some_ids(15);
  const Tensor ids = Tensor::from(all, {3, 5});
  for (const auto& model : both()) {
    const std::vector<double> together = norms(*model, ids, ids);
    for (std::int64_t n = 0; n < 3; ++n) {
      const Tensor row = ids.slice(0, n, n + 1);
      CHECK(together[static_cast<std::size_t>(n)] ==
            Approx(norms(*model, row, row)[0]).epsilon(1e-6));
    }
  }
}

TEST_CASE("the loss of a row is over its own labels") {
  Tape tape;
  const Tensor logits = Tensor::from({1, 2, 0, 1, 3, 1, 1, 2, 0, 1, 3, 1}, {2, 3, 2}, Dtype::f64);
  const Tensor labels = Tensor::from<std::int64_t>({0, 1, 0, 0, -100, 1}, {2, 3});
  const auto entropy = [](double wanted, double other) {
    return std::log(1 + std::exp(other - wanted));
  };
  const double first = entropy(2, 1), second = entropy(0, 1), third = entropy(1, 0);
  const auto mean = nn::next_token_loss(tape.input(logits), labels).value().to_vector<double>();
  CHECK(mean[0] == Approx((first + second) / 2));
  CHECK(mean[1] == Approx(third));
  const auto sum =
      nn::next_token_loss(tape.input(logits), labels, {.sum = true}).value().to_vector<double>();
  CHECK(sum[0] == Approx(first + second));
  CHECK(throws([&] { nn::next_token_loss(tape.input(logits), labels.slice(1, 0, 2)); },
               "logits (2, 3, 2) for labels (2, 2)"));
}

TEST_CASE("frequencies of long wavelengths are divided, those of short ones stay") {
  nn::RotaryConfig config{.base = 1e4, .factor = 8, .original = 1000};
  const std::vector<double> plain = nn::rotary_frequencies(config, 64);
  config.scaling = nn::RotaryConfig::Scaling::llama3;
  const std::vector<double> scaled = nn::rotary_frequencies(config, 64);
  for (std::size_t j = 0; j < plain.size(); ++j) {
    const double wavelength = 2 * std::numbers::pi / plain[j];
    if (wavelength < 250) CHECK(scaled[j] == plain[j]);
    if (wavelength > 1000) CHECK(scaled[j] == Approx(plain[j] / 8));
    if (wavelength > 250 && wavelength < 1000)
      CHECK((scaled[j] < plain[j] && scaled[j] > plain[j] / 8));
  }
  config.scaling = nn::RotaryConfig::Scaling::linear;
  CHECK(nn::rotary_frequencies(config, 64)[3] == Approx(plain[3] / 8));
  config.scaling = nn::RotaryConfig::Scaling::divided;
  config.divisors = {1, 4};
  CHECK(nn::rotary_frequencies(config, 4) == std::vector<double>{1, 0.0025});
  CHECK(throws([&] { nn::rotary_frequencies(config, 6); }, "2 divisors of 3 frequencies"));
  CHECK(throws([&] { nn::rotary_frequencies(config, 3); }, "3 features are no pairs"));
}

TEST_CASE("inputs that do not fit a decoder are refused") {
  const auto models = both();
  const Tensor ids = Tensor::from(some_ids(4), {1, 4});
  CHECK(throws(
      [&] {
        logits_of(*models[0], Tensor::from(some_ids(13), {1, 13}));
      },
      "positions: 12 where the model has 12"));
  CHECK(throws([&] { logits_of(*models[1], to_dtype(ids, Dtype::f32)); }, "i64 [n, t] is needed"));
  CHECK(throws(
      [&] {
        logits_of(*models[1], ids, Tensor::from<std::int64_t>({1, 2, 1, 1}, {1, 4}));
      },
      "attention_mask: 2 is neither"));
  CHECK(throws([] { nn::gpt2_config("gpt3"); }, "no size is called gpt3"));
  CHECK(nn::gpt2_config("gpt2-medium").width == 1024);
  nn::LlamaConfig uneven = small_llama();
  uneven.kv_heads = 3;
  CHECK(throws([&] { nn::Llama{uneven}; }, "4 heads of queries are no multiple of 3"));
}
