// What cuDNN makes of a graph of operations on a GPU, and doing it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernels/cuda/cudnn/cudnn_graph.h"

namespace sotto {

// What plans are for: a GPU in use, or one of which there is but a description, in the library's
// own words (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION; cuDNN 9.8 or later). Plans for the latter
// cannot be run here: tests learn so, on any machine, what the library accepts.
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

// What an engine says of how it computes.
using EngineNotes = std::vector<cudnnBackendNumericalNote_t>;
bool noted(const EngineNotes& notes, cudnnBackendNumericalNote_t note);

// Up to `most` finalized plans for the operations, the library's favourite first, by engines that
// are `allowed`, with a workspace of at most `most_workspace` bytes. Throws Unsupported where the
// operations make no graph.
std::vector<Descriptor> find_plans(const Call& call, const PlanTarget& target,
                                   const std::vector<Descriptor>& operations,
                                   const std::function<bool(const EngineNotes&)>& allowed,
                                   std::size_t most, std::int64_t most_workspace);

// The library's handles are not for two threads at once.
std::mutex& cudnn_mutex();

// What find() gave for a key when it was first asked for, nullptr included, with the lock held.
// Kept as long as the process lives, for each type of plan apart.
template <class Plan, class Find>
const Plan* kept_plan(const std::vector<std::int64_t>& key, Find&& find) {
  static auto* const plans = new std::map<std::vector<std::int64_t>, std::unique_ptr<Plan>>;
  const std::lock_guard lock(cudnn_mutex());
  auto found = plans->find(key);
  if (found == plans->end()) found = plans->emplace(key, find()).first;
  return found->second.get();
}

// A plan for a GPU in use.
class LibraryPlan {
 public:
  LibraryPlan(DeviceState& state, const Call& call, Descriptor plan);
  // Needs the lock. Tensors are named by the ids they were described with; what is passed by value
  // lies in the host's memory.
  void run(const Call& call, const std::vector<std::int64_t>& ids,
           const std::vector<void*>& data) const;

 private:
  DeviceState& state_;
  Descriptor plan_;
  std::int64_t workspace_;
};

}  // namespace sotto
