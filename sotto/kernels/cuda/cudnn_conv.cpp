#include "sotto/kernels/cuda/cudnn_conv.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>

#include "sotto/core/error.h"
#include "sotto/kernels/cuda/cudnn_graph.h"
#include "sotto/kernels/cuda/scratch.h"

namespace sotto {

namespace {

using Numbers = std::vector<std::int64_t>;

enum Id : std::int64_t { id_x, id_w, id_y };

constexpr std::int64_t alignment = 16;                            // of addresses, in bytes
constexpr std::int64_t most_workspace = std::int64_t{512} << 20;  // of a plan
constexpr std::int64_t most_configurations = 64;                  // that are looked at
constexpr std::size_t most_trials = 8;

bool wants_fast() {
  static const bool fast = [] {
    const char* const asked = std::getenv("SOTTO_CUDNN");
    const std::string_view wanted = asked ? asked : "deterministic";
    check(wanted == "fast" || wanted == "deterministic",
          "SOTTO_CUDNN: {} where deterministic or fast is known", wanted);
    return wanted == "fast";
  }();
  return fast;
}

cudnnDataType_t type_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f32: return CUDNN_DATA_FLOAT;
    case Dtype::f16: return CUDNN_DATA_HALF;
    default: return CUDNN_DATA_BFLOAT16;
  }
}

// The spatial axes that are more than one place: two, or three where there is a depth.
Numbers spatial_axes(const ConvProblem& p) {
  const bool flat = p.x.size[2] == 1 && p.y.size[2] == 1 && p.w.size[2] == 1;
  return flat ? Numbers{1, 2} : Numbers{0, 1, 2};
}

// A list of a view's, without the spatial axes that are left out.
Numbers of_axes(const std::int64_t* list, const Numbers& axes) {
  Numbers values{list[0], list[1]};
  for (const std::int64_t axis : axes) values.push_back(list[axis + 2]);
  return values;
}

// The problem as numbers, by which plans are kept.
Numbers key_of(const DeviceState& state, const ConvProblem& p) {
  Numbers key{state.device().index, static_cast<int>(p.pass), p.tf32, p.window.groups};
  for (const View* v : {&p.x, &p.w, &p.y}) {
    key.push_back(static_cast<int>(v->dtype));
    key.insert(key.end(), v->size, v->size + v->rank);
    key.insert(key.end(), v->stride, v->stride + v->rank);
  }
  for (const std::int64_t* list :
       {p.window.stride, p.window.before, p.window.after, p.window.dilation}) {
    key.insert(key.end(), list, list + 3);
  }
  return key;
}

class Builder {
 public:
  Builder(DeviceState& state, const Call& call, const ConvProblem& problem)
      : call_(call),
        problem_(problem),
        axes_(spatial_axes(problem)),
        handle_(cudnn_handle(state, call)),
        x_(tensor(problem.x, id_x)),
        w_(tensor(problem.w, id_w)),
        y_(tensor(problem.y, id_y)),
        window_(window()),
        operation_(operation()),
        graph_(graph()) {}

  // Finalized plans, the library's favourite first.
  std::vector<Descriptor> plans(std::size_t most) const {
    std::vector<Descriptor> found;
    for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
      Descriptor heuristics(call_, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
      heuristics.set(call_, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_);
      heuristics.set(call_, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector{mode});
      if (!heuristics.can_finalize()) continue;
      for (const Descriptor& configuration :
           heuristics.read(call_, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                           most_configurations)) {
        if (found.size() == most) return found;
        if (!allowed(configuration)) continue;
        if (auto made = plan(configuration)) found.push_back(std::move(*made));
      }
      if (!found.empty()) return found;
    }
    return found;
  }

