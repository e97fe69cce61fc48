// Functions composed of other operations, each checked by the laws of gradients and samples.
// File tags: [simd]
#include "autograd/op.h"
#include "autograd/ops.h"
#include "core/random/philox.h"
#include "nn/functional.h"
#include "nn/layers/attention_layers.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

using Vars = std::vector<Var>;

constexpr testing::CheckOptions few{.instances = 4};

// A function of one value [n, 4] in [low, high), tested batched and as a parameter.
struct Unary {
  const char* name;
  Var (*f)(const Var& x);
  double low = -3, high = 3;
};

const Unary unaries[] = {
    {"relu6", [](const Var& x) { return relu6(x); }, -4, 9},
    {"leaky_relu", [](const Var& x) { return leaky_relu(x, 0.2); }},
    {"celu", [](const Var& x) { return celu(x, 0.7); }},
    {"gelu_tanh", [](const Var& x) { return gelu_tanh(x); }},
    {"silu", [](const Var& x) { return silu(x); }},
    {"mish", [](const Var& x) { return mish(x); }},
    {"logsigmoid", [](const Var& x) { return logsigmoid(x); }},
    {"clamp", [](const Var& x) { return clamp(x, -1, 2); }},
    {"hardtanh", [](const Var& x) { return hardtanh(x); }},
    {"hardswish", [](const Var& x) { return hardswish(x); }, -5, 5},
    {"hardsigmoid", [](const Var& x) { return hardsigmoid(x); }, -5, 5},
    {"hardshrink", [](const Var& x) { return hardshrink(x, 0.4); }},
    {"softshrink", [](const Var& x) { return softshrink(x, 0.4); }},
    {"threshold", [](const Var& x) { return threshold(x, 0.5, -1); }},
    {"tanhshrink", [](const Var& x) { return tanhshrink(x); }},
    {"tempered_sigmoid", [](const Var& x) { return tempered_sigmoid(x, 1.5, 3, 0.2); }},
    {"tan", [](const Var& x) { return tan(x); }, -1, 1},
    {"asin", [](const Var& x) { return asin(x); }, -0.9, 0.9},
    {"atan", [](const Var& x) { return atan(x); }},
    {"sinh", [](const Var& x) { return sinh(x); }},
    {"cosh", [](const Var& x) { return cosh(x); }},
    {"asinh", [](const Var& x) { return asinh(x); }},
    {"acosh", [](const Var& x) { return acosh(x); }, 1.2, 4},
    {"atanh", [](const Var& x) { return atanh(x); }, -0.9, 0.9},
    {"reciprocal", [](const Var& x) { return reciprocal(x); }, 0.5, 3},
    {"log2", [](const Var& x) { return log2(x); }, 0.5, 3},
    {"log10", [](const Var& x) { return log10(x); }, 0.5, 3},
    {"-x", [](const Var& x) { return -x; }},
    {"2 x + 1", [](const Var& x) { return 2 * x + 1; }},
    {"1 + x 0.5", [](const Var& x) { return 1 + x * 0.5; }},
    {"1 - x", [](const Var& x) { return 1 - x; }},
    {"x - 1", [](const Var& x) { return x - 1; }},
    {"x / 3", [](const Var& x) { return x / 3; }},
    {"2 / x", [](const Var& x) { return 2 / x; }, 0.5, 3},
    {"chunk", [](const Var& x) { return square(chunk(x, 1, 3)[1]); }},
    {"repeat",
     [](const Var& x) {
       return repeat(x, {1, 2});
     }},
    {"amax", [](const Var& x) { return amax(x, {1}); }},
    {"amin", [](const Var& x) { return amin(x, {-1}, true); }},
    {"normalized rows", [](const Var& x) { return p_norm(x, 3, {1}, true); }, 0.5, 3},
};

// A function of two values [n, 4], the second of which may be a target without gradient.
struct Binary {
  const char* name;
  Var (*f)(const Var& x, const Var& y);
  double low = -2, high = 2;
  bool target = true;
};

