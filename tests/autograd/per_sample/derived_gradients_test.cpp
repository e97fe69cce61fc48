// Gradients that pass the computation of a weight, computed whenever they are read: their bits are
// those of gradients that are written out.
// File tags: [engine][sanitized]
#include <deque>

#include "autograd/ops.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"
#include "core/allocator/allocator.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/functional.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"

namespace sotto {
namespace {

using Uses = std::vector<PerSampleGrad>;

// Keeps what it receives, as a clipper does in one pass, or does not say that it does.
class Received final : public GradSink {
 public:
  explicit Received(bool keeps) : keeps_(keeps) {}
  void receive(Parameter& parameter, Uses uses) override {
    all.emplace_back(&parameter, std::move(uses));
  }
  bool keeps() const override { return keeps_; }
  const Uses& of(const Parameter& parameter) const {
    for (const auto& [known, uses] : all) {
      if (known == &parameter) return uses;
    }
    FAIL("no gradient");
    return all.front().second;
  }

  std::vector<std::pair<Parameter*, Uses>> all;

 private:
  bool keeps_;
};

// A layer with a computed weight: its first parameter is larger than the layer's factors.
struct Layer {
  const char* what;
  std::vector<Shape> parameters;
  Var (*apply)(const Var& images, const std::vector<Var>& parameters);
};

Var once(const Var& x, const Var& w) { return conv(x, w, {}, {.padding = {1}}); }

const Layer layers[] = {
    {"standardised",
     {{24, 8, 3, 3}},
     [](const Var& x, const std::vector<Var>& p) {
       return once(x, nn::standardized_weight(p[0]));
     }},
    {"standardised, with a gain",
     {{24, 8, 3, 3}, {24, 1, 1, 1}},
     [](const Var& x, const std::vector<Var>& p) {
       return once(x, nn::standardized_weight(p[0], 1e-3, p[1]));
     }},
    {"used twice",
     {{24, 8, 3, 3}, {24, 1, 1, 1}},
     [](const Var& x, const std::vector<Var>& p) {
       const Var w = nn::standardized_weight(p[0], 1e-3, p[1]);
       return once(x, w) + once(square(x), w);
     }},
    {"computed twice",
     {{24, 8, 3, 3}},
     [](const Var& x, const std::vector<Var>& p) {
       return once(x, nn::standardized_weight(p[0])) + once(x, p[0] * 2);
     }},
    {"over its norm",
     {{24, 8, 3, 3}, {24}},
     [](const Var& x, const std::vector<Var>& p) {
       return once(x, nn::normalized_weight(p[0], p[1]));
     }},
    {"permuted first",
     {{8, 24, 3, 3}},
     [](const Var& x, const std::vector<Var>& p) {
       return once(x, nn::standardized_weight(permute(p[0], {1, 0, 2, 3})));
     }},
    {"a product, row by row",
     {{40, 40}, {40, 72}},
     [](const Var& x, const std::vector<Var>& p) {
       return linear(flatten(x, 1), matmul(p[0], p[1]));
     }},
    {"times its sum",
     {{40, 72}},
     [](const Var& x, const std::vector<Var>& p) {
       const Var y = linear(flatten(x, 1), p[0]);
       return y * sum(p[0]);
     }},
};

struct Run {
  std::deque<Parameter> parameters;
  Received later{true}, at_once{false};

