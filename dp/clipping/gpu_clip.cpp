#include "dp/clipping/gpu_clip.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string_view>

#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

Tensor weighted_sum(const std::vector<PerSampleGrad>& uses, const Tensor& weights) {
  Tensor total;
  for (const PerSampleGrad& use : uses) {
    const Tensor part = use.sum(weights);
    total = total.defined() ? add(total, part) : part;
  }
  return total;
}

std::vector<PerSampleGrad> materialize_if_cheaper(std::vector<PerSampleGrad> uses,
                                                  NormMethod norm_method, std::size_t& budget) {
  for (PerSampleGrad& use : uses) {
    const PerSampleGrad kept = use.materialize_if_cheaper(norm_method, budget);
    if (std::string_view(kept.form()) == "dense" && std::string_view(use.form()) != "dense")
      budget -= kept.materialized_bytes();
    use = kept;
    use.count_as_kept();
  }
  return uses;
}

bool all_finite(const Tensor& x) { return std::isfinite(sum(x).item()); }

DeviceClip::DeviceClip(const std::vector<ClipGroup>& groups, const How& how, Device device)
    : groups_(groups), how_(how), device_(device), set_(groups.size()), terms_(groups.size()) {
  if (how_.spacings.empty()) {
    for (const ClipGroup& group : groups) how_.spacings.push_back(sum_spacing(group, {}));
  }
  const std::int64_t count = std::ssize(groups);
  settings_ = zeros({count, ClipSettings::rows}, Dtype::f64, device);
  std::int64_t parameters = 0;
  for (const ClipGroup& group : groups) parameters += std::ssize(group.parameters);
  report_ =
      zeros({count * ClipResults::rows * how.units + parameters + how.rows}, Dtype::f64, device);
}

void DeviceClip::set(double loss_scale, std::int64_t live) {
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    std::array<double, ClipSettings::rows> wanted{};
    wanted[ClipSettings::bound] = groups_[group].bound;
    wanted[ClipSettings::scale] = loss_scale;
    wanted[ClipSettings::live] = static_cast<double>(live);
    const Tensor there = settings_.select(0, static_cast<std::int64_t>(group));
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      if (set_[group][k] == wanted[k]) continue;
      backend(device_).fill(wanted[k], there.select(0, static_cast<std::int64_t>(k)).view());
      set_[group][k] = wanted[k];
    }
  }
}

void DeviceClip::start() {
  sums_.clear();
  std::fill(terms_.begin(), terms_.end(), Tensor());
}

void DeviceClip::add_norm(std::size_t group, const Parameter& parameter,
                          const std::vector<PerSampleGrad>& uses) {
  const auto& members = groups_[group].parameters;
  const auto k = std::find(members.begin(), members.end(), &parameter) - members.begin();
  if (!terms_[group].defined()) {
    terms_[group] = zeros({ClipTerms::rows, std::ssize(members), how_.units}, Dtype::f64, device_);
  }
  const NormEstimate terms = norm_terms(uses, how_.norm_method);
  const auto put = [&](ClipTerms::Row row, const Tensor& x) {
    if (x.defined()) copy_into(x, terms_[group].select(0, row).select(0, k));
  };
  put(ClipTerms::squares, terms.squares);
  put(ClipTerms::error_bounds, terms.error_bounds);
  put(ClipTerms::term_norms, terms.term_norms);
  put(ClipTerms::needs_f64, terms.needs_f64);
}

Tensor DeviceClip::results(std::size_t group) const {
  const std::int64_t size = ClipResults::rows * how_.units;
  const std::int64_t at = static_cast<std::int64_t>(group) * size;
  return reshape(report_.slice(0, at, at + size), {ClipResults::rows, how_.units});
}

void DeviceClip::find_factors(std::size_t group) {
  if (!terms_[group].defined())  // nothing was differentiated: gradients of zero
    terms_[group] = zeros({ClipTerms::rows, 1, how_.units}, Dtype::f64, device_);
  const Tensor settings = settings_.select(0, static_cast<std::int64_t>(group));
  backend(device_).clip_factors(how_.rule, rounding_margin(groups_[group]), terms_[group].view(),
                                settings.view(), results(group).view());
}

