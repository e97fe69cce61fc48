// Attention against its definition, also in blocks of queries, and its use of memory.
// File tags: [engine][simd]
#include <algorithm>
#include <map>

#include "autograd/check/op_run.h"
#include "autograd/ops.h"
#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "core/devices.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

Tensor normal_values(PublicRandom& random, const Shape& shape) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (double& value : values) value = random.normal();
  return Tensor::from(values, shape);
}

struct Result {
  Tensor y;
  std::vector<Tensor> grads;
};

using Function = std::function<Var(const Var&, const Var&, const Var&)>;

Result run(const Function& f, const std::vector<Tensor>& x, const Tensor& weights,
           const TapeOptions& options = {.seed = 3}) {
  Tape tape(options);
  std::vector<Var> v;
  for (const Tensor& t : x) v.push_back(tape.input(t, 0, true));
  const Var y = f(v[0], v[1], v[2]);
  SumSink sink;
  tape.backward(sum_per_sample(mul(y, tape.input(weights))), sink);
  return {y.value(), {tape.grad(v[0]), tape.grad(v[1]), tape.grad(v[2])}};
}

double max_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> u = a.to_vector<double>(), v = b.to_vector<double>();
  double max = 0;
  for (std::size_t i = 0; i < u.size(); ++i) max = std::max(max, std::abs(u[i] - v[i]));
  return max;
}

// The relative error of the root mean square.
double relative_error(const Tensor& got, const Tensor& expected) {
  const std::vector<double> u = to_dtype(got, Dtype::f64).to_vector<double>(),
                            v = expected.to_vector<double>();
  double error = 0, size = 0;
  for (std::size_t i = 0; i < v.size(); ++i) {
    error += (u[i] - v[i]) * (u[i] - v[i]);
    size += v[i] * v[i];
  }
  return std::sqrt(error / size);
}

// 700 x 900 scores exceed one block; 5 x 6 are one of many slices in a block.
const Shape sizes[] = {{1, 2, 700, 900}, {3, 2, 5, 6}};

// Two masks for scores [n, heads, a, b]: hidden keys per sample, and a term added for all samples.
std::vector<Tensor> two_masks(PublicRandom& random, const Shape& size) {
  std::vector<std::int64_t> hidden(static_cast<std::size_t>(size[0] * size[3]));
  for (std::int64_t& hides : hidden) hides = random.normal() > 0.8;
  return {Tensor::from(hidden, {size[0], 1, 1, size[3]}),
          normal_values(random, {size[2], size[3]})};
}

}  // namespace

TEST_CASE("attention is the softmax of scaled scores times the values, whatever the blocks") {
  PublicRandom random(8);
  for (const Shape& size : sizes) {
    const Shape lead{size[0], size[1]};
    const std::vector<Tensor> x{normal_values(random, {size[0], size[1], size[2], 4}),
                                normal_values(random, {size[0], size[1], size[3], 4}),
                                normal_values(random, {size[0], size[1], size[3], 3})};
    const Tensor weights = normal_values(random, {size[0], size[1], size[2], 3});
    const std::vector<Tensor> masks = two_masks(random, size);
    for (const AttentionOptions& options :
         {AttentionOptions{}, {.causal = true}, {.causal = true, .always_visible = 2}}) {
      for (const std::size_t count : {0, 2}) {
        const auto masks_on = [&](Tape& tape) {
          std::vector<Var> on_tape;
          if (count > 0) on_tape = {tape.input(masks[0]), tape.constant(masks[1])};
          return on_tape;
        };
        const Result got =
            run([&](const Var& q, const Var& k,
                    const Var& v) { return attention(q, k, v, masks_on(q.tape()), options); },
                x, weights);
        const Result expected = run(
            [&](const Var& q, const Var& k, const Var& v) {
              return matmul(attention_weights(q, k, masks_on(q.tape()), options), v);
            },
            x, weights);
        CHECK(max_difference(got.y, expected.y) < 1e-12);
        for (std::size_t i = 0; i < 3; ++i)
          CHECK(max_difference(got.grads[i], expected.grads[i]) < 1e-11);
      }
    }
  }
}