  Run(const Layer& layer, std::int64_t n, Dtype precision, std::uint64_t seed = 5) {
    PublicRandom random(seed);
    for (const Shape& shape : layer.parameters)
      parameters.emplace_back(to_dtype(uniform_values(random, shape, -1, 1), Dtype::f32));
    const bool product = layer.parameters[0].rank() == 2;
    const Tensor images = to_dtype(uniform_values(random, {n, 8, 3, 3}, -1, 1), Dtype::f32);
    for (Received* sink : {&later, &at_once}) {
      Tape tape({.precision = precision});
      std::vector<Var> used;
      for (Parameter& parameter : parameters) used.push_back(tape.use(parameter));
      const Var y = layer.apply(tape.input(images), used);
      const Var loss = sum_per_sample(product ? square(y) : exp(y * 0.1));
      tape.backward(cast(loss, Dtype::f32), *sink);
    }
  }
};

// Weights of which some are 0.
Tensor weights_of(PublicRandom& random, std::int64_t n) {
  std::vector<double> w;
  for (std::int64_t k = 0; k < n; ++k) w.push_back(k % 3 == 1 ? 0 : random.uniform() - 0.5);
  return Tensor::from(w, {n});
}

Tensor rounded(const Uses& uses, const Tensor& weights) {
  const RoundedSum sum{zeros(uses[0].shape(), Dtype::f64), 0x1p-30};
  for (const PerSampleGrad& use : uses) use.add_to(sum, weights, {}, std::ssize(uses));
  return sum.total;
}

template <class F>
void for_each_layer(F&& f) {
  for (const Layer& layer : layers) {
    for (const Dtype precision : {Dtype::f32, Dtype::bf16}) {
      INFO(layer.what << " in " << name(precision));
      f(layer, precision);
    }
  }
}

TEST_CASE("gradients behind a computed weight are computed later, to the same bits") {
  constexpr std::int64_t n = 7;
  PublicRandom random(3);
  for_each_layer([&](const Layer& layer, Dtype precision) {
    const Run run(layer, n, precision);
    CHECK(run.later.of(run.parameters[0])[0].form() == std::string_view("derived"));
    for (const Parameter& parameter : run.parameters) {
      const Uses &later = run.later.of(parameter), &rows = run.at_once.of(parameter);
      REQUIRE(later.size() == rows.size());
      for (std::size_t u = 0; u < rows.size(); ++u) {
        CHECK(same_bits(later[u].materialize(), rows[u].materialize()));
        CHECK(rows[u].form() != std::string_view("derived"));
      }
      NormErrorBounds bounds, of_rows;
      CHECK(same_bits(squared_norm(later, NormMethod::automatic, &bounds),
                      squared_norm(rows, NormMethod::automatic, &of_rows)));
      CHECK(bounds.error_bounds == of_rows.error_bounds);
      CHECK(bounds.term_norms == of_rows.term_norms);
      const Tensor weights = weights_of(random, n);
      CHECK(same_bits(rounded(later, weights), rounded(rows, weights)));
      CHECK(same_bits(sample_gradient_f64(later, 2, 0.3), sample_gradient_f64(rows, 2, 0.3)));
    }
  });
}

TEST_CASE("a gradient behind a computed weight depends on its own sample only") {
  constexpr std::int64_t n = 7;
  for_each_layer([&](const Layer& layer, Dtype precision) {
    const Run run(layer, n, precision);
    const PerSampleGrad& use = run.later.of(run.parameters[0])[0];
    const Tensor all = use.materialize();
    for (std::int64_t k = 0; k < n; ++k) {
      CHECK(same_bits(use.slice(k, k + 1).materialize(), all.slice(0, k, k + 1)));
      CHECK(same_bits(squared_norm({use.slice(k, k + 1)}), squared_norm({use}).slice(0, k, k + 1)));
    }
  });
}

TEST_CASE("units, sums and products of derived gradients are those of rows") {
  constexpr std::int64_t n = 7;
  PublicRandom random(4);
  for_each_layer([&](const Layer& layer, Dtype precision) {
    const Run run(layer, n, precision);
    const PerSampleGrad &f = run.later.of(run.parameters[0])[0],
                        rows = PerSampleGrad::materialized(f.materialize());
    for (const Grouping& grouping :
         {Grouping{.unit_of_row = {1, 0, -1, 1, 1, 2, 0}, .units = 3},
          Grouping{.unit_of_row = {1, 0, -1, 1, 1, 2, 0}, .units = 3, .mean = true, .width = 4},
          Grouping{.unit_of_row = {0, 0, 0, 1, 1, 1, -1}, .units = 2, .mean = true}})
      CHECK(same_bits(f.group(grouping).materialize(), rows.group(grouping).materialize()));
    const Tensor weights = weights_of(random, n);
    check_close(f.sum(), values(rows.sum()));
    check_close(f.sum(weights), values(rows.sum(weights)));
    const Tensor direction = rows.materialize()[1];
    check_close(dot(f, direction), values(dot(rows, direction)));
    const PerSampleGrad both = f.with_rows(rows);
    CHECK(same_bits(both.materialize(), rows.with_rows(rows).materialize()));
    const Shape flat{f.shape().numel()};
    CHECK(same_bits(f.reshaped(flat).materialize(), rows.reshaped(flat).materialize()));
    CHECK(same_bits(squared_norm({f.reshaped(flat)}), squared_norm({rows})));
    constexpr std::size_t budget = std::size_t{1} << 30;
    CHECK(f.materialize_if_cheaper(NormMethod::automatic, budget).form() == f.form());
    CHECK(f.smallest_form().form() == std::string_view("dense"));
    CHECK(same_bits(f.materialize_if_cheaper(NormMethod::materialize, budget).materialize(),
                    rows.materialize()));
  });
}

TEST_CASE("a sample whose gradient is not finite leaves those of others as they are") {
  const Layer& layer = layers[1];
  const Run run(layer, 4, Dtype::f32);
  const PerSampleGrad& use = run.later.of(run.parameters[0])[0];
  Tensor rows = clone(use.materialize());
  fill(rows.slice(0, 2, 3), [] { return std::nan(""); });
  const Tensor weights = Tensor::from({0.5, -1, 0, 2}, {4}, Dtype::f64);
  CHECK(same_bits(rounded({PerSampleGrad::materialized(rows)}, weights), rounded({use}, weights)));
}

TEST_CASE("rows that take no more bytes than factors, or than was freed, are written out") {
  const Layer small{"one output", {{1, 8, 3, 3}}, layers[0].apply};
  CHECK(Run(small, 3, Dtype::f32).later.all[0].second[0].form() == std::string_view("dense"));
  PublicRandom random(5);
  Parameter w(to_dtype(uniform_values(random, {24, 8, 3, 3}, -1, 1), Dtype::f32));
  Tape tape;
  const Var x = tape.input(to_dtype(uniform_values(random, {3, 8, 3, 3}, -1, 1), Dtype::f32));
  const Var y = layers[0].apply(x, {tape.use(w)});
  // Half a megabyte, which is freed before y's gradient is passed on.
  const Var loss = sum_per_sample(exp(concat(std::vector<Var>(200, y), 1)));
  Received sink(true);
  tape.backward(loss, sink);
  CHECK(sink.all[0].second[0].form() == std::string_view("dense"));
}

}  // namespace
}  // namespace sotto
