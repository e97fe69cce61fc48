// Fused attention, on every device that has it: values and gradients against the unfused
// computation in double, for operands of any strides; and unsupported operands.
// File tags: [gpu]
#include <functional>
#include <map>

#include "autograd/ops.h"
#include "autograd/precision.h"
#include "autograd/sink.h"
#include "core/devices.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/layers.h"
#include "tests/support/catch.h"
#include "tests/support/fake_gpu_counts.h"

using namespace sotto;

namespace {

struct Sizes {
  std::int64_t samples, queries, keys, heads, features, values;
};

Tensor normal_values(PublicRandom& random, const Shape& shape, Dtype dtype) {
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (double& value : values) value = random.normal();
  return to_dtype(Tensor::from(values, shape), dtype);
}

// [n, t, heads features] to [n, heads, t, features]
Var heads_of(const Var& x, std::int64_t heads) {
  const Shape& s = x.shape();
  return permute(reshape(x, {s[0], s[1], heads, s[2] / heads}), {0, 2, 1, 3});
}

using Attend = std::function<Var(const Var&, const Var&, const Var&)>;

// y and the gradients of q, k and v, in double, on the CPU.
std::vector<Tensor> run(const Attend& f, const std::vector<Tensor>& x, const Tensor& weights,
                        Dtype dtype, Device device) {
  Tape tape({.seed = 3});
  std::vector<Var> v;
  for (const Tensor& t : x) v.push_back(tape.input(to_dtype(t, dtype).to(device), 0, true));
  const Var y = f(v[0], v[1], v[2]);
  SumSink sink;
  tape.backward(sum_per_sample(mul(y, tape.input(to_dtype(weights, dtype).to(device)))), sink);
  std::vector<Tensor> all{y.value()};
  for (const Var& input : v) all.push_back(tape.grad(input));
  for (Tensor& t : all) t = to_dtype(contiguous(t).to(cpu), Dtype::f64);
  return all;
}

double relative_error(const Tensor& got, const Tensor& expected) {
  const std::vector<double> u = got.to_vector<double>(), v = expected.to_vector<double>();
  REQUIRE(u.size() == v.size());
  double error = 0, size = 0;
  for (std::size_t i = 0; i < v.size(); ++i) {
    error += (u[i] - v[i]) * (u[i] - v[i]);
    size += v[i] * v[i];
  }
  return std::sqrt(error / size);
}

// Each rounding loses 2^-11 in f16 and 2^-8 in bf16; a result has several roundings.
double allowed(Dtype dtype) { return 4 * (dtype == Dtype::f16 ? 0x1p-11 : 0x1p-8); }

// Calls f for every device except the CPU.
void for_each_gpu(const std::function<void(Device)>& f) {
  for (const DeviceInfo& info : devices()) {
    if (info.device == cpu) continue;
    INFO(info.name);
    f(info.device);
  }
}

std::vector<Tensor> operands(PublicRandom& random, const Sizes& s, Dtype dtype) {
  return {normal_values(random, {s.samples, s.queries, s.heads * s.features}, dtype),
          normal_values(random, {s.samples, s.keys, s.heads * s.features}, dtype),
          normal_values(random, {s.samples, s.keys, s.heads * s.values}, dtype)};
}

// Checks y and the gradients on a device against those in double on the CPU, and returns them.
std::vector<Tensor> check_on(Device device, const Attend& f, const std::vector<Tensor>& x,
                             const Tensor& weights, Dtype dtype) {
  const std::vector<Tensor> expected = run(f, x, weights, Dtype::f64, cpu),
                            got = run(f, x, weights, dtype, device);
  for (std::size_t i = 0; i < got.size(); ++i)
    CHECK(relative_error(got[i], expected[i]) < allowed(dtype));
  return got;
}

// The number of launches of f; nullopt if they are not counted.
std::optional<std::int64_t> launches(const std::function<void()>& f) {
  const auto before = pretended_counts();
  f();
  if (!before) return {};
  return pretended_counts()->launches - before->launches;
}

}  // namespace