TEST_CASE("attention in 16 bits loses no more than 16-bit rounding, however different scores are",
          "[gpu]") {
  PublicRandom random(22);
  constexpr std::int64_t width = 64;
  const Function f = [](const Var& q, const Var& k, const Var& v) {
    return attention(q, k, v, {}, {.always_visible = 2});
  };
  for (const Dtype narrow : {Dtype::bf16, Dtype::f16}) {
    const double rounding = narrow == Dtype::bf16 ? 0x1p-8 : 0x1p-11;
    // Values representable in 16 bits. Scores differ by some hundred before they are scaled.
    const auto numbers = [&](const Shape& shape, double size) {
      return to_dtype(to_dtype(scale(normal_values(random, shape), size), narrow), Dtype::f64);
    };
    for (const Shape& size : sizes) {
      const Shape queries{size[0], size[1], size[2], width}, keys{size[0], size[1], size[3], width};
      const std::vector<Tensor> x{numbers(queries, 3), numbers(keys, 3), numbers(keys, 1)};
      const Tensor grads = numbers(queries, 1);
      const Result expected = run(f, x, grads);
      for (const DeviceInfo& info : devices()) {
        INFO(name(narrow) << ' ' << to_string(size) << " on " << info.name);
        std::vector<Tensor> there;
        for (const Tensor& t : x) there.push_back(to_dtype(t, Dtype::f32).to(info.device));
        const Result got =
            run(f, there, to_dtype(grads, Dtype::f32).to(info.device), {.precision = narrow});
        CHECK(got.y.dtype() == narrow);
        CHECK(relative_error(got.y, expected.y) < rounding);
        for (std::size_t i = 0; i < 3; ++i)
          CHECK(relative_error(got.grads[i], expected.grads[i]) < rounding);
      }
    }
  }
}

TEST_CASE("attention of no queries is empty, and of no keys zero") {
  const Tensor none = zeros({2, 0, 4}, Dtype::f64), some = full({2, 3, 4}, 1, Dtype::f64);
  for (const double dropout : {0.0, 0.5}) {
    const Function f = [dropout](const Var& q, const Var& k, const Var& v) {
      return attention(q, k, v, {}, {.dropout = dropout});
    };
    const Result no_queries = run(f, {none, some, some}, none),
                 no_keys = run(f, {some, none, none}, some);
    CHECK(no_queries.y.shape() == Shape({2, 0, 4}));
    for (const std::size_t i : {1, 2})
      CHECK(max_difference(no_queries.grads[i], zeros_like(some)) == 0);
    CHECK(max_difference(no_keys.y, zeros_like(some)) == 0);
    CHECK(max_difference(no_keys.grads[0], zeros_like(some)) == 0);
    const Tensor no_heads = zeros({2, 0, 3, 4}, Dtype::f64), no_rows = zeros({0, 3, 4}, Dtype::f64);
    for (const Tensor& x : {no_heads, no_rows}) CHECK(run(f, {x, x, x}, x).y.shape() == x.shape());
  }
}

TEST_CASE("attention of no features is the mean of the values") {
  PublicRandom random(23);
  const Tensor none = zeros({2, 3, 0}, Dtype::f64), v = normal_values(random, {2, 3, 4});
  const Result y = run([](const Var& q, const Var& k, const Var& x) { return attention(q, k, x); },
                       {none, none, v}, v);
  CHECK(max_difference(y.y, scale(sum(v, {1}, true), 1.0 / 3).expand({2, 3, 4})) < 1e-12);
}

TEST_CASE("any number of masks is applied to scores, in order") {
  PublicRandom random(20);
  const Tensor x = normal_values(random, {2, 3, 4});
  std::vector<Tensor> masks(6, normal_values(random, {3, 3}));
  masks[4] = Tensor::from(std::vector<std::int64_t>{0, 1, 0}, {1, 3});
  const auto with = [&](std::vector<Tensor> used) {
    return run(
        [&](const Var& q, const Var& k, const Var& v) {
          std::vector<Var> on_tape;
          for (const Tensor& mask : used) on_tape.push_back(q.tape().constant(mask));
          return attention(q, k, v, on_tape);
        },
        {x, x, x}, x);
  };
  const Result six = with(masks), two = with({scale(masks[0], 5), masks[4]});
  CHECK(max_difference(six.y, two.y) < 1e-12);
  CHECK(max_difference(six.grads[1], two.grads[1]) < 1e-11);
}

