#include "memory/planning/planner.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "core/allocator/allocator.h"
#include "core/error.h"
#include "memory/planning/policy.h"

namespace sotto::memory {

namespace {

std::string rows_text(std::int64_t rows) {
  return rows == 1 ? "1 row" : fmt::format("{} rows", rows);
}

// Throws, naming the strategy that needs least among those whose bytes are known.
[[noreturn]] void refuse(const Plan& plan, const MemoryRequirement& requirement) {
  const Plan::Considered* best = nullptr;
  for (const Plan::Considered& strategy : plan.considered) {
    const std::size_t bytes = strategy.fit.measured;
    if (bytes > 0 && (best == nullptr || bytes < best->fit.measured)) best = &strategy;
  }
  fail(fmt::format(
      "memory: {} at once: {} needed, and the limit is {} ({} B)", rows_text(requirement.min),
      best == nullptr ? "more than the machine has"
                      : fmt::format("{} ({})", bytes_text(best->fit.measured), best->name),
      bytes_text(requirement.limit), requirement.limit));
}

}  // namespace

std::int64_t MemoryRequirement::useful() const { return std::min(max, std::max(useful_rows, min)); }

Plan choose_strategy(std::span<const Strategy> strategies, const MemoryRequirement& requirement) {
  check(requirement.update <= requirement.limit,
        "memory: the update of all parameters: {} needed, and the limit is {} ({} B)",
        bytes_text(requirement.update), bytes_text(requirement.limit), requirement.limit);
  Plan plan{.update = requirement.update, .limit = requirement.limit};
  for (const Strategy& strategy : strategies) {
    const StrategyCost entered = strategy.apply();
    const BatchSizeSearch fit = largest_batch_that_fits(requirement.peak_of, requirement.min,
                                                        requirement.max, requirement.limit);
    plan.considered.push_back({strategy.name, entered.recomputation, fit, entered.text});
    plan.chosen = plan.considered.size() - 1;
    if (fit.rows >= requirement.useful()) return plan;
  }
  const auto first =
      std::find_if(plan.considered.begin(), plan.considered.end(),
                   [](const Plan::Considered& strategy) { return strategy.fit.rows > 0; });
  if (first == plan.considered.end()) refuse(plan, requirement);
  plan.chosen = static_cast<std::size_t>(first - plan.considered.begin());
  strategies[plan.chosen].apply();
  return plan;
}

std::string Plan::text() const {
  const Considered& strategy = considered[chosen];
  std::string text = fmt::format("memory: {} at once, {}: {} of {} predicted, {} in the update\n",
                                 rows_text(strategy.fit.rows), strategy.name,
                                 bytes_text(fit().measured), bytes_text(limit), bytes_text(update));
  for (const Considered& other : considered) {
    if (&other == &strategy) continue;
    text +=
        fmt::format("  not {}: {}\n", other.name,
                    other.fit.rows == 0 ? bytes_text(other.fit.measured) + " for the minimum batch"
                                        : "room for " + rows_text(other.fit.rows) + " only");
  }
  if (strategy.recomputation > 0)
    text += fmt::format("  recomputes {:.2g} forward passes\n", strategy.recomputation);
  if (!strategy.text.empty()) text += fmt::format("  {}\n", strategy.text);
  return text;
}

std::string Plan::json() const {
  nlohmann::json strategies = nlohmann::json::array();
  for (const Considered& strategy : considered) {
    strategies.push_back({{"name", strategy.name},
                          {"recomputation", strategy.recomputation},
                          {"settings", strategy.text},
                          {"rows", strategy.fit.rows},
                          {"predicted_bytes", strategy.fit.predicted},
                          {"measured_bytes", strategy.fit.measured}});
  }
  return nlohmann::json{{"chosen", considered[chosen].name},
                        {"physical_batch", fit().rows},
                        {"predicted_bytes", fit().measured},
                        {"update_bytes", update},
                        {"limit_bytes", limit},
                        {"considered", strategies}}
      .dump(2);
}

std::size_t update_bytes(const nn::Optimizer& optimizer) {
  std::size_t gradients = 0, largest = 0;
  for (const Parameter* parameter : optimizer.parameters()) {
    const std::size_t bytes = parameter->value.bytes();
    gradients += bytes;
    largest = std::max(largest, bytes);
  }
  return allocator(device_of(optimizer)).statistics().current + gradients +
         optimizer.bytes_to_come() + nn::Optimizer::temporaries * largest;
}

}  // namespace sotto::memory
