#include "dp/clipping/clip_groups.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "core/error.h"

namespace sotto {

namespace {

std::vector<ClipGroup> with_equal_bounds(std::vector<ClipGroup> groups, double bound) {
  for (ClipGroup& group : groups)
    group.bound = bound / std::sqrt(static_cast<double>(groups.size()));
  return groups;
}

}  // namespace

std::optional<std::size_t> ClipGroup::find(const Parameter& parameter) const {
  const auto found = std::find(parameters.begin(), parameters.end(), &parameter);
  if (found == parameters.end()) return std::nullopt;
  return static_cast<std::size_t>(found - parameters.begin());
}

std::size_t group_of(const std::vector<ClipGroup>& groups, const Parameter& parameter) {
  for (std::size_t group = 0; group < groups.size(); ++group) {
    if (groups[group].find(parameter)) return group;
  }
  const std::string owner = parameter.value.memory_label().module;
  fail(fmt::format(
      "Clipper: the loss depends on a trainable parameter of shape {} that is in no clip group: it "
      "belongs to {}; groups are of what visit() shows and is trainable when they are made",
      parameter.value.shape(), owner.empty() ? "no module that was called" : owner));
}

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
    const auto prefix = std::find_if(prefixes.begin(), prefixes.end(),
                                     [&name = name](const auto& p) { return name.starts_with(p); });
    groups[static_cast<std::size_t>(prefix - prefixes.begin())].parameters.push_back(parameter);
  }
  for (std::size_t k = 0; k < prefixes.size(); ++k)
    check(!groups[k].parameters.empty(), "named_groups: no trained parameter for prefix {} ({})", k,
          prefixes[k]);
  if (groups.back().parameters.empty()) groups.pop_back();
  return with_equal_bounds(std::move(groups), bound);
}

double rounding_margin(const ClipGroup& group) {
  const auto margin = [](Dtype dtype) { return dtype == Dtype::f64 ? 0x1p-44 : 0x1p-20; };
  double max_margin = 0;
  for (const Parameter* parameter : group.parameters)
    max_margin = std::max(max_margin, margin(parameter->value.dtype()));
  return max_margin;
}

double sum_spacing(const ClipGroup& group, const SumSize& size) {
  // A sum of `units` gradients with the norm of the bound stays below 2^51 spacings, and so does
  // each term: 32 units of at most 64 times the bound each, or 96 units of the bound.
  constexpr std::int64_t min_units = std::int64_t{1} << 12;
  const auto units = static_cast<std::uint64_t>(std::max(size.batch, min_units));
  return std::ldexp(std::exp2(std::ceil(std::log2(group.bound))), std::bit_width(units - 1) - 51);
}

namespace {

// Returns the L2 distance by which rounding one unit's terms may move the sum. The spacing and the
// result are relative to the clip bound.
double term_rounding(const ClipGroup& group, double spacing_of_bound) {
  constexpr double terms = 128;
  double elements = 0;
  for (const Parameter* parameter : group.parameters)
    elements += static_cast<double>(parameter->value.numel());
  return terms * spacing_of_bound * std::sqrt(elements);
}

}  // namespace

double sum_rounding(const ClipGroup& group, const SumSize& size) {
  constexpr double of_blocks = 0x1p-8, of_f64_sums = 0x1p-52;
  bool on_cpu = true, has_f64 = false, has_f32 = false;
  for (const Parameter* parameter : group.parameters) {
    on_cpu = on_cpu && parameter->value.device() == cpu;
    (parameter->value.dtype() == Dtype::f64 ? has_f64 : has_f32) = true;
  }
  double rounding = term_rounding(group, sum_spacing(group, size) / group.bound);
  // A GPU's matrix units may truncate where a CPU rounds to nearest.
  if (has_f32 && size.block > 1) rounding += (on_cpu ? 1 : 2) * of_blocks;
  // In f64 all units of a batch are added up in one chain of rounded additions.
  const auto batch = static_cast<double>(size.batch);
  return rounding + (has_f64 ? batch * batch * of_f64_sums : 0);
}

void check_sum_rounding(const ClipGroup& group, const SumSize& size) {
  constexpr double max_rounding = 0x1p-8;
  ClipGroup worst = group;
  worst.bound = 1 + 0x1p-20;  // just beyond a power of two
  const double added = sum_rounding(worst, {.batch = size.batch});
  check(added <= max_rounding,
        "Clipper: batches of up to {} units with so many parameters would be rounded to {:.3g} of "
        "the bound, of at most {:.3g}: smaller batches, or groups of parameters, would do",
        size.batch, added, max_rounding);
}

double rounded_sensitivity(const std::vector<ClipGroup>& groups, const SumSize& size) {
  double squares = 0;
  for (const ClipGroup& group : groups) {
    const double bound = group.bound * (1 + sum_rounding(group, size));
    squares += bound * bound;
  }
  return std::sqrt(squares);
}

double sensitivity_of(const std::vector<ClipGroup>& groups) {
  double squares = 0;
  for (const ClipGroup& group : groups) squares += group.bound * group.bound;
  return std::sqrt(squares);
}

}  // namespace sotto