TEST_CASE("attention stores no tensor as large as queries times keys") {
  PublicRandom random(9);
  const std::int64_t n = 2, t = 1500;
  const std::vector<Tensor> x(3, normal_values(random, {n, 1, t, 4}));
  Allocator& memory = allocator(cpu);
  const std::size_t before = memory.statistics().current;
  memory.reset_peak();
  run([](const Var& q, const Var& k, const Var& v) { return attention(q, k, v); }, x, x[0]);
  const auto scores = static_cast<std::size_t>(n * t * t) * sizeof(double);
  CHECK(memory.statistics().peak - before < scores);
}

TEST_CASE("dropout of attention weights does not depend on the split into physical batches") {
  PublicRandom random(10);
  const Tensor x = normal_values(random, {4, 2, 5, 3}),
               weights = normal_values(random, {4, 2, 5, 3});
  const Function f = [](const Var& q, const Var& k, const Var& v) {
    return attention(q, k, v, {}, {.dropout = 0.4});
  };
  const Result whole = run(f, {x, x, x}, weights);
  const Tensor part = x.slice(0, 2, 4);
  const Result half =
      run(f, {part, part, part}, weights.slice(0, 2, 4), {.seed = 3, .first_row = 2});
  CHECK(max_difference(whole.y.slice(0, 2, 4), half.y) == 0);
  CHECK(max_difference(whole.grads[1].slice(0, 2, 4), half.grads[1]) == 0);
  const Result plain =
      run([](const Var& q, const Var& k, const Var& v) { return attention(q, k, v); }, {x, x, x},
          weights);
  CHECK(max_difference(plain.y, whole.y) > 0);
}

// 700 x 700 scores are one block, 800 x 800 several.
TEST_CASE("attention has the same bits whatever longer samples pad others with, with dropout, too",
          "[gate]") {
  PublicRandom random(13);
  const Dtype dtype = GENERATE(Dtype::f64, Dtype::f32);
  const std::int64_t own = GENERATE(5, 17, 40, 700), padded = own + GENERATE(1, 4, 100);
  const AttentionOptions options{
      .causal = GENERATE(false, true), .always_visible = GENERATE(0, 2), .dropout = 0.4};
  const std::int64_t n = 2, heads = 2, width = 4, more = options.always_visible;
  const Tensor x = to_dtype(normal_values(random, {n, heads, padded + more, width}), dtype);
  const auto at = [&](std::int64_t t) {
    const Tensor queries = contiguous(x.slice(2, 0, t)), keys = contiguous(x.slice(2, 0, t + more)),
                 hidden = zeros({t, t + more}, Dtype::i64), weights = zeros(queries.shape(), dtype);
    copy_into(full({}, 1, Dtype::i64), hidden.slice(1, own + more, t + more));
    copy_into(full({}, 1, dtype), weights.slice(2, 0, own));
    const Function f = [&](const Var& q, const Var& k, const Var& v) {
      return attention(q, k, v, {q.tape().constant(hidden)}, options);
    };
    return run(f, {queries, keys, keys}, weights);
  };
  const Result alone = at(own), beside = at(padded);
  const auto same = [](const Tensor& a, const Tensor& b) {
    CHECK(max_difference(to_dtype(a, Dtype::f64),
                         to_dtype(contiguous(b.slice(2, 0, a.size(2))), Dtype::f64)) == 0);
  };
  same(alone.y, beside.y);
  for (std::size_t i = 0; i < alone.grads.size(); ++i) same(alone.grads[i], beside.grads[i]);
}