 private:
  Descriptor tensor(const View& v, Id id) const {
    Descriptor t(call_, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    t.set(call_, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, std::vector{type_of(v.dtype)});
    t.set(call_, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, of_axes(v.size, axes_));
    t.set(call_, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, of_axes(v.stride, axes_));
    t.set(call_, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, Numbers{id});
    t.set(call_, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, Numbers{alignment});
    t.finalize(call_);
    return t;
  }
  Descriptor window() const {
    const Window& w = problem_.window;
    const auto of = [&](const std::int64_t* list) {
      Numbers values;
      for (const std::int64_t axis : axes_) values.push_back(list[axis]);
      return values;
    };
    Descriptor d(call_, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    d.set(call_, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, Numbers{std::ssize(axes_)});
    d.set(call_, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE,
          std::vector{CUDNN_DATA_FLOAT});
    d.set(call_, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE,
          std::vector{CUDNN_CROSS_CORRELATION});
    d.set(call_, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, of(w.before));
    d.set(call_, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, of(w.after));
    d.set(call_, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, of(w.dilation));
    d.set(call_, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, of(w.stride));
    d.finalize(call_);
    return d;
  }
  struct Names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t alpha, beta, window, x, w, y;
  };
  Names names() const {
    switch (problem_.pass) {
      case ConvPass::forward:
        return {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y};
      case ConvPass::data:
        return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY};
      default:
        return {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY};
    }
  }
  Descriptor operation() const {
    const Names name = names();
    Descriptor d(call_, name.type);
    d.set(call_, name.window, window_);
    d.set(call_, name.x, x_);
    d.set(call_, name.w, w_);
    d.set(call_, name.y, y_);
    d.set(call_, name.alpha, CUDNN_TYPE_FLOAT, std::vector{1.0f});
    d.set(call_, name.beta, CUDNN_TYPE_FLOAT, std::vector{0.0f});
    d.finalize(call_);
    return d;
  }
  Descriptor graph() const {
    Descriptor d(call_, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    d.set(call_, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation_);
    d.set(call_, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle_});
    d.finalize(call_);
    return d;
  }
  // Factors of f32 are whole unless tf32 was allowed, and sums are never narrow. The bits are the
  // same each time: what is computed again, for clipping in two passes, is what was clipped. Unless
  // speed was asked for, and never for weights, whose norms are exact, products are not taken by
  // transforms, which round more.
  bool allowed(const Descriptor& configuration) const {
    const auto engines =
        configuration.read(call_, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
    if (engines.empty()) return false;
    const auto notes = engines[0].read<cudnnBackendNumericalNote_t>(
        call_, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
        CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
    const auto noted = [&](cudnnBackendNumericalNote_t note) {
      return std::find(notes.begin(), notes.end(), note) != notes.end();
    };
    const bool whole = problem_.x.dtype == Dtype::f32 && !problem_.tf32;
    return !(whole && noted(CUDNN_NUMERICAL_NOTE_TENSOR_CORE)) &&
           !noted(CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) &&
           !noted(CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) &&
           !noted(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) &&
           ((wants_fast() && problem_.pass != ConvPass::weight) ||
            !(noted(CUDNN_NUMERICAL_NOTE_WINOGRAD) || noted(CUDNN_NUMERICAL_NOTE_FFT)));
  }
  std::optional<Descriptor> plan(const Descriptor& configuration) const {
    Descriptor d(call_, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    d.set(call_, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle_});
    d.set(call_, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
    if (!d.can_finalize()) return {};
    const auto bytes =
        d.read<std::int64_t>(call_, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1);
    if (bytes.empty() || bytes[0] > most_workspace) return {};
    return d;
  }

  const Call& call_;
  const ConvProblem& problem_;
  Numbers axes_;
  cudnnHandle_t handle_;
  Descriptor x_, w_, y_, window_, operation_, graph_;
};

// The library's handles are not for two threads at once.
std::mutex& library_mutex() {
  static std::mutex mutex;
  return mutex;
}

class LibraryPlan final : public ConvPlan {
 public:
  LibraryPlan(DeviceState& state, const ConvProblem& problem, const Call& call, Descriptor plan)
      : state_(state),
        problem_(problem),
        plan_(std::move(plan)),
        workspace_(plan_.read<std::int64_t>(call, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                            CUDNN_TYPE_INT64, 1)[0]) {}
  void run(void* x, void* w, void* y) const override {
    const std::lock_guard lock(library_mutex());
    launch(x, w, y);
  }
  // Needs the lock.
  void launch(void* x, void* w, void* y) const {
    const Call call("conv", state_.device(), {&problem_.x, &problem_.w, &problem_.y});
    const Scratch<char> workspace(state_.device(), workspace_);
    Descriptor pack(call, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack.set(call, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, Numbers{id_x, id_w, id_y});
    pack.set(call, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
             std::vector<void*>{x, w, y});
    pack.set(call, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
             std::vector<void*>{workspace.data()});
    pack.finalize(call);
    state_.use();
    cudnn_check(call, "cudnnBackendExecute",
                cudnnBackendExecute(cudnn_handle(state_, call), plan_.get(), pack.get()));
  }

 private:
  DeviceState& state_;
  ConvProblem problem_;
  Descriptor plan_;
  std::int64_t workspace_;
};

// Milliseconds of a run, after one that is not counted.
float time_of(const DeviceState& state, const Call& call, const LibraryPlan& plan,
              const ConvProblem& problem) {
  constexpr int runs = 3;
  cudaEvent_t begin = nullptr, end = nullptr;
  cuda_check(call, "cudaEventCreate", cudaEventCreate(&begin));
  cuda_check(call, "cudaEventCreate", cudaEventCreate(&end));
  for (int i = 0; i <= runs; ++i) {
    if (i == 1) cuda_check(call, "cudaEventRecord", cudaEventRecord(begin, state.stream()));
    plan.launch(problem.x.data, problem.w.data, problem.y.data);
  }
  cuda_check(call, "cudaEventRecord", cudaEventRecord(end, state.stream()));
  cuda_check(call, "cudaEventSynchronize", cudaEventSynchronize(end));
  float time = 0;
  cuda_check(call, "cudaEventElapsedTime", cudaEventElapsedTime(&time, begin, end));
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return time / runs;
}

std::unique_ptr<LibraryPlan> find_plan(DeviceState& state, const ConvProblem& problem) try {
  const Call call("conv", state.device(), {&problem.x, &problem.w, &problem.y});
  const Builder builder(state, call, problem);
  std::unique_ptr<LibraryPlan> best;
  float least = 0;
  for (Descriptor& plan : builder.plans(wants_fast() ? most_trials : 1)) {
    auto one = std::make_unique<LibraryPlan>(state, problem, call, std::move(plan));
    const float time = wants_fast() ? time_of(state, call, *one, problem) : 0;
    if (best && time >= least) continue;
    best = std::move(one);
    least = time;
  }
  return best;
} catch (const Unsupported&) {
  return nullptr;
}

bool aligned(const View& v) { return reinterpret_cast<std::uintptr_t>(v.data) % alignment == 0; }

}  // namespace

const ConvPlan* conv_plan(DeviceState& state, const ConvProblem& problem) {
  if (problem.x.dtype == Dtype::f64 || !aligned(problem.x) || !aligned(problem.w) ||
      !aligned(problem.y)) {
    return nullptr;
  }
  static auto* const plans = new std::map<Numbers, std::unique_ptr<LibraryPlan>>;
  const std::lock_guard lock(library_mutex());
  const Numbers key = key_of(state, problem);
  auto found = plans->find(key);
  if (found == plans->end()) found = plans->emplace(key, find_plan(state, problem)).first;
  return found->second.get();
}

}  // namespace sotto
