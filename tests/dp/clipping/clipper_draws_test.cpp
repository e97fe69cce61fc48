// The draw that ends a clipper's batch is the one whose units were clipped.
// File tags: [engine]
#include "core/random/secret_random.h"
#include "dp/clipping/clipper.h"
#include "dp/sampling/epoch_samplers.h"
#include "dp/sampling/poisson_samplers.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

namespace sotto {
namespace {

TEST_CASE("a clipper's batch ends with the draw that began it, and with no other of its size") {
  Parameter w(zeros({2}));
  Clipper clipper(flat_group({&w}, 1));
  PartitionSampler sampler(40, 10);
  SampledBatch draw = sampler.draw(), other = sampler.draw();
  REQUIRE(draw.size() == other.size());
  clipper.begin(draw);
  clipper.add_zeros(draw.size());
  CHECK(throws([&] { clipper.finish(std::move(other)); }, "other units than were drawn"));
  CHECK_NOTHROW(clipper.finish(std::move(draw)));
}

TEST_CASE("without begin() only a draw of all units or of none ends a clipper's batch") {
  Parameter w(zeros({2}));
  Clipper clipper(flat_group({&w}, 1));
  PartitionSampler sampler(40, 10);
  SampledBatch draw = sampler.draw();
  clipper.add_zeros(draw.size());
  CHECK(throws([&] { clipper.finish(std::move(draw)); }, "finish() without begin(draw): 10 of 40"));
  clipper.discard();
  FullBatchSampler all(3);
  clipper.add_zeros(3);
  CHECK_NOTHROW(clipper.finish(all.draw()));
  PoissonSampler none(1000, 1e-12, SecretRandom::insecure_seeded(2));
  CHECK_NOTHROW(clipper.finish(none.draw()));
}

}  // namespace
}  // namespace sotto
