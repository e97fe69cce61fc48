// One unit of hostile numbers moves the clipped sum by at most the sensitivity: numbers that all
// round alike, that underflow or overflow, or that cancel, in every form of gradients, by every
// rule, norm method and number of passes, and in every type.
#include <cmath>
#include <functional>
#include <limits>

#include "autograd/ops.h"
#include "autograd/per_sample/forms.h"
#include "autograd/per_sample/grouping.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "dp/clipping/clipper_state.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"

namespace sotto {
namespace {

using Kind = ClipRule::Kind;
constexpr Kind kinds[] = {Kind::minimum, Kind::opacus, Kind::auto_s, Kind::normalize, Kind::psac};
constexpr NormMethod methods[] = {NormMethod::automatic, NormMethod::ghost,
                                  NormMethod::materialize};

// Number k of a factor.
using Values = std::function<double(std::int64_t k)>;

struct Factors {
  const char* what;
  Values x, slope;
};

struct Setting {
  Dtype dtype = Dtype::f32, precision = Dtype::f32;
  double bound = 1;
  Kind kind = Kind::minimum;
  NormMethod norm_method = NormMethod::automatic;
  ClipPasses passes = ClipPasses::one;
  std::int64_t block = 1;
  std::int64_t rows = 1;  // of the unit
};

Tensor filled(const Shape& shape, Dtype dtype, const Values& values) {
  std::vector<double> all;
  for (std::int64_t k = 0; k < shape.numel(); ++k) all.push_back(values(k));
  return to_dtype(Tensor::from(all, shape), dtype);
}

// A model with one parameter: its shape, and the loss of rows of factors.
struct Form {
  const char* what;
  Shape shape;
  std::function<Var(Tape& tape, const Var& w, const Setting& s, const Factors& f)> loss;
};

Form products(std::int64_t t, std::int64_t i, std::int64_t o, int uses = 1) {
  const auto loss = [=](Tape& tape, const Var& w, const Setting& s, const Factors& f) {
    const Var x = tape.input(filled({s.rows, t, i}, s.dtype, f.x)),
              slopes = tape.input(filled({s.rows, t, o}, s.dtype, f.slope));
    Var y = sum_per_sample(linear(x, w) * slopes);
    for (int k = 1; k < uses; ++k) y = y + sum_per_sample(linear(x * 0.75, w) * slopes);
    return y;
  };
  return {"products", {o, i}, loss};
}

Form images(const Shape& size, std::int64_t c, std::int64_t o, std::int64_t kernel) {
  Shape shape{o, c};
  for (int k = 0; k < size.rank(); ++k) shape.push_back(kernel);
  const auto loss = [=](Tape& tape, const Var& w, const Setting& s, const Factors& f) {
    Shape in{s.rows, c};
    for (const std::int64_t side : size) in.push_back(side);
    const Var y = conv(tape.input(filled(in, s.dtype, f.x)), w, {}, {.padding = {kernel / 2}});
    return sum_per_sample(y * tape.input(filled(y.shape(), s.dtype, f.slope)));
  };
  return {"images", shape, loss};
}

// A table, which is also an output layer if it is tied, and which is reshaped before its use.
Form table(std::int64_t t, std::int64_t rows, std::int64_t d, bool tied, bool reshaped) {
  const auto loss = [=](Tape& tape, const Var& w, const Setting& s, const Factors& f) {
    const Tensor ids =
        Tensor::from(std::vector<std::int64_t>(static_cast<std::size_t>(s.rows * t)), {s.rows, t});
    const Var used = reshaped ? reshape(w, {d, rows}) : w;
    const Var found = embedding(reshaped ? transpose(used, 0, 1) : used, tape.input(ids));
    const Var y = sum_per_sample(found * tape.input(filled({s.rows, t, d}, s.dtype, f.slope)));
    if (!tied) return y;
    const Var last = tape.input(filled({s.rows, 1, d}, s.dtype, f.x));
    return y + sum_per_sample(linear(last, w) * tape.constant(full({1, rows}, 0x1p-30, s.dtype)));
  };
  return {"table", {rows, d}, loss};
}

double norm(Clipper& clipper) {
  long double square = 0;
  for (const auto& [parameter, sum] : clipper.clipped_sums()) {
    for (const double v : sum.to_vector<double>()) square += static_cast<long double>(v) * v;
  }
  return static_cast<double>(std::sqrt(square));
}

// The norm of one unit's part of the sum, over the sensitivity.
double share(const Form& form, const Setting& s, const Factors& f) {
  Parameter w(full(form.shape, 0, s.dtype));
  Clipper clipper(flat_group({&w}, s.bound),
                  {.rule = {.kind = s.kind, .gamma = 0x1p-120},
                   .norm_method = s.norm_method,
                   .sum_size = {.block = s.block}},
                  s.passes);
  if (s.block > 1)
    clipper.state().begin(SumBlocks(std::vector<std::int64_t>{0}, {}, {.units = s.block}));
  Tape tape({.private_data = true, .precision = s.precision});
  const Grouping grouping{
      .unit_of_row = std::vector<std::int64_t>(static_cast<std::size_t>(s.rows)), .units = 1};
  const Var loss = form.loss(tape, tape.use(w), s, f);
  clipper.add(tape, loss, s.rows > 1 ? &grouping : nullptr);
  return norm(clipper) / clipper.sensitivity();
}

// A sequence-first batch of samples of 16 numbers, whose sums choose between two gradients.
double clipped_sum_of(const std::vector<std::vector<float>>& samples) {
  Parameter w(full({1}, 0));
  Clipper clipper(flat_group({&w}, 1));
  Tape tape({.private_data = true});
  std::vector<float> all;
  for (const auto& sample : samples) all.insert(all.end(), sample.begin(), sample.end());
  const Var x = tape.input(Tensor::from(all, {std::ssize(samples), 16}));
  const Var y = linear(permute(unsqueeze(x, 2), {1, 0, 2}), tape.constant(full({1, 1}, 1))),
            sums = sum(y, {0, 2});
  clipper.add(tape, affine(relu(sums), 2, -1) * tape.use(w));
  return clipper.clipped_sums()[0].second.at({0});
}

TEST_CASE("a unit that is left out changes no bit of a single one that remains") {
  std::vector<float> sample(16), other(16);
  sample[0] = 1e30F, sample[1] = 1, sample[8] = -1e30F;  // their sum is 1 or 0
  CHECK(std::abs(clipped_sum_of({sample}) - clipped_sum_of({sample, other})) <= 1);
}

// Elements of the clipped sum, over the bound, of 95 units that are all alike, and of one more
// whose product overflows: the others' hundreds of small terms are lost beside a large one that
// cancels, unless a weight comes first.
std::vector<double> sum_beside_overflow(bool overflows, NormMethod norm_method) {
  constexpr std::int64_t units = 96, positions = 384;
  constexpr float large = 128 * 0x1p40F, small = 0.98F * 0x1p-17F * 0x1p40F;
  constexpr double bound = 1.98 / 128 * 3.31 * 0x1p40;
  std::vector<std::int64_t> numbers;
  std::vector<float> x, slopes;
  for (std::int64_t unit = 0; unit < units - (overflows ? 0 : 1); ++unit) {
    numbers.push_back(unit);
    const bool last = unit == units - 1;
    for (std::int64_t t = 0; t < positions; ++t) {
      const float alike = t == 0 ? large : t == positions - 1 ? -large : small;
      x.push_back(last ? 0x1p60F : 1);
      slopes.push_back(last ? (t == 0 ? 0x1p70F : 0) : alike);
      slopes.push_back(!last && t == 1 ? 3.3F * 0x1p40F : 0);
    }
  }
  Parameter w(full({2, 1}, 0));
  Clipper clipper(flat_group({&w}, bound),
                  {.norm_method = norm_method, .sum_size = {.block = units}});
  clipper.state().begin(SumBlocks(numbers, {}, {.units = units}));
  Tape tape({.private_data = true});
  const Var y =
      linear(tape.input(Tensor::from(x, {std::ssize(numbers), positions, 1})), tape.use(w));
  clipper.add(tape, sum_per_sample(y * tape.input(Tensor::from(slopes, y.shape()))));
  std::vector<double> sum = clipper.clipped_sums()[0].second.to_vector<double>();
  for (double& element : sum) element /= clipper.sensitivity();
  return sum;
}

TEST_CASE("a unit whose sum overflows changes no other's part") {
  for (const NormMethod method : methods) {
    const std::vector<double> with = sum_beside_overflow(true, method),
                              without = sum_beside_overflow(false, method);
    CHECK(std::hypot(with[0] - without[0], with[1] - without[1]) <= 1);
  }
}

double power(double base, int exponent) { return std::ldexp(base, exponent); }

std::vector<Factors> all_factors() {
  const auto same = [](double v) { return [v](std::int64_t) { return v; }; };
  const auto signs = [](double v) { return [v](std::int64_t k) { return k % 2 == 0 ? v : -v; }; };
  return {
      {"round alike", same(1), same(0.1F)},
      {"round up", same(1), [](std::int64_t k) { return k == 0 ? 1 : 0x1.01p-24; }},
      {"rise", same(1), [](std::int64_t k) { return 1 + static_cast<double>(k % 977) * 0x1p-20; }},
      {"cancel", same(0.7), signs(1e8)},
      {"almost cancel", same(1), [](std::int64_t k) { return k % 2 == 0 ? 1.0 : -0x1.fffff8p-1; }},
      {"underflow", same(1.01 * 0x1p-110), same(0x1p-40)},
      {"half of the smallest", same(0x1p-110), same(0.499 * 0x1p-39)},
      {"tiny and huge", same(1e-30), same(1e30)},
      {"tiny", same(0x1p-149), same(1)},
      {"huge", same(1e20), same(4e18)},
      {"overflow", same(2e19), same(2e19)},
      {"all sizes", [](std::int64_t k) { return power(1, static_cast<int>(k * 37 % 120) - 60); },
       [](std::int64_t k) { return power(1, static_cast<int>(k * 53 % 120) - 60); }},
  };
}

std::vector<Factors> doubles_alone() {
  const auto same = [](double v) { return [v](std::int64_t) { return v; }; };
  return {{"square underflows", same(1e-170), same(1e150)},
          {"squares underflow", same(1e-160), same(1e-1)},
          {"the other square underflows", same(1e150), same(1e-170)},
          {"squares are small", same(0x1p-530), same(1)},
          {"smallest", same(0x1p-1074), same(1)},
          {"largest", same(1e150), same(1e150)}};
}

struct Types {
  Dtype dtype, precision;
};
constexpr Types types[] = {{Dtype::f32, Dtype::f32},
                           {Dtype::f32, Dtype::bf16},
                           {Dtype::f32, Dtype::f16},
                           {Dtype::f64, Dtype::f32}};

void for_each_setting(const std::function<void(const Setting&)>& f) {
  for (const auto& [dtype, precision] : types) {
    for (const double bound : {0x1p-100, 1e-7, 1.0, 0x1p30, 0x1p100}) {
      for (const Kind kind : kinds) {
        for (const NormMethod method : methods) {
          for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
            for (const auto& [block, rows] : {std::pair{1, 1}, {4, 1}, {1, 3}})
              f({dtype, precision, bound, kind, method, passes, block, rows});
          }
        }
      }
    }
  }
}

void check(const Form& form, const Setting& s, const Factors& f) {
  const double moved = share(form, s, f);
  if (moved <= 1) return;
  CAPTURE(form.what, form.shape, f.what, name(s.dtype), name(s.precision), s.bound, name(s.kind),
          s.norm_method, s.passes, s.block, s.rows);
  CHECK(moved <= 1);
}

void check_all(const std::vector<Form>& forms) {
  for_each_setting([&](const Setting& s) {
    for (const Form& form : forms) {
      for (const Factors& f : all_factors()) check(form, s, f);
      for (const Factors& f : doubles_alone()) {
        if (s.dtype == Dtype::f64) check(form, s, f);
      }
    }
  });
  SUCCEED();
}

TEST_CASE("a unit of hostile products moves the sum by at most the sensitivity", "[gate]") {
  check_all({products(1, 3, 2), products(1, 40, 30), products(6, 5, 4), products(5, 3, 2, 2)});
}

TEST_CASE("a unit of hostile images moves the sum by at most the sensitivity", "[gate]") {
  check_all({images({9}, 2, 3, 3), images({5, 4}, 2, 3, 3)});
}

TEST_CASE("a unit of hostile table rows moves the sum by at most the sensitivity", "[gate]") {
  check_all(
      {table(7, 3, 4, false, false), table(7, 3, 4, true, false), table(7, 3, 4, false, true)});
}

std::int64_t up_to(PublicRandom& random, std::int64_t most) {
  return 1 + static_cast<std::int64_t>(random.below(most));
}

// Numbers of one sign or of any, whose sizes lie around a power of two.
Values any_values(PublicRandom& random, int largest) {
  const int middle = static_cast<int>(random.below(2 * largest + 1)) - largest,
            spread = static_cast<int>(random.below(12));
  const bool signs = random.below(2) == 0;
  return [=, &random](std::int64_t) {
    const int exponent = middle + static_cast<int>(random.below(spread + 1));
    const double sign = signs && random.below(2) == 0 ? -1 : 1;
    return sign * power(1 + random.uniform(), exponent);
  };
}

Form any_form(PublicRandom& random) {
  const std::int64_t i = up_to(random, 12), o = up_to(random, 12), t = up_to(random, 40);
  switch (random.below(4)) {
    case 0: return products(1, i, o);
    case 1: return products(t, i, o, static_cast<int>(up_to(random, 2)));
    case 2: return images({up_to(random, 7), up_to(random, 7)}, i, o, 3);
    default: return table(t, i, o, random.below(2) == 0, random.below(2) == 0);
  }
}

// A unit of random numbers of all sizes, in a random form and setting.
void check_random(std::uint64_t first, std::uint64_t count) {
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    PublicRandom random(seed);
    const auto& [dtype, precision] = types[random.below(4)];
    const int largest = dtype == Dtype::f64 ? 900 : 110;
    const Setting s{.dtype = dtype,
                    .precision = precision,
                    .bound = power(1, static_cast<int>(random.below(201)) - 100),
                    .kind = kinds[random.below(5)],
                    .norm_method = methods[random.below(3)],
                    .passes = random.below(2) == 0 ? ClipPasses::one : ClipPasses::two,
                    .rows = up_to(random, 3)};
    INFO("seed " << seed);
    check(any_form(random), s,
          {"random", any_values(random, largest), any_values(random, largest)});
  }
  SUCCEED();
}

