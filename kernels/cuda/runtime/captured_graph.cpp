// CUDA graphs: the launches on a stream, captured and instantiated once.
//
// A capture uses its own stream, so that other threads' work on the GPU continues and is not
// captured; replays are launched on the GPU's main stream, in order with its other work. In CUDA's
// relaxed mode memory may be allocated during a capture; core/cuda/capture.h refuses the work that
// must not be captured.
#include <mutex>

#include "core/cuda/cuda_library.h"
#include "kernels/cuda/runtime/device_state.h"

namespace sotto {

namespace {

// The GPU that this thread is capturing on; nullptr if none.
constinit thread_local const DeviceState* capturing = nullptr;

class CapturedGraph final : public CapturedLaunches {
 public:
  CapturedGraph(const DeviceState& state, const Call& call, cudaGraph_t graph) : state_(state) {
    cuda_check_with_room(call, "cudaGraphInstantiate",
                         [&] { return cudaGraphInstantiate(&work_, graph, 0); });
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  ~CapturedGraph() override {
    // An error here comes from earlier work, and the next call reports it.
    state_.select();
    cudaStreamSynchronize(state_.main_stream());
    cudaGraphExecDestroy(work_);
  }
  void replay() override {
    state_.use();
    cuda_check_with_room(Call("replay", state_.device()), "cudaGraphLaunch",
                         [&] { return cudaGraphLaunch(work_, state_.main_stream()); });
  }

 private:
  const DeviceState& state_;
  cudaGraphExec_t work_ = nullptr;
};

}  // namespace

cudaStream_t DeviceState::stream() const { return capturing == this ? capture_stream_ : stream_; }

void DeviceState::begin_capture() {
  const Call call("capture", device_);
  use();
  capturing_.lock();
  try {
    if (!capture_stream_)
      cuda_check(call, "cudaStreamCreate",
                 cudaStreamCreateWithFlags(&capture_stream_, cudaStreamNonBlocking));
    cuda_check(call, "cudaStreamBeginCapture",
               cudaStreamBeginCapture(capture_stream_, cudaStreamCaptureModeRelaxed));
  } catch (...) {
    capturing_.unlock();
    throw;
  }
  capturing = this;
}

std::unique_ptr<CapturedLaunches> DeviceState::end_capture() {
  const Call call("capture", device_);
  const std::lock_guard unlock(capturing_, std::adopt_lock);
  capturing = nullptr;
  cudaGraph_t raw = nullptr;
  const cudaError_t status = cudaStreamEndCapture(capture_stream_, &raw);
  if (status != cudaSuccess) cudaGetLastError();  // clears the error, which is reported here only
  const std::unique_ptr<CUgraph_st, decltype(&cudaGraphDestroy)> graph(raw, cudaGraphDestroy);
  cuda_check(call, "cudaStreamEndCapture", status);
  return std::make_unique<CapturedGraph>(*this, call, raw);
}

}  // namespace sotto
