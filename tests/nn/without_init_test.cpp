// Modules that are made without initial values.
#include "nn/without_init.h"

#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;

TEST_CASE("without initial values a module has shapes and no memory, and nothing is drawn") {
  nn::manual_seed(1);
  const std::uint64_t before = nn::init_random().counter();
  {
    const nn::WithoutInit without_init(std::int64_t{1} << 40, "a test");
    const nn::Linear layer(1 << 18, 1 << 18);
    CHECK(layer.weight->value.shape() == Shape{1 << 18, 1 << 18});
    CHECK(layer.weight->value.strides() == Shape{0, 0});
    CHECK(nn::WithoutInit::lives());
  }
  CHECK_FALSE(nn::WithoutInit::lives());
  CHECK(nn::init_random().counter() == before);
  CHECK(nn::Linear(2, 2).weight->value.contiguous());
}

TEST_CASE("modules of more elements than there can be are refused") {
  const nn::WithoutInit without_init(100, "config");
  const nn::Linear layer(7, 8, {.bias = false});
  CHECK(throws([] { nn::Linear(9, 5); }, "config: parameters of more elements than there can be"));
  CHECK(throws([] { nn::Embedding(std::int64_t{1} << 62, 8); }, "config: parameters of more"));
}
