// Einstein summation: values against loops over all indices, gradients by the laws of operations,
// and refusals.
#include <map>

#include "autograd/check/op_run.h"
#include "autograd/ops/einsum.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

using namespace sotto;
using namespace sotto::testing;

namespace {

struct Case {
  std::string operands;  // "bij,bjk"
  std::string result;
  std::string samples;  // per operand its sample label; '.': shared

  std::string equation() const { return operands + "->" + result; }
};

const std::vector<Case> cases{
    {"bi,oi", "bo", "b."},      {"oi,bi", "bo", ".b"},        {"bti,oi", "bto", "b."},
    {"tbi,oi", "tob", "b."},    {"bij,bjk", "bik", "bb"},     {"bhqd,bhkd", "bhqk", "bb"},
    {"i,j", "ij", ".."},        {"bi,bj", "bij", "bb"},       {"bij", "bji", "b"},
    {"bij", "b", "b"},          {"bhi,hio", "bho", "b."},     {"hio,bhi", "bho", ".b"},
    {"bi,oij,bj", "bo", "b.b"}, {"bi,ij,jk", "bk", "b.."},    {"bij,j", "bi", "b."},
    {"ib,ij", "bj", "b."},      {"bij,ikj", "bk", "b."},      {"bi,i", "b", "b."},
    {"bij,bij", "b", "bb"},     {"ij,ij", "", ".."},          {"bcij,cdij", "bd", "b."},
    {"b,ij", "bij", "b."},      {"xbi,bxj,ok", "bijo", "bb."}};

struct Drawn {
  Instance instance;
  std::map<char, std::int64_t> sizes;
};

std::vector<std::string> parts_of(const std::string& operands) {
  std::vector<std::string> parts{""};
  for (const char c : operands) {
    if (c == ',')
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

Drawn drawn(const Case& c, PublicRandom& random) {
  Drawn d;
  const std::vector<std::string> parts = parts_of(c.operands);
  for (const std::string& labels : parts) {
    for (const char label : labels) d.sizes.try_emplace(label, draw(random, 1, 4));
  }
  for (std::size_t k = 0; k < parts.size(); ++k) {
    Shape shape;
    for (const char label : parts[k]) shape.push_back(d.sizes[label]);
    const char sample = c.samples[k];
    const SampleAxis samples =
        sample == '.' ? SampleAxis::shared() : SampleAxis(static_cast<int>(parts[k].find(sample)));
    d.instance.inputs.push_back({uniform_values(random, shape), samples});
  }
  d.instance.run = [c](const std::vector<Var>& x) { return einsum(c.equation(), x); };
  return d;
}

// Every combination of indices adds one product to one element of the result.
std::vector<double> by_loops(const Case& c, const Drawn& d) {
  const std::vector<std::string> parts = parts_of(c.operands);
  std::vector<std::vector<double>> operands;
  for (const OpInput& x : d.instance.inputs) operands.push_back(values(x.value));
  std::map<char, std::int64_t> at;
  std::int64_t combinations = 1, elements = 1;
  for (const auto& [label, size] : d.sizes) combinations *= size;
  for (const char label : c.result) elements *= d.sizes.at(label);
  const auto offset = [&](const std::string& labels) {
    std::int64_t position = 0;
    for (const char label : labels) position = position * d.sizes.at(label) + at[label];
    return static_cast<std::size_t>(position);
  };
  std::vector<double> y(static_cast<std::size_t>(elements), 0.0);
  for (std::int64_t i = 0; i < combinations; ++i) {
    std::int64_t rest = i;
    for (const auto& [label, size] : d.sizes) {
      at[label] = rest % size;
      rest /= size;
    }
    double product = 1;
    for (std::size_t k = 0; k < parts.size(); ++k) product *= operands[k][offset(parts[k])];
    y[offset(c.result)] += product;
  }
  return y;
}

Tensor random_values(const Shape& shape) {
  PublicRandom random(3);
  return uniform_values(random, shape);
}

}  // namespace

TEST_CASE("einsum is the sum over all indices that the result does not name") {
  PublicRandom random(41);
  for (const Case& c : cases) {
    for (int i = 0; i < 12; ++i) {
      INFO(c.equation());
      const Drawn d = drawn(c, random);
      Tape tape({.private_data = true});
      std::vector<Var> x;
      for (const OpInput& input : d.instance.inputs) {
        x.push_back(input.samples.batched() ? tape.input(input.value, input.samples.axis())
                                            : tape.constant(input.value));
      }
      const Var y = d.instance.run(x);
      check_close(y.value(), by_loops(c, d));
      const std::size_t axis = c.result.find('b');
      const bool batched = c.samples.find('b') != std::string::npos;
      CHECK(y.samples() == (batched ? SampleAxis(static_cast<int>(axis)) : SampleAxis::shared()));
    }
  }
}

TEST_CASE("einsum obeys the laws of gradients and of samples") {
  for (const Case& c : cases) {
    CHECK_NOTHROW(check_op(
        {"einsum", c.equation(), [&](PublicRandom& random) { return drawn(c, random).instance; }},
        {.instances = 8}));
  }
}

TEST_CASE("a shared matrix in an einsum keeps its gradient factored") {
  PublicRandom random(5);
  const Drawn d = drawn({"bti,oi", "bto", "b."}, random);
  const OpRun run = run_case(with_loss(d.instance, random), Dtype::f64);
  REQUIRE(run.uses[1].size() == 1);
  CHECK(run.uses[1][0].form() == std::string("outer"));
}

TEST_CASE("einsum without an arrow keeps the letters that occur once, in order") {
  Tape tape;
  const Var a = tape.constant(random_values({2, 3})), b = tape.constant(random_values({3, 4}));
  CHECK(values(einsum("ij, jk", {a, b}).value()) == values(einsum("ij,jk->ik", {a, b}).value()));
  CHECK(values(einsum("ba", {a}).value()) == values(einsum("ba->ab", {a}).value()));
}

TEST_CASE("einsum passes an empty batch") {
  Tape tape({.private_data = true});
  const Var x = tape.input(zeros({0, 3, 2}, Dtype::f64)), w = tape.constant(random_values({4, 2}));
  CHECK(einsum("bti,oi->bto", {x, w}).shape() == Shape{0, 3, 4});
  CHECK(einsum("bti,bsi->bts", {x, x}).shape() == Shape{0, 3, 3});
}

TEST_CASE("einsum refuses equations without meaning, and sums over samples") {
  Tape tape({.private_data = true});
  const Var x = tape.input(random_values({2, 3})), w = tape.constant(random_values({4, 3}));
  const auto refuses = [&](const char* equation, const std::vector<Var>& operands,
                           const char* why) {
    return throws([&] { einsum(equation, operands); }, why);
  };
  CHECK(refuses("bi,oi->io", {x, w}, "sum: "));
  CHECK(refuses("bi,bj->ij", {x, x}, "the sum over 'b' mixes samples"));
  CHECK(refuses("bi->i", {x}, "sum"));
  CHECK(refuses("bi,ci->bc", {x, x}, "the sample axis is 'b' in one operand and 'c' in another"));
  CHECK(refuses("bi,oi->bo", {x}, "1 operands for"));
  CHECK(refuses("bij->b", {x}, "operand 0 of shape (2, 3) for \"bij\""));
  CHECK(refuses("bi,ob->bo", {x, w}, "'b' of \"bi,ob->bo\" is 2 and 3"));
  CHECK(refuses("bb->b", {x}, "'b' twice"));
  CHECK(refuses("bi->bb", {x}, "'b' twice"));
  CHECK(refuses("bi->bz", {x}, "no operand of \"bi->bz\" has 'z'"));
  CHECK(refuses("...i->...", {x}, "'.' in"));
}
