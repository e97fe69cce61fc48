// A batch of one sample goes the way of larger batches: its values are stored in the same order,
// are converted as often and are added up to the same bits. Strides along its sample axis could be
// any.
#include <functional>

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"

namespace sotto {
namespace {

Tensor random_values(const Shape& shape) {
  PublicRandom random(7);
  return uniform_values(random, shape, 0.5, 1);
}

// [samples, 3, 4], of which a part of each sample was left out: without gaps if samples is 1.
Var with_gaps(Tape& tape, std::int64_t samples) {
  return tape.input(random_values({samples, 2, 3, 4}).select(1, 0));
}

// [samples, 3, 4], the second axis last in memory.
Tensor turned(std::int64_t samples) { return random_values({samples, 4, 3}).transpose(1, 2); }

bool is_turned(const Var& x) { return x.value().strides()[1] < x.value().strides()[2]; }

TEST_CASE("the memory order of a result is that of more samples") {
  using Make = std::function<Var(Tape & tape, std::int64_t samples)>;
  const std::pair<const char*, Make> cases[] = {
      {"unary, of a turned part",
       [](Tape& t, std::int64_t n) {
         return exp(t.input(random_values({n, 2, 4, 3}).select(1, 0).transpose(1, 2)));
       }},
      {"cast",
       [](Tape& t, std::int64_t n) {
         const Tensor x = random_values({n, 2, 4, 3}).select(1, 0).transpose(1, 2);
         return cast(t.input(x), Dtype::f32);
       }},
      {"a part first",
       [](Tape& t, std::int64_t n) { return with_gaps(t, n) * t.input(turned(n)); }},
      {"shared by all samples, first",
       [](Tape& t, std::int64_t n) { return t.constant(turned(1)) * with_gaps(t, n); }},
      {"shared, and narrow samples",
       [](Tape& t, std::int64_t n) {
         return t.constant(turned(1)) + t.input(random_values({n, 3, 1}));
       }},
      {"shared by all samples, chosen",
       [](Tape& t, std::int64_t n) {
         const Var x = with_gaps(t, n);
         return where(x, t.constant(turned(1)), x);
       }},
      {"expanded before the samples", [](Tape& t, std::int64_t n) {
         const Var x = t.input(random_values({3, n, 4}), 1);
         return squeeze(exp(expand(unsqueeze(permute(x, {1, 0, 2}), 0), {1, n, 3, 4})), 0);
       }}};
  for (const auto& [what, make] : cases) {
    INFO(what);
    Tape one, more;
    CHECK(is_turned(make(one, 1)) == is_turned(make(more, 3)));
  }
  Tape tape;
  CHECK(is_turned(tape.input(turned(1)) * with_gaps(tape, 1)));
  CHECK_FALSE(is_turned(with_gaps(tape, 1) * tape.input(turned(1))));
}

// A reshaped sample is a view where a reshaped batch is a copy in another order.
TEST_CASE("moments of one sample have the bits of a batch in either memory order") {
  for (const Shape& size : {Shape{2, 1}, Shape{3, 5}, Shape{1, 16}, Shape{5, 13}, Shape{17, 20}}) {
    PublicRandom random(8);
    const Tensor x = uniform_values(random, {size[0], 3, size[1], 6});
    std::vector<Tensor> values, grads;
    for (const std::int64_t samples : {1, 3}) {
      Tape tape;
      const Var leaf = tape.input(contiguous(x.slice(1, 0, samples)), 1, true);
      const Var image = reshape(permute(leaf, {1, 3, 0, 2}), {samples, 6, size[0] * size[1]}),
                y = normalize_groups(image, 2, 0.1);
      SumSink sink;
      tape.backward(sum_per_sample(exp(y)), sink);
      values.push_back(y.value().slice(0, 0, 1));
      grads.push_back(tape.grad(leaf).slice(1, 0, 1));
    }
    CHECK(same_bits(values[0], values[1]));
    CHECK(same_bits(grads[0], grads[1]));
  }
}

TEST_CASE("a value is itself under another stride along one sample") {
  const Tensor x = random_values({3, 4});
  Tape tape;
  const Tensor row = x.slice(0, 0, 1), same = x.view_as({1, 12})->slice(1, 0, 4);
  REQUIRE(row.strides() != same.strides());
  CHECK(tape.input(row).is(tape.input(same)));
  CHECK_FALSE(tape.input(row).is(tape.input(x.slice(0, 1, 2))));
  Tape whole;
  CHECK_FALSE(whole.input(x).is(whole.input(x.view_as({4, 3})->transpose(0, 1))));
}

}  // namespace
}  // namespace sotto
