// A small network with a captured loss, for the tests of CUDA graphs on every GPU.
#pragma once

#include <functional>
#include <vector>

#include "core/devices.h"
#include "memory/captured_loss.h"
#include "nn/init.h"
#include "tests/support/catch.h"
#include "tests/support/dp_models.h"

namespace sotto {

inline void for_each_gpu(const std::function<void(Device)>& f) {
  for (const DeviceInfo& info : devices()) {
    INFO(info.name);
    if (info.device != cpu) f(info.device);
  }
}

inline Var loss_of(nn::Module& model, Tape& tape, const std::vector<Tensor>& batch) {
  return cross_entropy(model(tape.input(batch[0])), batch[1]);
}

// A small network on a device, its loss, and the captured loss.
struct Setup {
  nn::Sequential model;
  memory::CapturedLoss::Loss plain = [this](Tape& tape, const std::vector<Tensor>& batch) {
    return loss_of(model, tape, batch);
  };
  memory::CapturedLoss captured;

  explicit Setup(Device device, std::int64_t rows)
      : model(network(device)), captured(model, rows, plain) {}

 private:
  static nn::Sequential network(Device device) {
    nn::manual_seed(5);
    nn::Sequential model = small_network();
    model.to(device);
    return model;
  }
};

inline std::vector<Tensor> tensors(const Batch& batch) { return {batch.images, batch.targets}; }

inline std::vector<Tensor> on_device(Device device, const std::vector<Tensor>& batch) {
  std::vector<Tensor> there;
  for (const Tensor& x : batch) there.push_back(x.to(device));
  return there;
}

}  // namespace sotto
