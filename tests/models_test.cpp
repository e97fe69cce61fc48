// The networks of the samples.
#include <set>

#include "samples/models.h"
#include "samples/registry.h"
#include "samples/resnet.h"
#include "sotto/autograd/losses.h"
#include "sotto/autograd/sink.h"
#include "sotto/dp/clipping.h"
#include "sotto/kernels/compute.h"
#include "sotto/kernels/functors.h"
#include "tests/catch.h"
#include "tests/throws.h"

using namespace sotto;

TEST_CASE("every registered model gives finite logits for each of its samples") {
  std::set<std::string> names;
  for (const models::Entry& entry : models::registry()) {
    INFO(entry.name);
    CHECK(names.insert(entry.name).second);
    CHECK(&models::entry_called(entry.name) == &entry);
    // Those of 32x32 pixels take seconds; a small one is below.
    if (entry.input[0] == 3) continue;
    const auto model = entry.make();
    const auto [inputs, labels] = entry.random_examples(2);
    Tape tape({.private_data = true});
    const Var logits = (*model)(tape.input(inputs));
    CHECK(logits.shape()[logits.rank() - 1] == entry.classes);
    const Var losses = entry.losses(logits, labels);
    CHECK(losses.shape() == Shape{2});
    CHECK(std::isfinite(sum(losses.value()).item()));
  }
  CHECK(throws([] { models::entry_called("resnet"); }, "resnet18, resnet50"));
}

TEST_CASE("ResNet-50 has the parameters that its definition gives") {
  // Convolutions without bias, two numbers for each channel of a normalisation, a linear layer.
  const auto normed = [](std::int64_t in, std::int64_t out, std::int64_t kernel) {
    return in * out * kernel * kernel + 2 * out;
  };
  std::int64_t expected = normed(3, 64, 3), in = 64, width = 64;
  for (const std::int64_t blocks : {3, 4, 6, 3}) {
    expected += normed(in, 4 * width, 1);
    for (std::int64_t block = 0; block < blocks; ++block) {
      expected += normed(in, width, 1) + normed(width, width, 3) + normed(width, 4 * width, 1);
      in = 4 * width;
    }
    width *= 2;
  }
  expected += in * 10 + 10;
  CHECK(models::ResNet().parameter_count() == expected);
  CHECK(expected == 23520842);
}

TEST_CASE("a small residual network trains privately") {
  models::ResNet network({.blocks = {1, 2}, .width = 8, .groups = 4, .classes = 3});
  CHECK(network.blocks().size() == 3);
  Tape tape({.private_data = true});
  const models::Entry entry{
      .name = "", .description = "", .make = nullptr, .input = {3, 8, 8}, .classes = 3};
  const auto [inputs, labels] = entry.random_examples(4);
  Clipper clipper(flat_group(network.parameters(), 1));
  clipper.add(tape, cross_entropy(network(tape.input(inputs)), labels));
  for (const auto& [parameter, sum] : clipper.sums_for_tests()) {
    INFO(parameter->value.shape().numel());
    CHECK(reduce(Reduction::max, unary(unary_index<Abs>, sum), {}, false).item() > 0);
  }
}
