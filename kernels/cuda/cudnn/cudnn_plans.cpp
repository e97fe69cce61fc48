#include "kernels/cuda/cudnn/cudnn_plans.h"

#include <algorithm>
#include <atomic>
#include <cstdio>

#include <fmt/format.h>

#include "kernels/cuda/runtime/scratch.h"

namespace sotto {

namespace {

#if CUDNN_VERSION < 90800
// Constants that older headers lack and older libraries reject.
constexpr auto CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR = static_cast<cudnnBackendDescriptorType_t>(38);
constexpr auto CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION =
    static_cast<cudnnBackendAttributeName_t>(2702);
constexpr auto CUDNN_ATTR_ENGINEHEUR_DEVICEPROP = static_cast<cudnnBackendAttributeName_t>(204);
constexpr auto CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP = static_cast<cudnnBackendAttributeName_t>(407);
#endif

constexpr std::int64_t max_configurations = 64;  // limit of configurations tried

EngineNotes notes_of(const Call& call, const Descriptor& configuration) {
  const auto engines =
      configuration.read(call, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  if (engines.empty())
    throw Unsupported{.reason = "a configuration without an engine", .wrong = true};
  return engines[0].read<cudnnBackendNumericalNote_t>(call, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                                      CUDNN_TYPE_NUMERICAL_NOTE,
                                                      CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
}

std::int64_t workspace_of(const Call& call, const Descriptor& plan) {
  return plan.read<std::int64_t>(call, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                 1)[0];
}

}  // namespace

PlanTarget::PlanTarget(DeviceState& state, const Call& call) : handle_(cudnn_handle(state, call)) {}

PlanTarget::PlanTarget(const Call& call, const std::string& description)
    : description_(std::in_place, call, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR) {
  const char* const text = description.c_str();
  description_->set(call, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                    std::vector<char>(text, text + description.size() + 1));
  description_->finalize(call);
}

Descriptor PlanTarget::graph(const Call& call, const std::vector<Descriptor>& operations) const {
  Descriptor d(call, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  d.set(call, CUDNN_ATTR_OPERATIONGRAPH_OPS, operations);
  if (handle_)
    d.set(call, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle_});
  d.finalize(call);
  return d;
}

Descriptor PlanTarget::heuristics(const Call& call, const Descriptor& graph,
                                  cudnnBackendHeurMode_t mode) const {
  Descriptor d(call, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  d.set(call, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
  d.set(call, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, std::vector{mode});
  if (description_) d.set(call, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *description_);
  return d;
}

Descriptor PlanTarget::plan(const Call& call, const Descriptor& configuration) const {
  Descriptor d(call, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  d.set(call, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, configuration);
  if (handle_)
    d.set(call, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, std::vector{handle_});
  if (description_) d.set(call, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, *description_);
  return d;
}

void tell_once(const Call& call, const Unsupported& unsupported) {
  static std::atomic<bool> told = false;
  if (!unsupported.wrong || told.exchange(true)) return;
  fmt::print(stderr, "sotto: {}; done by products\n",
             failure_text(call, "cuDNN has no plan", unsupported.reason));
}

bool noted(const EngineNotes& notes, cudnnBackendNumericalNote_t note) {
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

std::vector<Descriptor> find_plans(const Call& call, const PlanTarget& target,
                                   const std::vector<Descriptor>& operations,
                                   const std::function<bool(const EngineNotes&)>& allowed,
                                   std::size_t max, std::int64_t max_workspace) {
  const ForgetErrors forget;
  const Descriptor graph = target.graph(call, operations);
  std::vector<Descriptor> found;
  for (const cudnnBackendHeurMode_t mode : {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK}) {
    Descriptor heuristics = target.heuristics(call, graph, mode);
    if (!heuristics.can_finalize(call)) continue;
    for (const Descriptor& configuration :
         heuristics.read(call, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR,
                         max_configurations)) {
      if (found.size() == max) return found;
      if (!allowed(notes_of(call, configuration))) continue;
      Descriptor plan = target.plan(call, configuration);
      if (plan.can_finalize(call) && workspace_of(call, plan) <= max_workspace)
        found.push_back(std::move(plan));
    }
    if (!found.empty()) return found;
  }
  return found;
}

LibraryPlan::LibraryPlan(DeviceState& state, const Call& call, Descriptor plan)
    : state_(state), plan_(std::move(plan)), workspace_(workspace_of(call, plan_)) {}

void LibraryPlan::run(const Call& call, const std::vector<std::int64_t>& ids,
                      const std::vector<void*>& data) const try {
  const ForgetErrors forget;
  const Scratch<char> workspace(state_.device(), workspace_);
  Descriptor pack(call, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  pack.set(call, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ids);
  pack.set(call, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, data);
  pack.set(call, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR,
           std::vector<void*>{workspace.data()});
  cudnn_check(call, "cudnnBackendFinalize", cudnnBackendFinalize(pack.get()));
  state_.use();
  const cudnnHandle_t handle = cudnn_handle(state_, call);
  cudnn_check(call, "cudnnBackendExecute", cudnn_with_room(call, [&] {
                return cudnnBackendExecute(handle, plan_.get(), pack.get());
              }));
} catch (const Unsupported& unsupported) {
  device_failed(call, "cudnnBackendExecute", unsupported.reason);
}

}  // namespace sotto