TEST_CASE("a layer's additional keys do not show how long samples are padded") {
  nn::manual_seed(6);
  PublicRandom random(14);
  nn::MultiheadAttention layer(
      8, 2, {.dropout = 0.3, .add_bias_kv = true, .add_zero_attn = true, .batch_first = true});
  const std::int64_t own = 9;
  const Tensor x = to_dtype(normal_values(random, {1, 500, 8}), Dtype::f32);
  const auto at = [&](std::int64_t t) {
    Tape tape({.seed = 5});
    const Tensor hidden = zeros({1, t}, Dtype::i64), weights = zeros({1, t, 8});
    copy_into(full({}, 1, Dtype::i64), hidden.slice(1, own, t));
    copy_into(full({}, 1), weights.slice(1, 0, own));
    const Var input = tape.input(contiguous(x.slice(1, 0, t)), 0, true);
    const Var y = layer.forward(input, input, input, {.key_padding = tape.input(hidden)});
    SumSink sink;
    tape.backward(sum_per_sample(mul(square(y), tape.input(weights))), sink);
    std::vector<Tensor> result{contiguous(y.value().slice(1, 0, own)),
                               contiguous(tape.grad(input).slice(1, 0, own))};
    for (const auto& [parameter, sum] : sink.gradients()) result.push_back(sum);
    return result;
  };
  const std::vector<Tensor> alone = at(own);
  for (const std::int64_t padded : {10, 33, 390, 500}) {
    const std::vector<Tensor> beside = at(padded);
    for (std::size_t i = 0; i < alone.size(); ++i)
      CHECK(alone[i].to_vector<float>() == beside[i].to_vector<float>());
  }
}

TEST_CASE("the weights that a layer returns are in the order of its keys, additional ones last") {
  nn::manual_seed(7);
  PublicRandom random(15);
  nn::MultiheadAttention layer(8, 2,
                               {.add_bias_kv = true, .add_zero_attn = true, .batch_first = true});
  const Tensor x = to_dtype(normal_values(random, {1, 4, 8}), Dtype::f32);
  for (std::int64_t key = 0; key < 4; ++key) {
    Tape tape;
    const Tensor hidden = zeros({1, 4}, Dtype::i64);
    copy_into(full({}, 1, Dtype::i64), hidden.slice(1, key, key + 1));
    const Var input = tape.input(x);
    const Tensor weights =
        layer.weights(input, input, input, {.key_padding = tape.input(hidden)}, false).value();
    REQUIRE(weights.shape() == Shape{1, 2, 4, 6});
    for (std::int64_t s = 0; s < 6; ++s) {
      for (const float weight : contiguous(weights.select(3, s)).to_vector<float>())
        CHECK((weight == 0) == (s == key));
    }
  }
}

TEST_CASE("dropout of attention weights drops or keeps each, and scales up the kept ones") {
  const std::int64_t keys = 10;
  const double rate = 0.4;
  const Tensor x = zeros({3, 2, 50, keys}, Dtype::f64),
               weights = full({3, 2, 50, keys}, 1, Dtype::f64);
  std::vector<double> identity(static_cast<std::size_t>(keys * keys));
  for (std::size_t i = 0; i < identity.size(); i += keys + 1) identity[i] = 1;
  const Tensor v = contiguous(Tensor::from(identity, {keys, keys}).expand({3, 2, keys, keys}));
  const Tensor k = zeros({3, 2, keys, keys}, Dtype::f64);
  const Result got =
      run([&](const Var& q, const Var& key,
              const Var& value) { return attention(q, key, value, {}, {.dropout = rate}); },
          {x, k, v}, weights);
  const std::vector<double> used = got.y.to_vector<double>();
  const double kept = 1 / (static_cast<double>(keys) * (1 - rate));
  const auto count = std::count(used.begin(), used.end(), 0.0);
  for (const double weight : used) CHECK((weight == 0 || std::abs(weight - kept) < 1e-15));
  const double share = static_cast<double>(count) / static_cast<double>(used.size());
  CHECK(share == Approx(rate).margin(0.04));
  // The gradient of value s is the sum of the weights of key s.
  CHECK(sum(got.grads[2].slice(3, 0, 1)).item() ==
        Approx(static_cast<double>(std::ssize(used) - count) * kept));
}

