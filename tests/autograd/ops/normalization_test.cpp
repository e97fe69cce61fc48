// Normalisation: what a GPU is asked for.
// File tags: [gpu]
#include "autograd/check/op_run.h"
#include "nn/functional.h"
#include "tests/support/captured_setup.h"
#include "tests/support/fake_gpu_counts.h"
#include "tests/support/kernel_cases.h"

using namespace sotto;

namespace {

// The launches of a private step of `samples` through a layer with standardised weights.
std::int64_t launches(Device device, std::int64_t samples) {
  Random random(81);
  Parameter w(random_tensor(random, {6, 8}, Dtype::f32).to(device));
  const Tensor x = random_tensor(random, {samples, 3, 8}, Dtype::f32).to(device);
  Tape tape({.private_data = true});
  const Var y = linear(tape.input(x), nn::standardized_weight(tape.use(w)));
  const Var loss = sum_per_sample(square(y));
  PerSampleGradSink sink;
  const std::int64_t before = pretended_counts()->launches;
  tape.backward(loss, sink);
  return pretended_counts()->launches - before;
}

}  // namespace

TEST_CASE("standardised weights take as many launches for many samples as for two") {
  if (!pretended_counts()) return;
  for_each_gpu([](Device device) { CHECK(launches(device, 20) == launches(device, 2)); });
}
