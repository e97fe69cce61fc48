// Wide results of odd width in 16 bits on a GPU: their further columns count for nothing.
// File tags: [gpu]
#include <cmath>

#include "autograd/check/op_run.h"
#include "autograd/ops.h"
#include "autograd/ops/padded_columns.h"
#include "autograd/per_sample/forms.h"
#include "autograd/per_sample/padded_outer.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/precision.h"
#include "autograd/sink.h"
#include "core/random/philox.h"
#include "nn/layers.h"
#include "tests/support/captured_setup.h"
#include "tests/support/per_sample_cases.h"

using namespace sotto;
using testing::CollectSink, testing::rows_of_uses;

namespace {

constexpr Device gpu{DeviceKind::cuda, 0};
constexpr Dtype narrow_types[] = {Dtype::bf16, Dtype::f16};
constexpr NormMethod norm_methods[] = {NormMethod::automatic, NormMethod::ghost,
                                       NormMethod::materialize};

double rounding(Dtype dtype) { return dtype == Dtype::bf16 ? 0x1p-8 : 0x1p-11; }

// One gradient with exact columns, and with further ones of zeros.
struct Pair {
  PerSampleGrad plain, padded;
};

Pair random_use(PublicRandom& random, const Common& c, Device device) {
  const std::int64_t t = draw(random, 1, 4), columns = c.o + draw(random, 1, 5);
  const Tensor b = random_factor(random, c, {t, c.o}), a = random_factor(random, c, {t, c.i}),
               wide = zeros({c.n, t, columns}, c.dtype);
  copy_into(b, wide.slice(2, 0, c.o));
  const Shape shape{c.o, c.i};
  return {PerSampleGrad::outer(b.to(device), a.to(device), shape),
          detail::padded_outer(wide.to(device), a.to(device), shape)};
}

void check_alike(const Tensor& got, const Tensor& expected) {
  REQUIRE(got.shape() == expected.shape());
  check_close(to_dtype(got, Dtype::f32), values(to_dtype(expected, Dtype::f32)));
}

// The sum of all samples with weights, added in blocks of up to four.
Tensor rounded(const PerSampleGrad& f, const Tensor& weights) {
  const RoundedSum sum{zeros(f.shape(), Dtype::f64, f.device()), 0x1p-30};
  const std::int64_t n = f.samples();
  f.add_to(sum, weights, [n](std::int64_t max) {
    std::vector<std::int64_t> ends;
    for (std::int64_t at = 0; at < n;) ends.push_back(at = std::min({n, at + max, at + 4}));
    return ends;
  });
  return sum.total;
}

void check_use(const Pair& use, const Pair& other, PublicRandom& random) {
  const PerSampleGrad &f = use.plain, &g = use.padded;
  CHECK(g.shape() == f.shape());
  check_alike(g.materialize(), f.materialize());
  check_alike(g.sum(), f.sum());
  for (const NormMethod method : norm_methods) {
    check_alike(dot(g, g, method), dot(f, f, method));
    check_alike(dot(g, other.plain, method), dot(f, other.plain, method));
    check_alike(squared_norm({g, other.padded}, method), squared_norm({f, other.plain}, method));
  }
  const Tensor direction = to_dtype(uniform_values(random, f.shape()), f.dtype());
  check_alike(dot(g, direction.to(f.device())), dot(f, direction.to(f.device())));
  const Tensor weights = uniform_values(random, {f.samples()}, 0, 1).to(f.device());
  check_alike(g.sum(weights), f.sum(weights));
  check_alike(rounded(g, weights), rounded(f, weights));
  Grouping users{.unit_of_row = {}, .units = 2};
  for (std::int64_t n = 0; n < f.samples(); ++n) users.unit_of_row.push_back(n % 2);
  check_alike(g.group(users).materialize(), f.group(users).materialize());
  check_alike(g.reshaped({f.shape().numel()}).materialize(),
              f.reshaped({f.shape().numel()}).materialize());
  check_alike(g.permuted({1, 0}).sum(), f.permuted({1, 0}).sum());
}

// A network of two linear layers whose second has a wide result.
struct Wide {
  Wide(std::int64_t width, Device device) : model(network(width)) { model.to(device); }
  static nn::Sequential network(std::int64_t width) {
    nn::manual_seed(8);
    return nn::Sequential{nn::Linear(6, 5), nn::Tanh(), nn::Linear(5, width)};
  }
  nn::Sequential model;
};

using Loss = std::function<Var(const Var& logits, const Tensor& targets)>;

struct Example {
  Tensor inputs, targets;  // [n, t, 6] and [n, t]
};

Example random_example(std::int64_t n, std::int64_t width) {
  PublicRandom random(61);
  return {to_dtype(uniform_values(random, {n, 3, 6}), Dtype::f32),
          random_ids(random, {n, 3}, width)};
}

struct Result {
  Tensor losses;
  std::vector<std::vector<PerSampleGrad>> uses;  // by parameter
};

Result run(std::int64_t width, Device device, Dtype precision, const Loss& loss) {
  Wide wide(width, device);
  const Example example = random_example(4, width);
  if (precision == Dtype::f64) wide.model.to(Dtype::f64);
  Tape tape({.private_data = true, .precision = precision == Dtype::f64 ? Dtype::f32 : precision});
  const Tensor inputs =
      precision == Dtype::f64 ? to_dtype(example.inputs, precision) : example.inputs;
  const Var losses = loss(wide.model(tape.input(inputs.to(device))), example.targets.to(device));
  CollectSink sink;
  tape.backward(losses, sink);
  Result result{losses.value(), {}};
  for (const Parameter* parameter : wide.model.parameters())
    result.uses.push_back(sink.uses(*parameter));
  return result;
}

double relative_error(const Tensor& got, const Tensor& expected) {
  const std::vector<double> x = values(got), y = values(expected);
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    difference += (x[i] - y[i]) * (x[i] - y[i]);
    size += y[i] * y[i];
  }
  return std::sqrt(difference / size);
}