TEST_CASE("batch-first attention with several heads has the norms of its samples alone") {
  nn::manual_seed(5);
  PublicRandom random(11);
  nn::MultiheadAttention layer(8, 4,
                               {.add_bias_kv = true, .add_zero_attn = true, .batch_first = true});
  const Tensor x = to_dtype(normal_values(random, {3, 5, 8}), Dtype::f32);
  const auto norms = [&](const Tensor& batch, ClipPasses passes) {
    Clipper clipper(flat_group(layer.parameters(), 1), {}, passes);
    Tape tape({.private_data = true});
    clipper.add(tape, sum_per_sample(square(layer(tape.input(batch)))));
    return clipper.statistics().norms[0];
  };
  for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
    const std::vector<double> together = norms(x, passes);
    for (std::int64_t n = 0; n < 3; ++n) {
      CHECK(together[static_cast<std::size_t>(n)] ==
            Approx(norms(x.slice(0, n, n + 1), passes)[0]).epsilon(1e-5));
    }
  }
}

TEST_CASE(
    "transformer layers have the field's parameter names, and train in either order of norms") {
  for (const bool norm_first : {false, true}) {
    nn::TransformerDecoderLayer layer(
        8, 2, {.dim_feedforward = 16, .batch_first = true, .norm_first = norm_first});
    std::map<std::string, Shape> shapes;
    for (const auto& [name, parameter] : layer.named_parameters())
      shapes[name] = parameter->value.shape();
    CHECK(shapes.size() == 18);
    CHECK(shapes.at("self_attn.in_proj_weight") == Shape({24, 8}));
    CHECK(shapes.at("multihead_attn.out_proj.bias") == Shape({8}));
    CHECK(shapes.at("linear1.weight") == Shape({16, 8}));
    CHECK(shapes.at("norm3.weight") == Shape({8}));
    PublicRandom random(12);
    const Tensor x = to_dtype(normal_values(random, {2, 4, 8}), Dtype::f32),
                 memory = to_dtype(normal_values(random, {2, 6, 8}), Dtype::f32);
    Clipper clipper(flat_group(layer.parameters(), 1));
    Tape tape({.private_data = true});
    const Var y = layer.forward(tape.input(x), tape.input(memory), {.causal = true});
    clipper.add(tape, sum_per_sample(square(y)));
    for (const auto& [parameter, sum] : clipper.clipped_sums()) {
      for (const double v : sum.to_vector<double>()) CHECK(std::isfinite(v));
    }
  }
}

TEST_CASE("attention refuses shapes that do not fit, and samples as positions") {
  Tape tape({.private_data = true});
  const Var x = tape.input(zeros({2, 1, 3, 4})), other = tape.input(zeros({2, 1, 3, 5}));
  CHECK(throws([&] { attention(x, other, x); }, "(2, 1, 3, 5)"));
  const Var along = tape.input(zeros({1, 1, 2, 4}), 2);
  CHECK(throws([&] { attention(along, along, along); }, "attention: combines samples"));
  CHECK(throws([] { nn::MultiheadAttention(10, 3); }, "3 heads of 10 features"));
}

TEST_CASE("a query that may see no key gets zeros, with gradients of zero") {
  PublicRandom random(19);
  const Tensor x = normal_values(random, {2, 3, 4});
  std::vector<std::int64_t> hidden(2 * 3 * 3, 0);
  std::fill_n(hidden.begin(), 3, 1);  // of sample 0, query 0
  for (const bool trained : {false, true}) {
    Tape tape({.private_data = true});
    const Var q = tape.input(x, 0, true);
    std::vector<Var> masks{tape.input(Tensor::from(hidden, {2, 3, 3}))};
    Parameter bias(zeros({3, 3}, x.dtype()));
    if (trained) masks.push_back(tape.use(bias));
    const Var y = attention(q, q, q, masks);
    CHECK(to_dtype(y.value(), Dtype::f64).slice(0, 0, 1).slice(1, 0, 1).to_vector<double>() ==
          std::vector<double>(4, 0.0));
    testing::CollectSink sink;
    tape.backward(sum_per_sample(square(y)), sink);
    for (const double slope : to_dtype(tape.grad(q), Dtype::f64).to_vector<double>())
      CHECK(std::isfinite(slope));
  }
}
