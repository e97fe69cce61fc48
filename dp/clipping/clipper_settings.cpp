// What a clipper is told: groups and rule when it is made, and what may change between batches.
#include <algorithm>
#include <cmath>

#include "dp/clipping/clipper.h"
#include "memory/loss_scale.h"

namespace sotto {

namespace {

void check_bound(double bound) {
  check(bound >= min_clip_bound && bound <= max_clip_bound,
        "Clipper: a clip bound of {} is not from {:.3g} to {:.3g} (2^-100 to 2^100)", bound,
        min_clip_bound, max_clip_bound);
}

}  // namespace

Clipper::Clipper(std::vector<ClipGroup> groups, const ClipOptions& options, ClipPasses passes)
    : groups_(std::move(groups)), options_(options), passes_(passes) {
  std::vector<const Parameter*> seen;
  for (const ClipGroup& group : groups_) {
    check_bound(group.bound);
    check(!group.parameters.empty(), "Clipper: group {} has no trainable parameter",
          &group - groups_.data());
    for (const Parameter* parameter : group.parameters) {
      const Dtype dtype = parameter->value.dtype();
      check(dtype == Dtype::f32 || dtype == Dtype::f64,
            "Clipper: a parameter in {}: what is clipped and released has to be in f32 or f64",
            name(dtype));
      check(parameter->trainable, "Clipper: a frozen parameter of shape {}",
            parameter->value.shape());
      check(std::find(seen.begin(), seen.end(), parameter) == seen.end(),
            "Clipper: a parameter of shape {} in two groups", parameter->value.shape());
      seen.push_back(parameter);
    }
  }
  check(!seen.empty(), "Clipper: no group of parameters");
  check(options.sum_size.batch >= 1 && options.sum_size.block >= 1,
        "Clipper: batches of at most {} units and blocks of {}", options.sum_size.batch,
        options.sum_size.block);
  for (const ClipGroup& group : groups_) check_sum_rounding(group, options.sum_size);
  const bool by_gamma =
      options.rule.kind == ClipRule::Kind::auto_s || options.rule.kind == ClipRule::Kind::psac;
  check(!by_gamma || (options.rule.gamma > 0 && std::isfinite(options.rule.gamma)),
        "Clipper: gamma {} is not positive", options.rule.gamma);
  discard();
}

void Clipper::check_between_batches(const char* what) const {
  check(!broken_ && (statistics_.units == 0 || finished_), "Clipper: {} in the middle of a batch",
        what);
}

void Clipper::set_loss_scale(double scale) {
  check_between_batches("another loss scale");
  check_loss_scale(scale);
  loss_scale_ = scale;
}

void Clipper::set_passes(ClipPasses passes, std::size_t per_sample_grad_budget) {
  check_between_batches("other passes");
  passes_ = passes;
  options_.per_sample_grad_budget = per_sample_grad_budget;
  captured_ = nullptr;  // makes room
}

void Clipper::set_max_physical_batch(std::int64_t units) {
  check_between_batches("another largest part");
  check(units >= 0, "Clipper: parts of at most {} units", units);
  max_physical_batch_ = units;
  captured_ = nullptr;
}

// Of bytes of rows, for a part of so many units.
std::size_t Clipper::budget_for(std::int64_t units) const {
  const auto max =
      static_cast<std::size_t>(std::max<std::int64_t>({units, max_physical_batch_, 1}));
  return options_.per_sample_grad_budget / max * static_cast<std::size_t>(units);
}

void Clipper::set_bounds(const std::vector<double>& bounds) {
  check_between_batches("new bounds");
  check(bounds.size() == groups_.size(), "Clipper: {} bounds for {} groups", bounds.size(),
        groups_.size());
  std::for_each(bounds.begin(), bounds.end(), check_bound);
  for (std::size_t group = 0; group < bounds.size(); ++group) groups_[group].bound = bounds[group];
}

std::vector<double> Clipper::bounds() const {
  std::vector<double> bounds;
  bounds.reserve(groups_.size());
  for (const ClipGroup& group : groups_) bounds.push_back(group.bound);
  return bounds;
}

void Clipper::discard() {
  sums_.clear();
  for (const ClipGroup& group : groups_) {
    for (Parameter* parameter : group.parameters) sums_.emplace_back(parameter, Tensor());
  }
  statistics_ = {};
  statistics_.norms.resize(groups_.size());
  statistics_.factors.resize(groups_.size());
  within_bound_.assign(groups_.size(), 0);
  finite_ = 0;
  blocks_.reset();
  broken_ = false;
  finished_ = false;
}

}  // namespace sotto