// Columns of the weight's output gradients.
std::int64_t columns_of(const Result& result) {
  return result.uses[2][0].form_data().leading().size(2);
}

// The classes are the last axis.
Var mean_loss(const Var& y, const Tensor& targets, CrossEntropyOptions options = {}) {
  options.class_axis = -1;
  return cross_entropy(y, targets, options);
}

const Loss direct = [](const Var& y, const Tensor& targets) { return mean_loss(y, targets); };
// The gradient comes through operations that know nothing of further columns.
const std::pair<const char*, Loss> others[] = {
    {"scaled", [](const Var& y, const Tensor& t) { return mean_loss(2 * y, t); }},
    {"flat",
     [](const Var& y, const Tensor& t) {
       const Var each = cross_entropy_elements(unsqueeze(y, 1), t.unsqueeze(1), {.class_axis = -1});
       return sum_per_sample(each);
     }},
    {"classes in the middle",
     [](const Var& y, const Tensor& t) { return cross_entropy(transpose(y, 1, 2), t); }},
    {"with squares",
     [](const Var& y, const Tensor& t) {
       return mean_loss(y, t) + mean_per_sample(square(to_f32(y)));
     }},
    {"with squares before",
     [](const Var& y, const Tensor& t) {
       const Var first = mean_per_sample(square(to_f32(y)));
       return first + mean_loss(y, t, {.label_smoothing = 0.1, .z_loss = 0.01});
     }},
};

struct How {
  ClipPasses passes = ClipPasses::one;
  const Grouping* units = nullptr;
  bool captured = false;
};

// Returns what clipping makes of a batch in bf16; the second time a captured loss is replayed.
std::vector<double> clipped(std::int64_t width, Device device, const How& how) {
  constexpr std::int64_t samples = 6;
  Wide wide(width, device);
  const Example example = random_example(samples, width);
  const std::vector<Tensor> batch = on_device(device, {example.inputs, example.targets});
  const memory::CapturedLoss::Loss plain = [&](Tape& tape, const std::vector<Tensor>& given) {
    return mean_loss(wide.model(tape.input(given[0])), given[1]);
  };
  memory::CapturedLoss captured(wide.model, samples, plain);
  Clipper clipper(flat_group(wide.model.parameters(), 0.1), {}, how.passes);
  std::vector<double> sums;
  for (int round = 0; round < 2; ++round) {
    clipper.discard();
    Tape tape({.private_data = true, .precision = Dtype::bf16});
    clipper.add(tape, how.captured ? captured(tape, batch) : plain(tape, batch), how.units);
    if (how.captured) CHECK(captured.reason().empty());
    sums = flat(clipper.clipped_sums());
  }
  return sums;
}

}  // namespace

TEST_CASE("columns are added to wide results in 16 bits on a GPU whose rows are not aligned") {
  CHECK(padded_columns(50257, Dtype::bf16, gpu) == 50304);
  CHECK(padded_columns(1025, Dtype::f16, gpu) == 1088);
  for (const std::int64_t aligned : {1024, 1032, 50264})
    CHECK(padded_columns(aligned, Dtype::bf16, gpu) == aligned);
  CHECK(padded_columns(1023, Dtype::bf16, gpu) == 1023);
  CHECK(padded_columns(50257, Dtype::f32, gpu) == 50257);
  CHECK(padded_columns(50257, Dtype::bf16, cpu) == 50257);
}

TEST_CASE("further columns of zeros change no norm, product or sum of a gradient") {
  for (const DeviceInfo& info : devices()) {
    INFO(info.name);
    PublicRandom random(17);
    for (int round = 0; round < 24; ++round) {
      const Common c{draw(random, 1, 6), draw(random, 1, 9), draw(random, 1, 4), 1,
                     float_dtypes[round % 4]};
      INFO(name(c.dtype));
      check_use(random_use(random, c, info.device), random_use(random, c, info.device), random);
    }
  }
  CHECK_THROWS_AS(detail::padded_outer(zeros({2, 3, 4}), zeros({2, 3, 2}), {5, 2}),
                  std::invalid_argument);
}