// Behind the groups' results.
std::int64_t DeviceClip::first_check() const {
  return std::ssize(groups_) * ClipResults::rows * how_.units;
}

void DeviceClip::add_sum(std::size_t group, Parameter& parameter,
                         const std::vector<PerSampleGrad>& uses) {
  const Tensor total = zeros(parameter.value.shape(), Dtype::f64, device_);
  const double spacing = parameter.value.dtype() == Dtype::f64 ? 0 : how_.spacings[group];
  const Tensor weights = results(group).select(0, ClipResults::weights);
  for (const PerSampleGrad& use : uses)
    use.add_to({total, spacing}, weights, how_.ends, std::ssize(uses));
  const std::int64_t at = first_check() + std::ssize(sums_);
  copy_into(sum(total), report_.slice(0, at, at + 1));
  sums_.push_back({group, &parameter, total});
}

void DeviceClip::clip(std::size_t group, const ParameterUses& uses) {
  for (const auto& [parameter, of] : uses) add_norm(group, *parameter, of);
  find_factors(group);
  for (const auto& [parameter, of] : uses) add_sum(group, *parameter, of);
}

void DeviceClip::add_losses(const Tensor& losses) {
  losses_ = losses.numel();
  const std::int64_t at = report_.numel() - how_.rows;
  copy_into(losses, report_.slice(0, at, at + losses_));
}

void DeviceClip::read() { read_ = report_.to_vector<double>(); }

std::span<const double> DeviceClip::result(std::size_t group, ClipResults::Row row,
                                           std::int64_t units) const {
  const std::int64_t first = static_cast<std::int64_t>(group) * ClipResults::rows + row;
  return std::span(read_).subspan(static_cast<std::size_t>(first * how_.units),
                                  static_cast<std::size_t>(units));
}

bool DeviceClip::sound(std::size_t group) const {
  for (const double doubt : result(group, ClipResults::needs_f64, how_.units)) {
    if (doubt != 0) return false;
  }
  for (std::size_t k = 0; k < sums_.size(); ++k) {
    const double check = read_[static_cast<std::size_t>(first_check()) + k];
    if (sums_[k].group == group && !std::isfinite(check)) return false;
  }
  return true;
}

std::vector<double> DeviceClip::norms(std::size_t group, std::int64_t units) const {
  const auto row = result(group, ClipResults::norms, units);
  return {row.begin(), row.end()};
}

std::vector<double> DeviceClip::factors(std::size_t group, std::int64_t units) const {
  const auto row = result(group, ClipResults::factors, units);
  return {row.begin(), row.end()};
}

std::vector<double> DeviceClip::losses() const {
  const auto first = read_.end() - static_cast<std::ptrdiff_t>(how_.rows);
  return {first, first + static_cast<std::ptrdiff_t>(losses_)};
}

Gradients DeviceClip::sums(std::size_t group) const {
  Gradients sums;
  for (const Sum& sum : sums_) {
    if (sum.group == group) sums.emplace_back(sum.parameter, sum.total);
  }
  return sums;
}

bool DeviceClip::same_as(const DeviceClip& other) const {
  const auto same = [](const std::vector<double>& a, const std::vector<double>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](double x, double y) {
      return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
    });
  };
  const auto values = [](const Sum& sum) {
    return to_dtype(sum.total, Dtype::f64).to_vector<double>();
  };
  return same(read_, other.read_) && std::equal(sums_.begin(), sums_.end(), other.sums_.begin(),
                                                other.sums_.end(), [&](const Sum& a, const Sum& b) {
                                                  return a.parameter == b.parameter &&
                                                         same(values(a), values(b));
                                                });
}

void DeviceClip::drop_sums(std::size_t group) {
  for (Sum& sum : sums_) {
    if (sum.group == group) sum.total = Tensor();
  }
}

}  // namespace sotto
