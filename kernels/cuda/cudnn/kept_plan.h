// The plans that the convolution library has found, kept by problem. It does not include the
// library's headers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace sotto {

using PlanKey = std::vector<std::int64_t>;

// Guards the library's handles, which are not thread-safe, and the plans.
inline std::mutex& cudnn_mutex() {
  static std::mutex mutex;
  return mutex;
}

// The plans of one type, nullptr where there is none, which live as long as the process. The caller
// must hold cudnn_mutex().
template <class Plan>
std::map<PlanKey, std::unique_ptr<Plan>>& kept_plans() {
  static auto* const plans = new std::map<PlanKey, std::unique_ptr<Plan>>;
  return *plans;
}

// The result of the first find() for a key, nullptr included. The caller must hold cudnn_mutex().
template <class Plan, class Find>
const Plan* kept_plan(const PlanKey& key, const Find& find) {
  auto& plans = kept_plans<Plan>();
  auto found = plans.find(key);
  if (found == plans.end()) found = plans.emplace(key, find()).first;
  return found->second.get();
}

// Returns the cached plan for key_of(trials), else find(trials), with trials if they are requested.
// Captured work cannot be timed: its plan is the one that earlier trials found, else one without
// trials. The caller must hold cudnn_mutex().
template <class Plan, class KeyOf, class Find>
const Plan* tried_plan(bool wanted, bool captured, const KeyOf& key_of, const Find& find) {
  const bool trials = wanted && (!captured || kept_plans<Plan>().contains(key_of(true)));
  return kept_plan<Plan>(key_of(trials), [&] { return find(trials); });
}

}  // namespace sotto
