// Runs the primitives' GPU code on the host: the bodies of kernels/cuda in loops and, for teams, in
// threads that synchronize. This tests their results and memory accesses without a GPU. Products
// are the CPU's.
#pragma once

#include <atomic>
#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include "kernels/backend.h"

namespace sotto {

// Called at the beginning of each primitive with its views; the result lives until its end.
using OnCall = std::function<std::shared_ptr<void>(std::initializer_list<const View*>)>;

// Work asked of a device, to be done later.
using Launches = std::vector<std::function<void()>>;
// A piece of work: a launch, a further launch of a product, which is not counted, or a copy of the
// host's bytes.
enum class Asked { launch, further_launch, bytes };
// Takes a piece of work, to be done later. Without it work is done at once.
using OnLaunch = std::function<void(std::function<void()> work, Asked asked)>;

// What one primitive asks of a device.
struct PrimitiveWork {
  const char* name = "";
  double bytes = 0;     // of its operands, and of those of products on its scratch
  double flops = 0;     // of products, convolutions and attention
  bool narrow = false;  // products of 16 bits
  std::int64_t launches = 0;
  std::vector<const char*> kernels = {};  // of the launches: types of bodies (typeid), or what else
};
// With SOTTO_PRETENDED_DRY=1 no work is done, however large, and what is asked for is recorded: as
// a GPU with its libraries would be asked, which have no gaps then.
bool dry();
std::vector<PrimitiveWork>& recorded_work();

// The number of launches that are not captured, of all backends: kernels, products, plans and
// copies.
std::atomic<std::int64_t>& launches_at_once();
// The index of the launch that fails; below 0: none.
std::atomic<std::int64_t>& failing_launch();
// True if for_each_tile() does nothing, as a kernel that this GPU cannot run.
std::atomic<bool>& skips_tiles();
// How many launches find no memory for their code, from number `first` on.
struct FullLaunches {
  std::atomic<std::int64_t> first = 0;
  std::atomic<int> times = 0;
};
FullLaunches& full_launches();
// Counts a launch on a device, which is asked for as on a GPU: again where there was no memory.
// Throws OutOfMemory, and SystemFailure if it is the one that fails.
void count_launch(Device device);

// Allocates scratch from the allocator of `device`, and takes products from `products`.
std::unique_ptr<Backend> make_device_code(Device device, Backend& products, OnCall on_call = {},
                                          OnLaunch on_launch = {});

// Replaces the CPU's engine by the device code while it lives.
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