TEST_CASE("attention on a GPU is correct, with heads inside of positions or before them") {
  PublicRandom random(1);
  // Some numbers of features are not supported by the fake library, or only in the forward pass.
  const Sizes all[] = {{3, 9, 9, 2, 8, 8},  {2, 5, 13, 1, 16, 8}, {1, 17, 17, 3, 64, 64},
                       {3, 6, 6, 2, 24, 8}, {2, 7, 7, 2, 40, 40}, {4, 3, 2, 1, 8, 8}};
  for_each_gpu([&](Device device) {
    for (const Sizes& s : all) {
      for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
        for (const bool causal : {false, true}) {
          INFO(name(dtype) << (causal ? ", causal" : "") << ", features " << s.features);
          const std::vector<Tensor> x = operands(random, s, dtype);
          const Tensor weights =
              normal_values(random, {s.samples, s.heads, s.queries, s.values}, dtype);
          const Attend split = [&](const Var& q, const Var& k, const Var& v) {
            return attention(heads_of(q, s.heads), heads_of(k, s.heads), heads_of(v, s.heads), {},
                             {.causal = causal, .scale = 0.3});
          };
          check_on(device, split, x, weights, dtype);
        }
      }
    }
  });
}

TEST_CASE("any number of leading axes, of which some operands have fewer") {
  PublicRandom random(2);
  const Attend plain = [](const Var& q, const Var& k, const Var& v) { return attention(q, k, v); };
  const std::vector<std::vector<Shape>> all{{{3, 5, 8}, {3, 7, 8}, {3, 7, 8}},
                                            {{3, 2, 2, 5, 8}, {3, 2, 2, 7, 8}, {3, 2, 2, 7, 8}},
                                            {{3, 2, 5, 8}, {3, 1, 7, 8}, {3, 1, 7, 8}}};
  for_each_gpu([&](Device device) {
    for (const std::vector<Shape>& shapes : all) {
      std::vector<Tensor> x;
      for (const Shape& shape : shapes) x.push_back(normal_values(random, shape, Dtype::f16));
      const Tensor weights = normal_values(random, shapes[0], Dtype::f16);
      check_on(device, plain, x, weights, Dtype::f16);
    }
  });
}

TEST_CASE("attention has the same bits each time, and for a sample in any batch") {
  PublicRandom random(5);
  const Sizes s{3, 96, 96, 2, 64, 64};
  const std::vector<Tensor> x = operands(random, s, Dtype::bf16);
  const Tensor weights = normal_values(random, {3, 2, 96, 64}, Dtype::bf16);
  const Attend split = [&](const Var& q, const Var& k, const Var& v) {
    return attention(heads_of(q, 2), heads_of(k, 2), heads_of(v, 2), {}, {.causal = true});
  };
  for_each_gpu([&](Device device) {
    const std::vector<Tensor> once = run(split, x, weights, Dtype::bf16, device),
                              again = run(split, x, weights, Dtype::bf16, device);
    for (std::size_t i = 0; i < once.size(); ++i)
      CHECK(once[i].to_vector<double>() == again[i].to_vector<double>());
    std::vector<Tensor> others = x;
    for (Tensor& t : others) {
      const Tensor rest = normal_values(random, t.slice(0, 0, 2).shape(), Dtype::bf16);
      t = concat({rest, t.slice(0, 2, 3)}, 0);
    }
    const std::vector<Tensor> beside = run(split, others, weights, Dtype::bf16, device);
    for (std::size_t i = 0; i < once.size(); ++i)
      CHECK(once[i].slice(0, 2, 3).to_vector<double>() ==
            beside[i].slice(0, 2, 3).to_vector<double>());
  });
}

namespace {

// Masks of [.., queries, keys]: keys that a sample's padding hides, all of them for the last one;
// one for each head; and one for all.
std::vector<Tensor> hiding(PublicRandom& random, const Sizes& s) {
  const auto mask = [&](const Shape& shape) {
    std::vector<std::int64_t> hidden(static_cast<std::size_t>(shape.numel()));
    for (std::int64_t& value : hidden) value = random.uniform() < 0.3;
    return Tensor::from(hidden, shape);
  };
  const Tensor padding = mask({s.samples, 1, 1, s.keys});
  copy_into(full({}, 1, Dtype::i64), padding.select(0, s.samples - 1));
  return {padding, mask({s.samples, s.heads, s.queries, s.keys}), mask({s.queries, s.keys})};
}

}  // namespace

