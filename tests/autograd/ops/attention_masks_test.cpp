// Attention masks by their types, in every place that takes them.
// File tags: [gpu][engine]
#include "autograd/ops.h"
#include "autograd/sink.h"
#include "core/devices.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

constexpr Dtype hiding_types[] = {Dtype::i64, Dtype::boolean, Dtype::u8, Dtype::i32};
constexpr Dtype adding_types[] = {Dtype::f32, Dtype::f64, Dtype::f16, Dtype::bf16};
constexpr std::int64_t n = 2, heads = 2, keys = 3, width = 4;

Tensor values(std::uint64_t key, const Shape& shape) {
  PublicRandom random(key);
  std::vector<double> all(static_cast<std::size_t>(shape.numel()));
  for (double& value : all) value = random.normal();
  return to_dtype(Tensor::from(all, shape), Dtype::f32);
}

std::vector<float> floats(const Tensor& x) {
  return to_dtype(contiguous(x.to(cpu)), Dtype::f32).to_vector<float>();
}

// Hides the last key of the first sample and the first one of the second.
Tensor padding(Dtype dtype) { return Tensor::from({0, 0, 1, 1, 0, 0}, {n, keys}, dtype); }
Tensor of_keys(const std::vector<double>& mask, Dtype dtype) {
  return to_dtype(Tensor::from(mask, {keys, keys}), dtype);
}

// A result of each place that takes a mask of [n, heads, queries, keys] or what broadcasts to it.
std::vector<Tensor> results(const Tensor& mask, Device device, Dtype precision = Dtype::f32) {
  Tape tape({.precision = precision});
  const auto input = [&](std::uint64_t key) {
    return tape.input(values(key, {n, heads, keys, width}).to(device), 0, true);
  };
  const Var q = input(1), k = input(2), v = input(3);
  const Var on_tape = mask.rank() == 2 ? tape.constant(mask) : tape.input(mask);
  const std::vector<Var> masks{on_tape}, many(5, on_tape);
  const Var y = attention(q, k, v, masks);
  std::vector<Tensor> all{y.value(), attention(q, k, v, many).value(),
                          attention(q, k, v, masks, {.causal = true}).value(),
                          attention_weights(q, k, masks).value()};
  SumSink sink;
  tape.backward(sum_per_sample(to_f32(y)), sink);
  for (const Var& x : {q, k, v}) all.push_back(tape.grad(x));
  return all;
}

// A result of each layer and function with the masks, with added keys or not.
std::vector<Tensor> results_of_layers(const std::optional<Tensor>& key_padding,
                                      const std::optional<Tensor>& mask, Device device) {
  nn::manual_seed(3);
  nn::MultiheadAttention plain(width, heads, {.batch_first = true}),
      extended(width, heads, {.add_bias_kv = true, .add_zero_attn = true, .batch_first = true});
  nn::TransformerEncoderLayer encoder(width, heads,
                                      {.dim_feedforward = 4, .dropout = 0, .batch_first = true});
  nn::TransformerDecoderLayer decoder(width, heads,
                                      {.dim_feedforward = 4, .dropout = 0, .batch_first = true});
  for (nn::Module* layer :
       std::initializer_list<nn::Module*>{&plain, &extended, &encoder, &decoder})
    layer->to(device);
  Tape tape;
  const Var x = tape.input(values(4, {n, keys, width}).to(device));
  const nn::AttentionMasks masks{
      key_padding ? std::optional(tape.input(*key_padding)) : std::nullopt,
      mask ? std::optional(tape.constant(*mask)) : std::nullopt};
  std::vector<Tensor> all;
  for (nn::MultiheadAttention* layer : {&plain, &extended}) {
    all.push_back(layer->forward(x, x, x, masks).value());
    all.push_back(layer->weights(x, x, x, masks).value());
  }
  all.push_back(encoder.forward(x, masks).value());
  all.push_back(decoder.forward(x, x, masks, masks).value());
  return all;
}

void check_equal(const std::vector<Tensor>& got, const std::vector<Tensor>& expected) {
  REQUIRE(got.size() == expected.size());
  for (std::size_t k = 0; k < got.size(); ++k) {
    INFO("result " << k);
    CHECK(floats(got[k]) == floats(expected[k]));
  }
}

}  // namespace

TEST_CASE("boolean and integer masks hide alike in attention, on every device and in 16 bits") {
  for (const DeviceInfo& info : devices()) {
    for (const Dtype precision : {Dtype::f32, Dtype::bf16}) {
      const auto with = [&](Dtype dtype) {
        const Tensor mask = padding(dtype).unsqueeze(1).unsqueeze(1);
        return results(mask, info.device, precision);
      };
      const std::vector<Tensor> expected = with(Dtype::i64);
      const Tensor weights = expected[3].to(cpu);
      CHECK(sum(to_dtype(weights.select(0, 0).select(2, 2), Dtype::f64)).item() == 0);
      CHECK(sum(to_dtype(weights.select(0, 1).select(2, 0), Dtype::f64)).item() == 0);
      for (const Dtype dtype : hiding_types) {
        INFO(name(dtype) << " in " << name(precision) << " on " << info.name);
        check_equal(with(dtype), expected);
      }
    }
  }
}

TEST_CASE("layers and their functions take boolean and integer masks as i64 ones") {
  const std::vector<double> later{0, 1, 1, 0, 0, 1, 0, 0, 0};
  for (const DeviceInfo& info : devices()) {
    const auto with = [&](Dtype dtype) {
      return results_of_layers(padding(dtype), of_keys(later, dtype), info.device);
    };
    const std::vector<Tensor> expected = with(Dtype::i64);
    for (const Dtype dtype : hiding_types) {
      INFO(name(dtype) << " on " << info.name);
      check_equal(with(dtype), expected);
    }
  }
}

TEST_CASE("a hidden key's value does not matter") {
  for (const Dtype dtype : hiding_types) {
    nn::manual_seed(1);
    nn::MultiheadAttention layer(2, 1, {.batch_first = true});
    const auto first_position = [&](double hidden) {
      Tape tape;
      const Var x = tape.input(Tensor::from({1, 0, 0, 1, hidden, hidden}, {1, 3, 2}, Dtype::f32));
      const Var mask = tape.input(Tensor::from({0, 0, 1}, {1, 3}, dtype));
      return floats(layer.forward(x, x, x, {.key_padding = mask}).value().select(1, 0));
    };
    CHECK(first_position(0) == first_position(5));
    Tape tape;
    CHECK(score_mask(tape.input(padding(dtype))).dtype() == Dtype::i64);
  }
}

TEST_CASE("floating-point masks of every type are added, in the weights and in attention") {
  const std::vector<double> term{0, -1, 0.5, 2, 0, -HUGE_VAL, 0, 0, -0.25};
  for (const DeviceInfo& info : devices()) {
    const auto with = [&](Dtype dtype) {
      std::vector<Tensor> all = results(of_keys(term, dtype), info.device),
                          layers = results_of_layers({}, of_keys(term, dtype), info.device);
      all.insert(all.end(), layers.begin(), layers.end());
      return all;
    };
    const std::vector<Tensor> expected = with(Dtype::f32);
    for (const Dtype dtype : adding_types) {
      INFO(name(dtype) << " on " << info.name);
      check_equal(with(dtype), expected);
    }
  }
}

TEST_CASE("a floating-point mask of padding is refused by name") {
  for (const Dtype dtype : adding_types)
    CHECK(throws([&] { results_of_layers(padding(dtype), {}, cpu); },
                 fmt::format("multihead_attention: key_padding is {}", name(dtype))));
}