TEST_CASE("a unit of random numbers of all sizes moves the sum by at most the sensitivity") {
  check_random(0, 300);
}

TEST_CASE("many units of random numbers of all sizes move it by no more", "[nightly]") {
  check_random(1000, 100'000);
}

// Rounding grows with the number of positions: the numbers of each case round alike in every form.
void check_long(const std::vector<Form>& forms, const std::vector<NormMethod>& by) {
  for (const Form& form : forms) {
    for (const NormMethod method : by) {
      for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
        for (const Factors& f : all_factors())
          check(form, {.norm_method = method, .passes = passes}, f);
      }
    }
  }
  SUCCEED();
}

TEST_CASE("a unit of many positions moves the sum by at most the sensitivity", "[gate]") {
  check_long(
      {products(3000, 1, 1), products(700, 2, 600), products(2, 900, 1), images({60, 50}, 1, 1, 3),
       images({70, 40}, 16, 2, 3), images({5000}, 1, 2, 3), table(20000, 2, 1, false, false),
       table(20000, 2, 1, true, false), table(20000, 2, 1, false, true)},
      {std::begin(methods), std::end(methods)});
}

TEST_CASE("a unit of very many positions moves the sum by at most the sensitivity", "[nightly]") {
  check_long({products(3'000'000, 1, 1), images({700, 700}, 1, 1, 3), images({700, 700}, 3, 1, 2),
              table(1'000'000, 2, 1, false, false), table(1'000'000, 2, 1, true, false),
              table(1'000'000, 2, 1, false, true)},
             {NormMethod::automatic, NormMethod::materialize});  // not the squares of positions
}

}  // namespace
}  // namespace sotto