TEST_CASE("keys that masks hide are hidden in one kernel, and a query that sees none has 0") {
  PublicRandom random(6);
  // The fake library has a kernel for 40 features in the forward pass only, and none for 24.
  const Sizes all[] = {{3, 9, 9, 2, 8, 8},
                       {2, 5, 13, 1, 16, 8},
                       {4, 33, 33, 3, 64, 64},
                       {2, 7, 7, 2, 40, 40},
                       {3, 6, 6, 2, 24, 8}};
  for_each_gpu([&](Device device) {
    for (const Sizes& s : all) {
      const std::vector<Tensor> masks = hiding(random, s);
      for (const std::vector<std::size_t>& used :
           std::vector<std::vector<std::size_t>>{{0}, {1}, {2}, {0, 2}, {0, 1, 2}}) {
        for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
          for (const bool causal : {false, true}) {
            INFO(name(dtype) << (causal ? ", causal" : "") << ", keys " << s.keys << ", "
                             << used.size() << " masks from " << used[0]);
            const std::vector<Tensor> x = operands(random, s, dtype);
            const Tensor weights =
                normal_values(random, {s.samples, s.heads, s.queries, s.values}, dtype);
            const Attend split = [&](const Var& q, const Var& k, const Var& v) {
              std::vector<Var> on_tape;
              for (const std::size_t m : used)
                on_tape.push_back(m < 2 ? q.tape().input(masks[m]) : q.tape().constant(masks[m]));
              return attention(heads_of(q, s.heads), heads_of(k, s.heads), heads_of(v, s.heads),
                               on_tape, {.causal = causal, .scale = 0.3});
            };
            const std::vector<Tensor> got = check_on(device, split, x, weights, dtype);
            if (used[0] > 0) continue;
            for (const Tensor& of : got) {
              for (const double value : of.slice(0, s.samples - 1, s.samples).to_vector<double>())
                CHECK(value == 0);
            }
          }
        }
      }
    }
  });
}

// A kernel takes keys by blocks, and knows no maximum of the scores before it meets one that is
// seen.
TEST_CASE("padding may hide more keys in front than a kernel takes at once") {
  PublicRandom random(8);
  const Sizes s{2, 300, 300, 1, 16, 16};
  std::vector<std::int64_t> hidden(600);
  std::fill_n(hidden.begin(), 260, 1);
  const Tensor mask = Tensor::from(hidden, {2, 1, 1, 300});
  for_each_gpu([&](Device device) {
    for (const bool causal : {false, true}) {
      CAPTURE(causal);
      const Attend masked = [&](const Var& q, const Var& k, const Var& v) {
        return attention(heads_of(q, 1), heads_of(k, 1), heads_of(v, 1), {q.tape().input(mask)},
                         {.causal = causal});
      };
      const Tensor weights = normal_values(random, {2, 1, 300, 16}, Dtype::bf16);
      const std::vector<Tensor> got =
          check_on(device, masked, operands(random, s, Dtype::bf16), weights, Dtype::bf16);
      if (!causal) continue;
      // The first sample's first queries see no key.
      for (const double value : got[0].select(0, 0).slice(1, 0, 260).to_vector<double>())
        CHECK(value == 0);
    }
  });
}