TEST_CASE("wide losses in 16 bits have the gradients of f64 for every sample and odd width") {
  for_each_gpu([](Device device) {
    for (const std::int64_t width : {1025, 1031, 1100, 1999}) {
      for (const Dtype dtype : narrow_types) {
        CAPTURE(width, name(dtype));
        const Result got = run(width, device, dtype, direct),
                     expected = run(width, cpu, Dtype::f64, direct);
        CHECK(columns_of(got) == padded_columns(width, dtype, device));
        CHECK(columns_of(got) > width);
        const Tensor& slopes = got.uses[2][0].form_data().leading();
        for (const double gap : values(slopes.slice(2, width, columns_of(got)))) CHECK(gap == 0);
        CHECK(relative_error(got.losses, expected.losses) < 4 * rounding(dtype));
        for (std::size_t k = 0; k < got.uses.size(); ++k) {
          CHECK(relative_error(rows_of_uses(got.uses[k]), rows_of_uses(expected.uses[k])) <
                8 * rounding(dtype));
          CHECK(relative_error(squared_norm(got.uses[k]), squared_norm(expected.uses[k])) <
                8 * rounding(dtype));
          CHECK(relative_error(got.uses[k][0].sum(), expected.uses[k][0].sum()) <
                8 * rounding(dtype));
        }
      }
    }
  });
}

TEST_CASE("summed gradients of a wide loss in 16 bits are those of f64") {
  const auto sums = [](Device device, Dtype precision) {
    Wide wide(1031, device);
    const Example example = random_example(4, 1031);
    const bool exact = precision == Dtype::f64;
    if (exact) wide.model.to(precision);
    Tape tape({.precision = exact ? Dtype::f32 : precision});
    const Tensor inputs = exact ? to_dtype(example.inputs, precision) : example.inputs;
    SumSink sink;
    tape.backward(mean_loss(wide.model(tape.input(inputs.to(device))), example.targets.to(device)),
                  sink);
    return sink.gradients();
  };
  for_each_gpu([&](Device device) {
    const Gradients got = sums(device, Dtype::bf16), expected = sums(cpu, Dtype::f64);
    REQUIRE(got.size() == expected.size());
    for (std::size_t k = 0; k < got.size(); ++k) {
      CHECK(got[k].second.shape() == expected[k].second.shape());
      CHECK(relative_error(got[k].second, expected[k].second) < 8 * rounding(Dtype::bf16));
    }
  });
}

TEST_CASE("gradients of a wide result that come another way are the same") {
  for_each_gpu([](Device device) {
    for (const auto& [what, loss] : others) {
      INFO(what);
      const Result got = run(1031, device, Dtype::bf16, loss),
                   expected = run(1031, cpu, Dtype::f64, loss);
      CHECK(columns_of(got) == 1031);
      for (std::size_t k = 0; k < got.uses.size(); ++k)
        CHECK(relative_error(rows_of_uses(got.uses[k]), rows_of_uses(expected.uses[k])) <
              8 * rounding(Dtype::bf16));
    }
  });
}

TEST_CASE("clipped sums of a wide loss are the CPU's") {
  const Grouping users{.unit_of_row = {0, 1, 0, 2, 1, 0}, .units = 3};
  for_each_gpu([&](Device device) {
    for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
      for (const Grouping* units : {static_cast<const Grouping*>(nullptr), &users}) {
        CAPTURE(static_cast<int>(passes), units != nullptr);
        const How how{.passes = passes, .units = units};
        const std::vector<double> got = clipped(1031, device, how),
                                  expected = clipped(1031, cpu, how), nothing(expected.size());
        CHECK(distance(got, expected) < 8 * rounding(Dtype::bf16) * distance(expected, nothing));
      }
    }
  });
}

TEST_CASE("a captured wide loss has the plain one's bits") {
  for_each_gpu([](Device device) {
    CHECK(clipped(1031, device, {.captured = true}) == clipped(1031, device, {}));
  });
}

TEST_CASE("a wide result is the value of its own columns to every other operation") {
  for_each_gpu([](Device device) {
    const auto outputs = [](Device there, Dtype precision) {
      Wide wide(1031, there);
      Tape tape({.precision = precision});
      const Var y = wide.model(tape.input(random_example(2, 1031).inputs.to(there)));
      std::vector<Tensor> all;
      for (const Var& x :
           {y, softmax(y, -1), relu(y), y + y, reshape(y, {2, -1}), concat({y, y}, 1), sum(y, {2})})
        all.push_back(to_dtype(x.value(), Dtype::f64));
      CHECK(same_bits(argmax(y.value(), -1), argmax(contiguous(y.value()), -1)));
      return all;
    };
    const std::vector<Tensor> got = outputs(device, Dtype::bf16),
                              expected = outputs(cpu, Dtype::bf16);
    for (std::size_t k = 0; k < got.size(); ++k) {
      CAPTURE(k);
      REQUIRE(got[k].shape() == expected[k].shape());
      CHECK(relative_error(got[k], expected[k]) < 4 * rounding(Dtype::bf16));
    }
  });
}