const Binary binaries[] = {
    {"squared_error", [](const Var& x, const Var& t) { return squared_error(x, t); }},
    {"absolute_error",
     [](const Var& x, const Var& t) { return absolute_error(x, t, Within::sum); }},
    {"smooth_l1_loss", [](const Var& x, const Var& t) { return smooth_l1_loss(x, t, 0.7); }},
    {"huber_loss", [](const Var& x, const Var& t) { return huber_loss(x, t, 0.7, Within::none); }},
    {"hinge_loss", [](const Var& x, const Var& t) { return hinge_loss(x, t, 0.5); }},
    {"kl_div", [](const Var& x, const Var& t) { return kl_div(log_softmax(x), softmax(t)); }},
    {"kl_div of logarithms",
     [](const Var& x, const Var& t) { return kl_div(log_softmax(x), log_softmax(t), true); }},
    {"poisson_nll_loss", [](const Var& x, const Var& t) { return poisson_nll_loss(x, exp(t)); }},
    {"binary_cross_entropy",
     // Probabilities that are 0 in f32 have a logarithm of -100 there.
     [](const Var& x, const Var& t) {
       return binary_cross_entropy(sigmoid(affine(x, 0.5, 0)), sigmoid(t));
     }},
    {"binary_cross_entropy_with_logits",
     [](const Var& x, const Var& t) {
       return binary_cross_entropy_with_logits(x, sigmoid(t), {.weight = {}, .pos_weight = {}});
     }},
    {"soft_cross_entropy",
     [](const Var& x, const Var& t) {
       return soft_cross_entropy(x, softmax(t), {.class_axis = 1, .label_smoothing = 0.1});
     }},
    {"reduce_within",
     [](const Var& x, const Var& t) { return reduce_within(x * t, Within::mean); }},
    {"minimum", [](const Var& x, const Var& y) { return minimum(x, y); }, -2, 2, false},
    {"power", [](const Var& x, const Var& y) { return power(x, y); }, 0.5, 2, false},
    {"masked_fill",
     [](const Var& x, const Var& t) { return masked_fill(x, greater(t, affine(t, 0, 0)), 3); }},
    {"greater_equal", [](const Var& x, const Var& t) { return where(greater_equal(x, t), x, t); }},
    {"less", [](const Var& x, const Var& t) { return where(less(x, t), x, square(x)); }},
    {"less_equal",
     [](const Var& x, const Var& t) { return where(less_equal(x, t), x, square(x)); }},
    {"equal", [](const Var& x, const Var& t) { return where(equal(x, t), square(x), x); }},
    {"not_equal", [](const Var& x, const Var& t) { return where(not_equal(x, t), x, square(x)); }},
};

void check_function(const char* name, const std::function<testing::Instance(PublicRandom&)>& make) {
  CHECK_NOTHROW(testing::check_op({name, "as a function", make}, few));
}

}  // namespace

TEST_CASE("functions of one value obey the laws") {
  for (const Unary& u : unaries) {
    check_function(u.name, [&u](PublicRandom& random) {
      const Shape shape{draw(random, 1, 4), 4};
      return Instance{{{uniform_values(random, shape, u.low, u.high), 0}},
                      [&u](const Vars& x) { return u.f(x[0]); }};
    });
  }
}

TEST_CASE("functions of two values and losses obey the laws") {
  for (const Binary& b : binaries) {
    check_function(b.name, [&b](PublicRandom& random) {
      const Shape shape{draw(random, 1, 4), 4};
      const auto values = [&] { return uniform_values(random, shape, b.low, b.high); };
      return Instance{{{values(), 0}, {values(), 0, !b.target}},
                      [&b](const Vars& x) { return b.f(x[0], x[1]); }};
    });
  }
}

TEST_CASE("losses against classes obey the laws") {
  check_function("cross_entropy_elements", [](PublicRandom& random) {
    const std::int64_t n = draw(random, 1, 4);
    return Instance{
        {{uniform_values(random, {n, 3, 2}), 0}, {random_ids(random, {n, 2}, 3), 0, false}},
        [](const Vars& x) {
          return cross_entropy_elements(x[0], x[1].value(), {.label_smoothing = 0.2});
        }};
  });
  check_function("nll_loss", [](PublicRandom& random) {
    const std::int64_t n = draw(random, 1, 4);
    return Instance{
        {{uniform_values(random, {n, 3, 2}), 0}, {random_ids(random, {n, 2}, 3), 0, false}},
        [](const Vars& x) {
          return nll_loss(x[0], x[1].value(), {.ignore_index = 1, .class_weights = {}});
        }};
  });
}

