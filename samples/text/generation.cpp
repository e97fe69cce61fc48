#include "samples/text/generation.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/ops.h"
#include "core/error.h"
#include "core/io/utf8.h"
#include "core/random/philox.h"

namespace sotto::text {

namespace {

constexpr std::int64_t max_length = 1 << 20;

// The scores of each symbol as the next one, after the last symbols of a unit that fit the context.
std::vector<float> next_scores(Network& network, const TextModel& model,
                               const std::vector<std::int64_t>& unit) {
  const std::int64_t before = std::min(std::ssize(unit), model.context - 1);
  std::vector<std::int64_t> inputs{TextVocabulary::end};
  inputs.insert(inputs.end(), unit.end() - before, unit.end());
  const Device device = network.parameters().front()->value.device();
  const std::int64_t t = std::ssize(inputs);
  const Dataset row{.inputs = Tensor::from(inputs, {1, t}).to(device),
                    .targets = Tensor::from(std::vector<std::int64_t>{0}, {1}).to(device),
                    .fields = {{"lengths", Tensor::from(std::vector{t}, {1}).to(device)}}};
  Tape tape({.training = false});
  const Var outputs = forward_rows(network, tape, row);
  return select(outputs, 1, t - 1).value().to(cpu).to_vector<float>();
}

// Draws a symbol from the softmax of the scores over the temperature.
std::int64_t draw(const std::vector<float>& scores, double temperature, PublicRandom& random) {
  const auto best = std::max_element(scores.begin(), scores.end());
  if (temperature == 0) return best - scores.begin();
  std::vector<double> sums;
  double sum = 0;
  for (const float score : scores) {
    sum += std::exp((score - *best) / temperature);
    sums.push_back(sum);
  }
  const auto found = std::upper_bound(sums.begin(), sums.end(), random.uniform() * sum);
  return std::min<std::int64_t>(found - sums.begin(), std::ssize(scores) - 1);
}

std::vector<std::int64_t> encoded_prompt(const TextVocabulary& vocabulary,
                                         const std::string& prompt) {
  try {
    return vocabulary.encode(prompt);
  } catch (const std::invalid_argument& error) {
    fail(fmt::format("--prompt: {}", error.what()));
  }
}

// Text to print: each byte that is not UTF-8, and each control character, is U+FFFD.
std::string readable(const std::string& text) {
  std::string y;
  for (std::size_t at = 0; at < text.size();) {
    const auto [code, bytes] = utf8_character(text, at);
    const bool control =
        (code < 0x20 && code != '\n' && code != '\t') || (code >= 0x7f && code < 0xa0);
    y += bytes == 0 || control ? "\xef\xbf\xbd" : text.substr(at, bytes);
    at += std::max<std::size_t>(bytes, 1);
  }
  return y;
}

}  // namespace

std::string generate_text(Network& network, const TextModel& model,
                          const GenerateOptions& options) {
  check(options.length >= 1 && options.length <= max_length, "--length: {} is not from 1 to {}",
        options.length, max_length);
  check(std::isfinite(options.temperature) && options.temperature >= 0,
        "--temperature: {} is not a number from 0", options.temperature);
  const TextVocabulary vocabulary = model.vocabulary();
  std::vector<std::int64_t> unit = encoded_prompt(vocabulary, options.prompt);
  std::string text = options.prompt;
  PublicRandom random(options.seed);
  for (std::int64_t k = 0; k < options.length; ++k) {
    std::vector<float> scores = next_scores(network, model, unit);
    if (unit.empty())
      scores[TextVocabulary::end] = -std::numeric_limits<float>::infinity();  // no unit is empty
    const std::int64_t next = draw(scores, options.temperature, random);
    if (next == TextVocabulary::end) {
      text += model.unit == "line" ? "\n" : "\n\n";
      unit.clear();
    } else {
      text += vocabulary.decode({&next, 1});
      unit.push_back(next);
    }
  }
  return readable(text);
}

}  // namespace sotto::text
