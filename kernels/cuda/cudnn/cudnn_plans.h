// Execution plans that cuDNN makes of a graph of operations on a GPU.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/cudnn/cudnn_graph.h"
#include "kernels/cuda/cudnn/kept_plan.h"

namespace sotto {

// The GPU that plans are for: one in use, or one given by a description in the library's format
// (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION; cuDNN 9.8 or later). Plans for a description cannot
// be run; tests use them to find out, on any machine, which graphs the library accepts.
class PlanTarget {
 public:
  PlanTarget(DeviceState& state, const Call& call);
  PlanTarget(const Call& call, const std::string& description);

  Descriptor graph(const Call& call, const std::vector<Descriptor>& operations) const;
  Descriptor heuristics(const Call& call, const Descriptor& graph,
                        cudnnBackendHeurMode_t mode) const;
  Descriptor plan(const Call& call, const Descriptor& configuration) const;

 private:
  cudnnHandle_t handle_ = nullptr;
  std::optional<Descriptor> description_;
};

// Prints to stderr, at the first call only, that the library rejects a graph as wrong. Ignores
// graphs that are merely unsupported.
void tell_once(const Call& call, const Unsupported& unsupported);

// The numerical notes of an engine.
using EngineNotes = std::vector<cudnnBackendNumericalNote_t>;
bool noted(const EngineNotes& notes, cudnnBackendNumericalNote_t note);

// Up to `max` finalized plans for the operations, the library's preferred one first, by engines
// that are `allowed`, with a workspace of at most `max_workspace` bytes. Throws Unsupported if the
// operations do not form a graph.
std::vector<Descriptor> find_plans(const Call& call, const PlanTarget& target,
                                   const std::vector<Descriptor>& operations,
                                   const std::function<bool(const EngineNotes&)>& allowed,
                                   std::size_t max, std::int64_t max_workspace);

// Returns find(), or nullptr if that throws Unsupported, which tell_once() reports.
template <class Find>
auto plan_or_none(const Call& call, const Find& find) -> decltype(find()) {
  try {
    return find();
  } catch (const Unsupported& unsupported) {
    tell_once(call, unsupported);
    return nullptr;
  }
}

// A plan for a GPU in use.
class LibraryPlan {
 public:
  LibraryPlan(DeviceState& state, const Call& call, Descriptor plan);
  // The caller must hold the lock. Ids name tensors as they were described; data of tensors passed
  // by value are on the host.
  void run(const Call& call, const std::vector<std::int64_t>& ids,
           const std::vector<void*>& data) const;

 private:
  DeviceState& state_;
  Descriptor plan_;
  std::int64_t workspace_;
};

}  // namespace sotto
