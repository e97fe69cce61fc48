#include "kernels/cuda/cudnn/cudnn_conv.h"

#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "kernels/cuda/cudnn/cudnn_conv_graph.h"

namespace sotto {

namespace {

using Numbers = std::vector<std::int64_t>;

constexpr std::size_t max_trials = 8;

bool wants_fast() {
  static const bool fast = [] {
    const char* const asked = std::getenv("SOTTO_CUDNN");
    const std::string_view wanted = asked ? asked : "deterministic";
    check(wanted == "fast" || wanted == "deterministic",
          "SOTTO_CUDNN: \"{}\" is neither deterministic nor fast", wanted);
    return wanted == "fast";
  }();
  return fast;
}

// The key of a problem, by which plans are cached: one found with trials is another's.
Numbers key_of(const DeviceState& state, const ConvProblem& p, bool trials) {
  Numbers key{state.device().index, static_cast<int>(p.pass), p.tf32, p.window.groups, trials};
  for (const View* v : {&p.x, &p.w, &p.y}) append_form(key, *v);
  for (const std::int64_t* list :
       {p.window.stride, p.window.before, p.window.after, p.window.dilation}) {
    key.insert(key.end(), list, list + 3);
  }
  return key;
}

class LibraryConv final : public ConvPlan {
 public:
  LibraryConv(DeviceState& state, const ConvProblem& problem, const Call& call, Descriptor plan)
      : state_(state), problem_(problem), plan_(state, call, std::move(plan)) {}
  void run(void* x, void* w, void* y) const override {
    const std::lock_guard lock(cudnn_mutex());
    launch(x, w, y);
  }
  // The caller must hold cudnn_mutex().
  void launch(void* x, void* w, void* y) const {
    const Call call("conv", state_.device(), {&problem_.x, &problem_.w, &problem_.y});
    plan_.run(call, {std::begin(conv_ids), std::end(conv_ids)}, {x, w, y});
  }

 private:
  DeviceState& state_;
  ConvProblem problem_;
  LibraryPlan plan_;
};

class TimedEvent {
 public:
  TimedEvent(const Call& call, cudaStream_t stream) {
    cuda_check(call, "cudaEventCreate", cudaEventCreate(&event_));
    const cudaError_t status = cudaEventRecord(event_, stream);
    if (status != cudaSuccess) cudaEventDestroy(event_);
    cuda_check(call, "cudaEventRecord", status);
  }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;
  ~TimedEvent() { cudaEventDestroy(event_); }
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Milliseconds of several runs, after one warm-up run.
float time_of(const DeviceState& state, const Call& call, const LibraryConv& plan,
              const ConvProblem& problem) {
  constexpr int runs = 3;
  const auto run = [&] { plan.launch(problem.x.data, problem.w.data, problem.y.data); };
  run();
  const TimedEvent begin(call, state.stream());
  for (int i = 0; i < runs; ++i) run();
  const TimedEvent end(call, state.stream());
  cuda_check(call, "cudaEventSynchronize", cudaEventSynchronize(end.get()));
  float time = 0;
  cuda_check(call, "cudaEventElapsedTime", cudaEventElapsedTime(&time, begin.get(), end.get()));
  return time / runs;
}

std::unique_ptr<LibraryConv> find_plan(DeviceState& state, const Call& call,
                                       const ConvProblem& problem, bool trials) {
  std::unique_ptr<LibraryConv> best;
  float min = 0;
  for (Descriptor& plan :
       conv_plans(call, PlanTarget(state, call), problem, trials, trials ? max_trials : 1)) {
    auto one = std::make_unique<LibraryConv>(state, problem, call, std::move(plan));
    const float time = trials ? time_of(state, call, *one, problem) : 0;
    if (best && time >= min) continue;
    best = std::move(one);
    min = time;
  }
  return best;
}

}  // namespace

const ConvPlan* conv_plan(DeviceState& state, const ConvProblem& problem) {
  if (problem.x.dtype == Dtype::f64 || !library_aligned(problem.x) || !library_aligned(problem.w) ||
      !library_aligned(problem.y)) {
    return nullptr;
  }
  const Call call("conv", state.device(), {&problem.x, &problem.w, &problem.y});
  const bool captured = state.stream() != state.main_stream();
  const std::lock_guard lock(cudnn_mutex());
  return tried_plan<LibraryConv>(
      wants_fast(), captured, [&](bool trials) { return key_of(state, problem, trials); },
      [&](bool trials) {
        return plan_or_none(call, [&] { return find_plan(state, call, problem, trials); });
      });
}

}  // namespace sotto
