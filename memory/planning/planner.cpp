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

// The way that needs least, of those whose bytes are known.
[[noreturn]] void refuse(const Plan& plan, const Demand& demand) {
  const Plan::Considered* best = nullptr;
  for (const Plan::Considered& way : plan.considered) {
    const std::size_t bytes = way.fit.measured;
    if (bytes > 0 && (best == nullptr || bytes < best->fit.measured)) best = &way;
  }
  fail(fmt::format(
      "memory: {} at once: {} needed, and the limit is {} ({} B)", rows_text(demand.least),
      best == nullptr ? "more than there is"
                      : fmt::format("{} ({})", bytes_text(best->fit.measured), best->name),
      bytes_text(demand.limit), demand.limit));
}

}  // namespace

std::int64_t Demand::useful() const { return std::min(most, std::max(useful_rows, least)); }

Plan choose_way(std::span<const Way> ways, const Demand& demand) {
  check(demand.update <= demand.limit,
        "memory: the update of all parameters: {} needed, and the limit is {} ({} B)",
        bytes_text(demand.update), bytes_text(demand.limit), demand.limit);
  Plan plan{.update = demand.update, .limit = demand.limit};
  for (const Way& way : ways) {
    const Entered entered = way.enter();
    const RowFit fit = fit_rows(demand.peak_of, demand.least, demand.most, demand.limit);
    plan.considered.push_back({way.name, entered.recomputation, fit, entered.text});
    plan.chosen = plan.considered.size() - 1;
    if (fit.rows >= demand.useful()) return plan;
  }
  const auto first = std::find_if(plan.considered.begin(), plan.considered.end(),
                                  [](const Plan::Considered& way) { return way.fit.rows > 0; });
  if (first == plan.considered.end()) refuse(plan, demand);
  plan.chosen = static_cast<std::size_t>(first - plan.considered.begin());
  ways[plan.chosen].enter();
  return plan;
}

std::string Plan::text() const {
  const Considered& way = considered[chosen];
  std::string text = fmt::format("memory: {} at once, {}: {} of {} predicted, {} in the update\n",
                                 rows_text(way.fit.rows), way.name, bytes_text(fit().measured),
                                 bytes_text(limit), bytes_text(update));
  for (const Considered& other : considered) {
    if (&other == &way) continue;
    text +=
        fmt::format("  not {}: {}\n", other.name,
                    other.fit.rows == 0 ? bytes_text(other.fit.measured) + " for the fewest rows"
                                        : "room for " + rows_text(other.fit.rows) + " only");
  }
  if (way.recomputation > 0)
    text += fmt::format("  computes again as much as {:.2g} forward passes\n", way.recomputation);
  if (!way.text.empty()) text += fmt::format("  {}\n", way.text);
  return text;
}

std::string Plan::json() const {
  nlohmann::json ways = nlohmann::json::array();
  for (const Considered& way : considered) {
    ways.push_back({{"name", way.name},
                    {"recomputation", way.recomputation},
                    {"settings", way.text},
                    {"rows", way.fit.rows},
                    {"predicted_bytes", way.fit.predicted},
                    {"measured_bytes", way.fit.measured}});
  }
  return nlohmann::json{{"chosen", considered[chosen].name},
                        {"physical_batch", fit().rows},
                        {"predicted_bytes", fit().measured},
                        {"update_bytes", update},
                        {"limit_bytes", limit},
                        {"considered", ways}}
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
