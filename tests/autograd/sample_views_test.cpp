// Several views of each sample as rows of one batch: the sample that a row belongs to, and
// refusals. op_laws_test.cpp checks that gradients equal those of the samples run alone.
#include "autograd/ops.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/op_cases.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

Tensor random_values(std::uint64_t stream, const Shape& shape) {
  PublicRandom random(51, stream);
  return uniform_values(random, shape);
}

nn::Sequential network() {
  nn::manual_seed(4);
  nn::Sequential net{nn::Conv2d(1, 3, Shape{3}), nn::Tanh(), nn::Dropout(0.4), nn::Flatten(),
                     nn::Linear(12, 5)};
  net.to(Dtype::f64);
  return net;
}

// Views of one sample attract each other; views of different samples have no term.
Var attraction(const Var& joined) {
  const std::vector<Var> views = split_views(joined, 2);
  return affine(cosine_similarity(views[0], views[1]), -1, 1);
}

std::vector<double> norms(nn::Module& net, const Tensor& a, const Tensor& b, std::int64_t first,
                          ClipPasses passes = ClipPasses::one) {
  Clipper clipper(flat_group(net.parameters(), 1), {}, passes);
  Tape tape({.private_data = true, .seed = 6, .first_row = first});
  const Var joined = join_views({tape.input(a), tape.input(b)});
  CHECK(tape.views(joined) == 2);
  clipper.add(tape, attraction(net(joined)));
  return clipper.statistics().norms[0];
}

}  // namespace

TEST_CASE("two views of a sample are clipped together, whatever the other samples") {
  nn::Sequential net = network();
  const Tensor a = random_values(1, {5, 1, 4, 4}), b = random_values(2, {5, 1, 4, 4});
  const std::vector<double> together = norms(net, a, b, 0);
  const std::vector<double> twice = norms(net, a, b, 0, ClipPasses::two);
  REQUIRE(together.size() == 5);
  for (std::int64_t n = 0; n < 5; ++n) {
    // Includes dropout: a row's mask depends on its view and its row in the logical batch.
    const double alone = norms(net, a.slice(0, n, n + 1), b.slice(0, n, n + 1), n)[0];
    CHECK(together[static_cast<std::size_t>(n)] == Approx(alone).epsilon(1e-10));
    CHECK(twice[static_cast<std::size_t>(n)] == Approx(alone).epsilon(1e-10));
  }
}

TEST_CASE("views given as one input are those joined on the tape") {
  const Tensor a = random_values(3, {3, 4}), b = random_values(4, {3, 4});
  Parameter w(random_values(5, {2, 4}));
  const auto norm = [&](bool joined) {
    Clipper clipper(flat_group({&w}, 1), {});
    Tape tape({.private_data = true});
    const Var x = joined ? join_views({tape.input(a), tape.input(b)})
                         : tape.input_views(concat({a, b}, 0), 2);
    CHECK(tape.sample_count() == 3);
    clipper.add(tape, attraction(linear(x, tape.use(w))));
    return clipper.statistics().norms[0];
  };
  CHECK(norm(true) == norm(false));
}

TEST_CASE("losses of rows take as many targets and are added within a sample") {
  Parameter w(random_values(7, {3, 4}));
  Clipper clipper(flat_group({&w}, 1), {});
  Tape tape({.private_data = true});
  const Var x = tape.input_views(random_values(6, {4, 4}), 2);
  const Tensor targets = Tensor::from(std::vector<std::int64_t>{0, 1, 2, 0}, {4});
  const Var losses = cross_entropy(linear(x, tape.use(w)), targets);
  CHECK(losses.shape() == Shape{4});
  CHECK(throws([&] { clipper.add(tape, losses); }, "4 losses for 2 samples"));
  clipper.discard();
  const std::vector<Var> views = split_views(losses, 2);
  clipper.add(tape, views[0] + views[1]);
  CHECK(clipper.statistics().norms[0].size() == 2);
}

TEST_CASE("an empty batch has empty views") {
  Tape tape({.private_data = true});
  const Var x = join_views({tape.input(zeros({0, 2})), tape.input(zeros({0, 2}))});
  CHECK(x.shape() == Shape{0, 2});
  const std::vector<Var> views = split_views(x, 2);
  REQUIRE(views.size() == 2);
  CHECK(views[1].shape() == Shape{0, 2});
}

TEST_CASE("rows of different kinds do not meet, and views fit their samples") {
  Tape tape({.private_data = true});
  // One sample, because shapes alone would broadcast.
  const Var x = tape.input(random_values(8, {1, 3})), y = tape.input(random_values(9, {1, 3}));
  const Var joined = join_views({x, y});
  CHECK(throws([&] { joined + x; }, "add: its inputs have 2 and 1 rows for 1 samples"));
  CHECK(throws([&] { tape.input(random_values(10, {2, 3})); }, "2 samples along axis 0"));
  CHECK(throws([&] { tape.input_views(random_values(10, {4, 3}), 3); }, "4 rows are not 3 views"));
  CHECK(throws([&] { tape.input_views(random_values(10, {6, 3}), 3); }, "2 samples along axis 0"));
  CHECK(throws([&] { split_views(joined, 3); },
               "split_views: 3 views do not make up 2 rows of 1 samples"));
  CHECK(throws(
      [&] {
        join_views({x, transpose(y, 0, 1)});
      },
      "join_views: different shapes (3, 1) and (1, 3)"));
  CHECK(throws(
      [&] {
        concat({x, y}, 0);
      },
      "join_views puts several views of each sample into one batch"));
}
