#include "dp/clipping/clipper.h"

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "dp/clipping/clipped_sum_content.h"
#include "dp/clipping/clipper_state.h"
#include "dp/clipping/host_group_clipper.h"
#include "dp/clipping/physical_clipping.h"
#include "dp/clipping/rank_batches.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/loss_scale.h"
#include "memory/physical_batches.h"

namespace sotto {

namespace {

void check_bound(double bound) {
  check(bound >= min_clip_bound && bound <= max_clip_bound,
        "Clipper: a clip bound of {} is not from {:.3g} to {:.3g} (2^-100 to 2^100)", bound,
        min_clip_bound, max_clip_bound);
}

void check_groups(const std::vector<ClipGroup>& groups) {
  std::vector<const Parameter*> seen;
  for (const ClipGroup& group : groups) {
    check_bound(group.bound);
    check(!group.parameters.empty(), "Clipper: group {} has no trainable parameter",
          &group - groups.data());
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
}

void check_options(const ClipOptions& options) {
  const bool by_gamma =
      options.rule.kind == ClipRule::Kind::auto_s || options.rule.kind == ClipRule::Kind::psac;
  check(!by_gamma || (options.rule.gamma > 0 && std::isfinite(options.rule.gamma)),
        "Clipper: gamma {} is not positive", options.rule.gamma);
}

}  // namespace

ClipperState::ClipperState(const Clipper& clipper, std::vector<ClipGroup> groups,
                           const ClipOptions& options, ClipPasses passes)
    : clipper_(clipper),
      groups_(std::move(groups)),
      options_(options),
      passes_(passes),
      accumulator_(groups_, options.sum_size),
      graphs_(std::make_unique<ClipGraphs>()) {
  check_groups(groups_);
  check(options.sum_size.batch >= 1 && options.sum_size.block >= 1,
        "Clipper: batches of at most {} units and blocks of {}", options.sum_size.batch,
        options.sum_size.block);
  for (const ClipGroup& group : groups_) check_sum_rounding(group, options.sum_size);
  check_options(options);
}

ClipperState::~ClipperState() = default;

void ClipperState::check_between_batches(const char* what) const {
  const bool between = state_ == State::finished || accumulator_.statistics().units == 0;
  check(!broken() && between, "Clipper: {} in the middle of a batch", what);
}

void ClipperState::set_passes(ClipPasses passes,
                              std::optional<std::size_t> per_sample_grad_budget) {
  check_between_batches("a new number of passes");
  passes_ = passes;
  options_.per_sample_grad_budget = per_sample_grad_budget;
  budget_ = {};
  graphs_->captured.clear();  // frees memory
}

void ClipperState::set_max_physical_batch(std::int64_t units) {
  check_between_batches("a new maximum physical batch");
  check(units >= 0, "Clipper: physical batches of at most {} units", units);
  max_units_ = units;
  graphs_->captured.clear();
}

const std::string& ClipperState::capture_failure_reason() const { return graphs_->failure_reason; }

void ClipperState::discard() {
  accumulator_.clear();
  blocks_.reset();
  state_ = State::adding;
}

// Refuses to continue a batch in which an add() failed.
void ClipperState::start_batch() {
  check(!broken(), "Clipper: an earlier physical batch of this batch failed; discard() it");
  if (state_ == State::finished) discard();
}

void ClipperState::begin(SumBlocks blocks) {
  start_batch();
  check_between_batches("begin()");
  check(!blocks_, "Clipper: begin() was already called for this batch");
  check(blocks.limits().units <= options_.sum_size.block,
        "Clipper: blocks of {} units, of at most {}", blocks.limits().units,
        options_.sum_size.block);
  check(!shared_ || shared_->units == blocks.units(),
        "Clipper: {} other units, while sums of a batch that failed are under way",
        blocks.units().size());
  blocks_ = std::move(blocks);
  if (next_) begin_sharing(std::exchange(next_, nullptr));
}

void ClipperState::share(std::shared_ptr<const nn::Shards> shards) {
  start_batch();
  check(!blocks_ || !shared_, "Clipper: share() of a batch that ranks share already");
  next_ = std::move(shards);
}

// On a GPU sums stay until finish(): a batch that is computed again, in smaller physical batches,
// may have other bits there than the sums that had left.
void ClipperState::begin_sharing(const std::shared_ptr<const nn::Shards>& shards) {
  shared_ = std::make_unique<SharedBatch>(clipper_, blocks_->units(), shards);
  if (shards->device() == cpu) accumulator_.send_to(&shared_->sums);
}

// Returns the blocks of the next `units` units of the batch.
BlockEnds ClipperState::blocks_of_next(std::int64_t units) const {
  if (!blocks_) return {};
  const std::int64_t first = accumulator_.statistics().units, end = first + units;
  const std::vector<std::int64_t>& all = blocks_->ends();
  check(units == 0 || std::binary_search(all.begin(), all.end(), end),
        "Clipper: units {} to {} of the batch are a physical batch that ends inside a block", first,
        end - 1);
  if (blocks_->limits().units == 1) return {};
  return
      [this, first, end](std::int64_t max) { return ends_within(blocks_->ends(max), first, end); };
}

ClipBatch ClipperState::begin_physical_batch(std::int64_t units, std::int64_t without_rows) {
  const std::int64_t before = accumulator_.statistics().units;
  accumulator_.begin_units(units, without_rows);
  return {.groups = groups_,
          .options = options_,
          .passes = passes_,
          .loss_scale = loss_scale_,
          .units = units,
          .max_units = max_units_,
          .ends = blocks_of_next(units),
          .last = shared_ && before + units == std::ssize(shared_->units),
          .deferred = defers_ && blocks_ && !shared_ && before == 0 &&
                      units == std::ssize(blocks_->units())};
}

void ClipperState::add(Tape& tape, const Var& loss, const Grouping* grouping) {
  check(tape.options().private_data, "Clipper: the tape is not private");
  const LabelScope scope = LabelScope::phase("clip");
  start_batch();
  accumulator_.mark();
  state_ = State::broken;
  try {
    add_physical_batch(tape, loss, grouping);
  } catch (const std::exception& error) {
    if (memory::out_of_memory(error) && accumulator_.undo()) state_ = State::adding;
    throw;
  }
  state_ = State::adding;
}

void ClipperState::add_zeros(std::int64_t units) {
  start_batch();
  state_ = State::broken;
  const ClipBatch batch = begin_physical_batch(units, units);
  HostGroupClipper host(batch, accumulator_);
  for (std::size_t group = 0; group < groups_.size(); ++group) host.clip(group, {});
  accumulator_.end_units();
  state_ = State::adding;
}

void ClipperState::add_physical_batch(Tape& tape, const Var& loss, const Grouping* grouping) {
  const std::int64_t units = grouping ? grouping->units : loss.shape().numel();
  Tensor losses = loss.value();
  check(!grouping || std::ssize(grouping->unit_of_row) == losses.numel(),
        "Clipper: a grouping of {} rows for {} losses", grouping ? grouping->unit_of_row.size() : 0,
        losses.numel());
  UnitWeights weights = unit_weights(groups_, tape, units, grouping);
  if (grouping && grouping->rows_each() == 1) {
    grouping = nullptr;
    losses = losses.slice(0, 0, units);
  }
  ClipBatch batch = begin_physical_batch(units, grouping ? units_without_rows(*grouping) : 0);
  batch.per_sample_grad_budget = budget_.bytes(options_, groups_[0].parameters[0]->value.device());
  batch.weights = std::move(weights);
  // Each unit of several rows is a term of its own, since units of other sizes are in other
  // physical batches (docs/appendix/proofs-rounding.md, "Units of several rows").
  if (grouping) batch.ends = {};
  clip_physical_batch(tape, loss, losses, grouping, batch, {accumulator_, *graphs_});
  accumulator_.end_units();
}

ClippedSum ClipperState::finish(SampledBatch draw) {
  start_batch();
  check((!next_ && !shared_) || blocks_, "Clipper: a part of a batch without begin()");
  if (next_ && !shared_) {
    check_clipped("begun", std::ssize(blocks_->units()));
    begin_sharing(std::exchange(next_, nullptr));
  }
  check_division(draw);
  check(draw.size() <= options_.sum_size.batch,
        "Clipper: a batch of {} units exceeds the maximum of {} (ClipOptions::sum_size)",
        draw.size(), options_.sum_size.batch);
  const auto shards = shared_ ? shared_->shards : nullptr;
  DeferredSums deferred;
  Gradients sums = shards ? sums_of_ranks() : accumulator_.take_sums(deferred);
  state_ = State::finished;
  std::vector<double> all = shards ? counts_on_rank_0(shards->ranks(), counts()) : counts();
  const auto finite = options_.count_finite ? std::optional(all.back()) : std::nullopt;
  all.resize(groups_.size());
  return ClippedSum(std::unique_ptr<ClippedSum::Content>(
      new ClippedSum::Content{std::move(sums), clipper_.sensitivity(), std::move(all), finite,
                              std::move(draw), shards, std::move(deferred)}));
}

// Checks that the units that were clipped are those of the draw.
void ClipperState::check_division(const SampledBatch& draw) {
  if (shared_) {
    check_clipped("begun", std::ssize(blocks_->units()));
    return shared_->parts.check_division(draw.digest());
  }
  check_clipped("drawn", draw.size());
  check(blocks_ || draw.size() == 0 || draw.size() == draw.population(),
        "Clipper: finish() without begin(draw): {} of {} units may be others than were clipped",
        draw.size(), draw.population());
  check(!blocks_ || blocks_->consist_of(draw.units()),
        "Clipper: begin() was given other units than were drawn");
}

// The sums of this rank's elements over all ranks.
Gradients ClipperState::sums_of_ranks() {
  accumulator_.send_to(&shared_->sums);
  const std::vector<Parameter*> order = accumulator_.settle_all();
  state_ = State::finished;
  Gradients sums = shared_->sums.totals(order);
  accumulator_.send_to(nullptr);
  shared_ = nullptr;
  return sums;
}

void ClipperState::check_clipped(const char* what, std::int64_t units) const {
  check(accumulator_.statistics().units == units, "Clipper: {} units were {} and {} clipped", units,
        what, accumulator_.statistics().units);
}

// This rank's counts, which are released with the sums.
std::vector<double> ClipperState::counts() const {
  std::vector<double> counts = accumulator_.unclipped();
  if (options_.count_finite) counts.push_back(accumulator_.finite());
  return counts;
}

Clipper::Clipper(std::vector<ClipGroup> groups, const ClipOptions& options, ClipPasses passes)
    : state_(new ClipperState(*this, std::move(groups), options, passes)) {}

Clipper::~Clipper() = default;

void Clipper::begin(const SampledBatch& draw) {
  state_->begin(SumBlocks(draw.units(), {}, {.units = 1}));
}

void Clipper::add(Tape& tape, const Var& loss, const Grouping* grouping) {
  state_->add(tape, loss, grouping);
}

ClippedSum Clipper::finish(SampledBatch draw) { return state_->finish(std::move(draw)); }

void Clipper::add_zeros(std::int64_t units) { state_->add_zeros(units); }
void Clipper::discard() { state_->discard(); }
bool Clipper::broken() const { return state_->broken(); }

const ClipStatistics& Clipper::statistics() const { return state_->accumulator_.statistics(); }
double Clipper::sensitivity() const { return rounded_sensitivity(groups(), options().sum_size); }
const std::vector<ClipGroup>& Clipper::groups() const { return state_->groups_; }
double Clipper::loss_scale() const { return state_->loss_scale_; }
const ClipOptions& Clipper::options() const { return state_->options_; }
const Gradients& Clipper::clipped_sums() { return state_->accumulator_.complete_sums(); }

std::vector<double> Clipper::bounds() const {
  std::vector<double> bounds;
  bounds.reserve(groups().size());
  for (const ClipGroup& group : groups()) bounds.push_back(group.bound);
  return bounds;
}

void Clipper::set_bounds(const std::vector<double>& bounds) {
  state_->check_between_batches("new bounds");
  check(bounds.size() == groups().size(), "Clipper: {} bounds for {} groups", bounds.size(),
        groups().size());
  std::for_each(bounds.begin(), bounds.end(), check_bound);
  for (std::size_t group = 0; group < bounds.size(); ++group)
    state_->groups_[group].bound = bounds[group];
}

void Clipper::set_loss_scale(double scale) {
  state_->check_between_batches("a new loss scale");
  memory::check_loss_scale(scale);
  state_->loss_scale_ = scale;
}

}  // namespace sotto