TEST_CASE("masks with any number of leading axes") {
  PublicRandom random(7);
  const std::vector<std::vector<Shape>> all{{{3, 5, 8}, {3, 1, 5}},
                                            {{3, 5, 8}, {5, 5}},
                                            {{3, 2, 2, 5, 8}, {3, 1, 2, 1, 5}},
                                            {{3, 2, 2, 5, 8}, {5, 5}},
                                            {{3, 2, 5, 8}, {3, 2, 5, 5}}};
  for_each_gpu([&](Device device) {
    for (const std::vector<Shape>& shapes : all) {
      CAPTURE(shapes[0].rank(), shapes[1].rank());
      std::vector<std::int64_t> hidden;
      for (std::int64_t k = 0; k < shapes[1].numel(); ++k) hidden.push_back(k % 3 == 1);
      const Tensor mask = Tensor::from(hidden, shapes[1]);
      const Attend masked = [&](const Var& q, const Var& k, const Var& v) {
        Tape& tape = q.tape();
        return attention(q, k, v, {shapes[1][0] == 3 ? tape.input(mask) : tape.constant(mask)});
      };
      std::vector<Tensor> x;
      for (int i = 0; i < 3; ++i) x.push_back(normal_values(random, shapes[0], Dtype::f16));
      const Tensor weights = normal_values(random, shapes[0], Dtype::f16);
      check_on(device, masked, x, weights, Dtype::f16);
    }
  });
}

TEST_CASE("one launch replaces products and scores, and few more hide keys") {
  PublicRandom random(3);
  const Shape shape{2, 2, 6, 8};
  for_each_gpu([&](Device device) {
    const auto of = [&](Dtype dtype, const AttentionOptions& options,
                        std::optional<Dtype> masked = {}) {
      Tape tape({.training = options.dropout > 0, .seed = 3});
      const auto input = [&] { return tape.input(normal_values(random, shape, dtype).to(device)); };
      const Var q = input(), k = input(), v = input();
      std::vector<Var> masks;
      if (masked) masks.push_back(tape.constant(zeros({6, 6}, *masked, device)));
      return launches([&] { attention(q, k, v, masks, options); });
    };
    const auto fused = of(Dtype::bf16, {});
    if (!fused) return;
    CHECK(*fused == 1);
    CHECK(of(Dtype::f16, {.causal = true}) == 1);
    CHECK(*of(Dtype::f32, {}) > 1);
    // The bias (a number for hidden keys, one for others, a choice), attention, and zeros for
    // queries that see no key.
    CHECK(*of(Dtype::bf16, {}, Dtype::i64) <= 8);
    CHECK(*of(Dtype::bf16, {}, Dtype::bf16) > 1);
    CHECK(*of(Dtype::bf16, {.dropout = 0.5}) > 1);
    CHECK(*of(Dtype::bf16, {.causal = true, .always_visible = 1}) > 1);
  });
}

TEST_CASE("a layer's clipped gradients are those of its samples alone, attention in one kernel") {
  PublicRandom random(4);
  const Tensor x = normal_values(random, {3, 6, 16}, Dtype::f32);
  for_each_gpu([&](Device device) {
    for (const Dtype dtype : {Dtype::f16, Dtype::bf16}) {
      nn::MultiheadAttention layer(16, 2, {.batch_first = true});
      layer.to(device);
      const auto clipped = [&](std::int64_t first, std::int64_t last) {
        Clipper clipper(flat_group(layer.parameters(), 0.5));
        Tape tape({.private_data = true, .precision = dtype});
        const Var input = tape.input(x.slice(0, first, last).to(device));
        const Var y = layer.forward(input, input, input, {.causal = true});
        clipper.add(tape, sum_per_sample(cast(mul(y, y), Dtype::f32)));
        std::vector<double> all;
        for (const auto& [parameter, sum] : clipper.clipped_sums()) {
          const std::vector<double> part =
              to_dtype(contiguous(sum).to(cpu), Dtype::f64).to_vector<double>();
          all.insert(all.end(), part.begin(), part.end());
        }
        return all;
      };
      const std::vector<double> together = clipped(0, 3);
      std::vector<double> alone(together.size());
      for (std::int64_t n = 0; n < 3; ++n) {
        const std::vector<double> one = clipped(n, n + 1);
        double norm = 0;
        for (std::size_t i = 0; i < one.size(); ++i) {
          alone[i] += one[i];
          norm += one[i] * one[i];
        }
        CHECK(std::sqrt(norm) <= 0.5);
      }
      for (std::size_t i = 0; i < alone.size(); ++i)
        CHECK(together[i] == Approx(alone[i]).margin(1e-5));
    }
  });
}
