#include "dp/clipping/gpu_clip.h"

#include <algorithm>
#include <bit>

#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/per_sample/several_norms.h"
#include "kernels/backend.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

GpuClip::GpuClip(const std::vector<ClipGroup>& groups, const Options& options, Device device)
    : groups_(groups),
      options_(options),
      device_(device),
      written_(groups.size()),
      terms_(groups.size()) {
  if (options_.spacings.empty()) {
    for (const ClipGroup& group : groups) options_.spacings.push_back(sum_spacing(group, {}));
  }
  const std::int64_t count = std::ssize(groups);
  settings_ = zeros({count, ClipSettings::rows}, Dtype::f64, device);
  std::int64_t parameters = 0;
  for (const ClipGroup& group : groups) parameters += std::ssize(group.parameters);
  report_ = zeros({count * ClipResults::rows * options.units + parameters + options.rows},
                  Dtype::f64, device);
}

void GpuClip::write_settings(double loss_scale, std::int64_t valid_units) {
  for (std::size_t group = 0; group < groups_.size(); ++group) {
    std::array<double, ClipSettings::rows> requested{};
    requested[ClipSettings::bound] = groups_[group].bound;
    requested[ClipSettings::scale] = loss_scale;
    requested[ClipSettings::live] = static_cast<double>(valid_units);
    const Tensor settings = settings_.select(0, static_cast<std::int64_t>(group));
    for (std::size_t k = 0; k < requested.size(); ++k) {
      if (written_[group][k] == requested[k]) continue;
      backend(device_).fill(requested[k], settings.select(0, static_cast<std::int64_t>(k)).view());
      written_[group][k] = requested[k];
    }
  }
}

void GpuClip::start() {
  sums_.clear();
  std::fill(terms_.begin(), terms_.end(), Tensor());
}

// Where a parameter's norms go.
NormEstimate GpuClip::terms_of(std::size_t group, const Parameter& parameter) {
  const auto k = static_cast<std::int64_t>(*groups_[group].find(parameter));
  if (!terms_[group].defined()) {
    terms_[group] = zeros({ClipTerms::rows, std::ssize(groups_[group].parameters), options_.units},
                          Dtype::f64, device_);
  }
  const auto row = [&](ClipTerms::Row of) { return terms_[group].select(0, of).select(0, k); };
  return {row(ClipTerms::squares), row(ClipTerms::error_bounds), row(ClipTerms::term_norms),
          row(ClipTerms::needs_f64)};
}

void GpuClip::add_norm(std::size_t group, const Parameter& parameter,
                       const std::vector<PerSampleGrad>& uses) {
  write_norm_terms(uses, options_.norm_method, terms_of(group, parameter));
}

Tensor GpuClip::results(std::size_t group) const {
  const std::int64_t size = ClipResults::rows * options_.units;
  const std::int64_t at = static_cast<std::int64_t>(group) * size;
  return reshape(report_.slice(0, at, at + size), {ClipResults::rows, options_.units});
}

void GpuClip::find_factors(std::size_t group) {
  if (!terms_[group].defined())  // the loss reached no parameter of the group: gradients are zero
    terms_[group] = zeros({ClipTerms::rows, 1, options_.units}, Dtype::f64, device_);
  const Tensor settings = settings_.select(0, static_cast<std::int64_t>(group));
  backend(device_).clip_factors(options_.rule, rounding_margin(groups_[group]),
                                terms_[group].view(), settings.view(), results(group).view());
}

// The index in report_ of the first sum's mark, which follows the groups' results.
std::int64_t GpuClip::first_check() const {
  return std::ssize(groups_) * ClipResults::rows * options_.units;
}

// The sum that a parameter's gradients are added to.
RoundedSum GpuClip::sum_of(std::size_t group, Parameter& parameter, const Tensor& total) {
  sums_.push_back({group, &parameter, total});
  checked_ = false;
  return {total, parameter.value.dtype() == Dtype::f64 ? 0 : options_.spacings[group]};
}

void GpuClip::add_sum(std::size_t group, Parameter& parameter,
                      const std::vector<PerSampleGrad>& uses) {
  const Tensor total = zeros(parameter.value.shape(), Dtype::f64, device_);
  add_sums({{&uses, sum_of(group, parameter, total)}},
           results(group).select(0, ClipResults::weights), options_.ends);
}

void GpuClip::clip(std::size_t group, const ParameterUses& gradients) {
  std::vector<ParameterNorms> norms;
  for (const auto& [parameter, uses] : gradients)
    norms.push_back({&uses, terms_of(group, *parameter)});
  write_norm_terms(norms, options_.norm_method);
  find_factors(group);
  std::vector<ParameterSum> sums;
  std::vector<View> totals;
  for (const auto& [parameter, uses] : gradients) {
    const Tensor total = Tensor::empty(parameter->value.shape(), Dtype::f64, device_);
    totals.push_back(total.view());
    sums.push_back({&uses, sum_of(group, *parameter, total)});
  }
  backend(device_).zero_all(totals);
  add_sums(sums, results(group).select(0, ClipResults::weights), options_.ends);
}

void GpuClip::check_sums() {
  std::vector<View> totals;
  for (const Sum& sum : sums_) totals.push_back(sum.total.view());
  const std::int64_t first = first_check();
  backend(device_).mark_nonfinite(totals,
                                  report_.slice(0, first, first + std::ssize(totals)).view());
  checked_ = true;
}

void GpuClip::add_losses(const Tensor& losses) {
  losses_ = losses.numel();
  const std::int64_t at = report_.numel() - options_.rows;
  copy_into(losses, report_.slice(0, at, at + losses_));
}

void GpuClip::read() {
  if (!checked_) check_sums();
  read_ = report_.to_vector<double>();
}

std::span<const double> GpuClip::result(std::size_t group, ClipResults::Row row,
                                        std::int64_t units) const {
  const std::int64_t first = static_cast<std::int64_t>(group) * ClipResults::rows + row;
  return std::span(read_).subspan(static_cast<std::size_t>(first * options_.units),
                                  static_cast<std::size_t>(units));
}

bool GpuClip::reliable(std::size_t group) const {
  for (const double needed : result(group, ClipResults::needs_f64, options_.units)) {
    if (needed != 0) return false;
  }
  for (std::size_t k = 0; k < sums_.size(); ++k) {
    const double mark = read_[static_cast<std::size_t>(first_check()) + k];
    if (sums_[k].group == group && mark != 0) return false;
  }
  return true;
}

std::vector<double> GpuClip::norms(std::size_t group, std::int64_t units) const {
  const auto row = result(group, ClipResults::norms, units);
  return {row.begin(), row.end()};
}

std::vector<double> GpuClip::factors(std::size_t group, std::int64_t units) const {
  const auto row = result(group, ClipResults::factors, units);
  return {row.begin(), row.end()};
}

std::vector<double> GpuClip::losses() const {
  const auto first = read_.end() - static_cast<std::ptrdiff_t>(options_.rows);
  return {first, first + static_cast<std::ptrdiff_t>(losses_)};
}

Gradients GpuClip::sums(std::size_t group) const {
  Gradients sums;
  for (const Sum& sum : sums_) {
    if (sum.group == group) sums.emplace_back(sum.parameter, sum.total);
  }
  return sums;
}

bool GpuClip::same_as(const GpuClip& other) const {
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

void GpuClip::drop_sums(std::size_t group) {
  for (Sum& sum : sums_) {
    if (sum.group == group) sum.total = Tensor();
  }
}

}  // namespace sotto
