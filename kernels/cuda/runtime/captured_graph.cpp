// Captured work as CUDA has it: a graph of the launches on a stream, instantiated once.
//
// It is captured on a stream of its own, so that other threads' work on the GPU goes on and is no
// part of it, and launched on the GPU's stream, in order with the rest. In the relaxed mode memory
// may be allocated meanwhile; what must not be captured is refused by core/cuda/capture.h.
#include "core/cuda/cuda_library.h"
#include "kernels/cuda/runtime/device_state.h"

namespace sotto {

namespace {

// The GPU whose work this thread captures.
constinit thread_local const DeviceState* capturing = nullptr;

class CapturedGraph final : public CapturedLaunches {
 public:
  CapturedGraph(const DeviceState& state, const Call& call, cudaGraph_t graph) : state_(state) {
    cuda_check(call, "cudaGraphInstantiate", cudaGraphInstantiate(&work_, graph, 0));
  }
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;
  ~CapturedGraph() override {
    // What fails here is a failure of earlier work, which the next call tells.
    cudaStreamSynchronize(state_.main_stream());
    cudaGraphExecDestroy(work_);
  }
  void replay() override {
    state_.use();
    cuda_check(Call("replay", state_.device()), "cudaGraphLaunch",
               cudaGraphLaunch(work_, state_.main_stream()));
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
  if (status != cudaSuccess) cudaGetLastError();  // told here, and not again by the next call
  const std::unique_ptr<CUgraph_st, decltype(&cudaGraphDestroy)> graph(raw, cudaGraphDestroy);
  cuda_check(call, "cudaStreamEndCapture", status);
  return std::make_unique<CapturedGraph>(*this, call, raw);
}

}  // namespace sotto
