// Devices and what they are called, where there may be no GPU.
#include "sotto/core/devices.h"

#include "catch.h"
#include "sotto/core/cuda.h"
#include "sotto/core/tensor.h"
#include "tests/throws.h"

using namespace sotto;

TEST_CASE("the CPU is the first device, and every device is found by its name") {
  const std::vector<DeviceInfo> all = devices();
  REQUIRE(!all.empty());
  CHECK(all[0].device == cpu);
  CHECK(all[0].memory > 0);
  for (const DeviceInfo& info : all) {
    CHECK(device_named(name(info.device)) == info.device);
    CHECK(!info.name.empty());
  }
}

TEST_CASE("a GPU that cannot be used is refused with the reason, in one line") {
  const std::string reason = cuda_reason();
  CHECK(reason.empty() == (devices().size() > 1));
  CHECK(reason.find('\n') == std::string::npos);
  if (reason.empty()) return;
  CHECK(throws([] { device_named("cuda"); }, reason));
  CHECK(throws([] { cuda_runtime(); }, reason));
  CHECK(throws([] { Tensor::empty({2}, Dtype::f32, {DeviceKind::cuda, 0}); }, reason));
  CHECK(throws([] { Tensor::empty({2}).to({DeviceKind::cuda, 0}); }, reason));
}

TEST_CASE("a name that is no device's is refused") {
  for (const char* wrong : {"", "gpu", "cud", "cuda:", "cuda:x", "cuda:-1", "cuda0", "cpu:1"}) {
    CHECK(throws([&] { device_named(wrong); }, "where cpu, cuda or cuda:N is known"));
  }
  CHECK_THROWS_AS(device_named("cuda:99"), std::invalid_argument);
}

TEST_CASE("tensors go to every device and back with their strides") {
  const Tensor whole = Tensor::from({1, 2, 3, 4, 5, 6, 7, 8}, {2, 4}, Dtype::f32);
  const Tensor part = whole.transpose(0, 1).slice(0, 1, 4, 2);
  for (const DeviceInfo& info : devices()) {
    const Tensor there = part.to(info.device);
    CHECK(there.device() == info.device);
    CHECK(there.shares_storage(part) == (info.device == cpu));
    CHECK(there.strides() == part.strides());
    CHECK(there.to_vector<float>() == std::vector<float>{2, 6, 4, 8});
    CHECK(there.select(0, 1).select(0, 1).item() == 8);
    CHECK(Tensor::empty({0, 3}).to(info.device).numel() == 0);
  }
}
