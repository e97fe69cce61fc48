// The primitives as GPUs run them, on the host: the bodies of kernels/cuda in loops and, for teams,
// in threads that wait for each other. What they compute, and where they read and write, is tested
// so without a GPU. Products are the CPU's.
#pragma once

#include <atomic>
#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include "kernels/backend.h"

namespace sotto {

// Called at the beginning of each primitive with its views; what it returns lives until the end.
using OnCall = std::function<std::shared_ptr<void>(std::initializer_list<const View*>)>;

// What was asked of a device, to be done later.
using Launches = std::vector<std::function<void()>>;
// Where what is asked for now goes; nullptr: it is done at once.
using OnLaunch = std::function<Launches*()>;

// How often something was launched at once, by all backends: kernels, products, plans and copies.
std::atomic<std::int64_t>& launches_at_once();
// Of these the one after so many fails; none below 0.
std::atomic<std::int64_t>& failing_launch();
// Counts one more. Throws SystemFailure for the one that fails.
void count_launch();

// Scratch comes from the allocator of `device`, products from `products`.
std::unique_ptr<Backend> make_device_code(Device device, Backend& products, OnCall on_call = {},
                                          OnLaunch on_launch = {});

// Puts the device code in the place of the CPU's engine for as long as it lives.
class DeviceCodeOnHost {
 public:
  DeviceCodeOnHost();
  ~DeviceCodeOnHost();
  DeviceCodeOnHost(const DeviceCodeOnHost&) = delete;
  DeviceCodeOnHost& operator=(const DeviceCodeOnHost&) = delete;

 private:
  Backend& engine_;
  std::unique_ptr<Backend> device_code_;
};

}  // namespace sotto
