#include "nn/models/generate.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/frozen.h"

namespace sotto::nn {

namespace {

// The Philox stream of drawn tokens: ASCII "tokens".
constexpr std::uint64_t token_stream = 0x746f6b656e730000;

void check_options(const GenerateOptions& options) {
  check(options.temperature >= 0 && std::isfinite(options.temperature), "generate: temperature {}",
        options.temperature);
  check(options.top_p > 0 && options.top_p <= 1, "generate: top_p {} outside (0, 1]",
        options.top_p);
  check(options.top_k >= 0 && options.max_tokens >= 0, "generate: top_k {} and max_tokens {}",
        options.top_k, options.max_tokens);
}

// The logits of the token behind `ids`.
Tensor next_logits(LanguageModel& model, std::span<const std::int64_t> ids, KeyValueCache& cache,
                   Device device) {
  Tape tape({.training = false});
  const Tensor row = Tensor::from(ids, {1, static_cast<std::int64_t>(ids.size())});
  return model.next(tape.input(row.to(device)), cache).value().select(0, 0).to(cpu);
}

// The first tokens of `order` whose weights reach the share of their sum.
std::size_t nucleus(const std::vector<double>& weights, double share) {
  const double all = std::accumulate(weights.begin(), weights.end(), 0.0);
  double sum = 0;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    sum += weights[i];
    if (sum >= share * all) return i + 1;
  }
  return weights.size();
}

}  // namespace

std::int64_t sample_token(const Tensor& logits, const GenerateOptions& options, double u) {
  const std::vector<double> x = to_dtype(logits, Dtype::f64).to_vector<double>();
  check(!x.empty(), "generate: no logits");
  for (const double value : x) check(!std::isnan(value), "generate: a logit is NaN");
  if (options.temperature == 0) return std::max_element(x.begin(), x.end()) - x.begin();
  std::vector<std::int64_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  const auto likelier = [&](std::int64_t a, std::int64_t b) {
    const double left = x[static_cast<std::size_t>(a)], right = x[static_cast<std::size_t>(b)];
    return left > right || (left == right && a < b);
  };
  const std::size_t most = options.top_k > 0
                               ? std::min(order.size(), static_cast<std::size_t>(options.top_k))
                               : order.size();
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most), order.end(),
                    likelier);
  order.resize(most);
  const double largest = x[static_cast<std::size_t>(order[0])];
  std::vector<double> weights;
  for (const std::int64_t token : order) {
    weights.push_back(
        std::exp((x[static_cast<std::size_t>(token)] - largest) / options.temperature));
  }
  weights.resize(nucleus(weights, options.top_p));
  double left = u * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order[weights.size() - 1];
}

std::vector<std::int64_t> generate(LanguageModel& model, std::span<const std::int64_t> prompt,
                                   const GenerateOptions& options) {
  check_options(options);
  check(!prompt.empty(), "generate: the prompt has no tokens");
  const Frozen frozen(model);
  const Device device = device_of(model);
  KeyValueCache cache;
  std::vector<std::int64_t> text;
  std::span<const std::int64_t> unread = prompt;
  while (static_cast<std::int64_t>(text.size()) < options.max_tokens) {
    const auto length = static_cast<std::int64_t>(prompt.size() + text.size());
    if (!text.empty() && model.max_tokens() > 0 && length > model.max_tokens()) break;
    const double u = uniform({options.seed, token_stream}, text.size());
    const std::int64_t token = sample_token(next_logits(model, unread, cache, device), options, u);
    if (std::find(options.stop.begin(), options.stop.end(), token) != options.stop.end()) break;
    text.push_back(token);
    if (options.on_token && !options.on_token(token)) break;
    unread = std::span(text).last(1);
  }
  return text;
}

}  // namespace sotto::nn
