#include "sotto/dp/clip_groups.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "sotto/core/error.h"

namespace sotto {

namespace {

std::vector<ClipGroup> with_equal_bounds(std::vector<ClipGroup> groups, double bound) {
  for (ClipGroup& group : groups)
    group.bound = bound / std::sqrt(static_cast<double>(groups.size()));
  return groups;
}

}  // namespace

std::vector<ClipGroup> flat_group(const std::vector<Parameter*>& parameters, double bound) {
  ClipGroup group{{}, bound};
  for (Parameter* parameter : parameters) {
    if (parameter->trainable) group.parameters.push_back(parameter);
  }
  return {group};
}

std::vector<ClipGroup> layer_groups(const nn::NamedParameters& parameters, double bound) {
  std::vector<ClipGroup> groups;
  std::map<std::string, std::size_t> group_of_layer;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter->trainable) continue;
    const std::size_t dot = name.rfind('.');
    const std::string layer = dot == std::string::npos ? "" : name.substr(0, dot);
    const auto [place, is_new] = group_of_layer.emplace(layer, groups.size());
    if (is_new) groups.emplace_back();
    groups[place->second].parameters.push_back(parameter);
  }
  return with_equal_bounds(std::move(groups), bound);
}

std::vector<ClipGroup> named_groups(const nn::NamedParameters& parameters,
                                    const std::vector<std::string>& prefixes, double bound) {
  std::vector<ClipGroup> groups(prefixes.size() + 1);
  for (const auto& [name, parameter] : parameters) {
    if (!parameter->trainable) continue;
    const auto of = std::find_if(prefixes.begin(), prefixes.end(),
                                 [&name = name](const auto& p) { return name.starts_with(p); });
    groups[static_cast<std::size_t>(of - prefixes.begin())].parameters.push_back(parameter);
  }
  for (std::size_t k = 0; k < prefixes.size(); ++k)
    check(!groups[k].parameters.empty(), "named_groups: no trained parameter for prefix {} ({})", k,
          prefixes[k]);
  if (groups.back().parameters.empty()) groups.pop_back();
  return with_equal_bounds(std::move(groups), bound);
}

double rounding_margin(const ClipGroup& group) {
  const auto margin = [](Dtype dtype) { return dtype == Dtype::f64 ? 0x1p-44 : 0x1p-20; };
  double largest = 0;
  for (const Parameter* parameter : group.parameters)
    largest = std::max(largest, margin(parameter->value.dtype()));
  return largest;
}

double sensitivity_of(const std::vector<ClipGroup>& groups) {
  double squares = 0;
  for (const ClipGroup& group : groups) squares += group.bound * group.bound;
  return std::sqrt(squares);
}

}  // namespace sotto