TEST_CASE("pools over images obey the laws") {
  const auto images = [](PublicRandom& random, std::function<Var(const Var&)> f) {
    return Instance{{{uniform_values(random, {draw(random, 1, 3), 2, 5, 4}, 0.5, 2), 0}},
                    [f](const Vars& x) { return f(x[0]); }};
  };
  check_function("adaptive_max_pool", [&](PublicRandom& random) {
    return images(random, [](const Var& x) { return adaptive_max_pool(x, {2, 3}); });
  });
  check_function("lp_pool", [&](PublicRandom& random) {
    return images(random, [](const Var& x) { return lp_pool(x, 3, {.kernel = {2}}); });
  });
}

TEST_CASE("functions of shared weights obey the laws") {
  const auto used = [](PublicRandom& random, std::vector<OpInput> parameters,
                       std::function<Var(const Vars&)> weight) {
    parameters.insert(parameters.begin(), {uniform_values(random, {draw(random, 1, 3), 2, 4}), 0});
    return Instance{parameters, [weight](const Vars& x) {
                      return linear(x[0], weight({x.begin() + 1, x.end()}));
                    }};
  };
  check_function("standardized_weight", [&](PublicRandom& random) {
    return used(random, {parameter(random, {3, 4})},
                [](const Vars& w) { return nn::standardized_weight(w[0]); });
  });
  check_function("normalized_weight", [&](PublicRandom& random) {
    return used(random, {parameter(random, {3, 4}), parameter(random, {3})},
                [](const Vars& w) { return nn::normalized_weight(w[0], w[1]); });
  });
}

TEST_CASE("functions of an empty axis have values") {
  Tape tape;
  const Var x = tape.input(zeros({2, 0}));
  REQUIRE(chunk(x, 1, 2).size() == 1);
  CHECK(chunk(x, 1, 2)[0].shape() == Shape({2, 0}));
  CHECK(pad(x, 1, 0, 0, PadMode::replicate).shape() == Shape({2, 0}));
  CHECK(cumulative_sum(x, 1).shape() == Shape({2, 0}));
  const Tensor mapped = map_axis(x, 1, zeros({3, 0})).value();
  CHECK(mapped.to_vector<float>() == std::vector<float>(6));
  const Var ih = tape.constant(zeros({4, 0})), hh = tape.constant(zeros({4, 4})),
            bias = tape.constant(full({4}, 1));
  const RecurrentWeights w{.ih = ih, .hh = hh, .bias_ih = bias};
  const Var h = recurrent(Cell::relu, tape.input(zeros({2, 3, 0})), w).h;
  CHECK(h.value().to_vector<float>() == std::vector<float>(8, 1));
}

TEST_CASE("counts that would divide by zero are errors") {
  static const Op doubling_op("doubling", {.changes_sample_count = true});
  Tape tape, empty;
  const Var image = tape.input(zeros({2, 4, 1, 1})), sequence = tape.input(zeros({2, 3, 4}));
  CHECK(throws([&] { pixel_shuffle(image, std::int64_t{1} << 32); }, "pixel_shuffle"));
  const nn::AttentionWeights weights{.in_proj_weight = tape.constant(zeros({12, 4}))};
  CHECK(
      throws([&] { nn::multihead_attention(sequence, sequence, sequence, weights, {.heads = 0}); },
             "multihead_attention: 0 heads of 4 features"));
  const Var none = empty.input(zeros({0, 3}));
  CHECK(throws(
      [&] {
        empty.record(doubling_op, {none}, zeros({2, 3}), 0, nullptr);
      },
      "doubling: 2 rows for 0 samples"));
}

TEST_CASE("operators with a number on either side have the values of the field") {
  const std::vector<double> x{0.5, -2, 4};
  const auto check_values = [&](auto f) {
    Tape tape;
    const Var y = f(tape.input(Tensor::from(x, {3, 1})));
    for (std::int64_t k = 0; k < 3; ++k) {
      CHECK(y.value().at({k, 0}) == Approx(f(x[static_cast<std::size_t>(k)])).epsilon(1e-15));
    }
  };
  check_values([](const auto& v) { return -v; });
  check_values([](const auto& v) { return 2 * v + 1; });
  check_values([](const auto& v) { return 1 + v * 3; });
  check_values([](const auto& v) { return 1 - v; });
  check_values([](const auto& v) { return v - 1; });
  check_values([](const auto& v) { return v / 3; });
  check_values([](const auto& v) { return 2 / v; });
}
