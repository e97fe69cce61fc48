#include "dp/noise/correlated/correlated_mechanism.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/random/rounded_gaussian.h"
#include "core/random/secret_random.h"
#include "dp/noise/correlated/noise_stream.h"
#include "dp/noise/noise_grid.h"
#include "dp/noise/noisy_update_pass.h"
#include "dp/numerics/directed_rounding.h"
#include "dp/sampling/sampler.h"
#include "kernels/tensor_ops/tensor_ops.h"

namespace sotto {

namespace {

double factor_sensitivity_of(const NoisePlan& plan) {
  check(std::isfinite(plan.noise_multiplier) && plan.noise_multiplier > 0,
        "correlated noise: a noise multiplier of {}", plan.noise_multiplier);
  check(plan.sampling == Sampling::planned || plan.sampling == Sampling::cyclic_poisson,
        "correlated noise: there is no analysis for {} batches", name(plan.sampling));
  check(plan.min_separation >= 1, "correlated noise: a separation of {}", plan.min_separation);
  if (plan.sampling == Sampling::planned) {
    return plan.strategy.sensitivity({.min_separation = plan.min_separation});
  }
  check(plan.strategy.bands() <= plan.min_separation,
        "correlated noise: {} bands are more than the {} batches of a cycle", plan.strategy.bands(),
        plan.min_separation);
  return plan.strategy.sensitivity(
      {.min_separation = plan.min_separation, .max_participations = 1});
}

// The sizes of the parameters, on all ranks.
std::vector<std::int64_t> sizes_of(const NoisyUpdate& update) {
  std::vector<std::int64_t> sizes;
  for (std::size_t k = 0; k < update.sums().size(); ++k) sizes.push_back(update.whole_size(k));
  return sizes;
}

template <class T>
bool all_numbers(const Tensor& x) {
  const Tensor flat = contiguous(x).to(cpu);
  const std::span<const T> values(flat.data<T>(), static_cast<std::size_t>(x.numel()));
  return std::none_of(values.begin(), values.end(), [](T v) { return std::isnan(v); });
}

Tensor scalar(double value) { return Tensor::from(std::vector{value}, {}); }
Tensor scalar(std::int64_t value) { return Tensor::from(std::vector{value}, {}); }

std::string name(const TreeFactor& /*factor*/) { return "tree"; }
std::string name(const BandedToeplitz& factor) {
  return fmt::format("Toeplitz of {} bands", factor.coefficients.size());
}
std::string name(const BufferedToeplitz& factor) {
  return fmt::format("Toeplitz of {} buffers", factor.decays.size());
}

std::vector<double> numbers(const TreeFactor& /*factor*/) { return {}; }
std::vector<double> numbers(const BandedToeplitz& factor) { return factor.coefficients; }
std::vector<double> numbers(const BufferedToeplitz& factor) {
  std::vector<double> both = factor.decays;
  both.insert(both.end(), factor.scales.begin(), factor.scales.end());
  return both;
}

const Tensor& entry(const std::map<std::string, Tensor>& state, const std::string& name,
                    Dtype dtype, int rank) {
  const auto found = state.find(name);
  check(found != state.end() && found->second.defined() && found->second.dtype() == dtype &&
            found->second.rank() == rank,
        "correlated noise: the state has no {}", name);
  return found->second;
}

}  // namespace

// For neighbouring data sets the noise is rounded differently in up to `rows` steps, each element
// by at most 3/4 of a spacing, besides the rounding of their sums: together they move apart by at
// most
//   spacing sqrt(elements) (C's sensitivity + 3/2 sqrt(rows)).
NoiseGrid noise_grid(const NoisePlan& plan, double sensitivity, std::int64_t elements) {
  const std::int64_t rows =
      plan.sampling == Sampling::planned ? plan.strategy.steps() : plan.strategy.bands();
  const double factor_sensitivity = factor_sensitivity_of(plan);
  const double root = factor_sensitivity + 1.5 * std::sqrt(static_cast<double>(rows));
  const double enlarged = std::ceil(static_cast<double>(elements) * root * root);
  check(enlarged < 0x1p62, "correlated noise: {} elements and {} steps are too many", elements,
        plan.strategy.steps());
  // Exceeds the rounding error of C's sensitivity, a root of sums of positive numbers.
  const double slack = 1 + 0x1p-50 * static_cast<double>(plan.strategy.steps());
  return noise_grid(plan.noise_multiplier, sensitivity * factor_sensitivity * slack,
                    static_cast<std::int64_t>(enlarged));
}

namespace {

// The facts fixed by the first release.
struct Started {
  std::vector<std::int64_t> sizes;  // of the parameters, on all ranks
  double sensitivity;               // of the clipped sums
  NoiseGrid grid;
  RoundedGaussian sampler;
  CorrelatedNoiseStream stream;
  std::uint64_t next_draw;
  bool whole = true;  // false after a release that failed midway
};

}  // namespace

struct CorrelatedMechanism::Plan {
  std::int64_t steps_made() const { return started ? started->stream.step() : 0; }
  Started start(std::vector<std::int64_t> sizes, std::int64_t own_elements, double sensitivity,
                std::uint64_t draw) const;
  void check_goes_on(const std::vector<std::int64_t>& sizes, double sensitivity, std::uint64_t draw,
                     std::uint64_t next_in_ledger) const;
  // All numbers in which two equal plans agree.
  Tensor signature() const;

  NoisePlan options;
  double factor_sensitivity;
  SecretRandom random;
  std::unique_ptr<Started> started = {};
};

CorrelatedMechanism::CorrelatedMechanism(NoisePlan plan)
    : CorrelatedMechanism(std::move(plan), SecretRandom()) {}

CorrelatedMechanism::CorrelatedMechanism(NoisePlan plan, SecretRandom random)
    : plan_(new Plan{plan, factor_sensitivity_of(plan), std::move(random)}) {}

CorrelatedMechanism::~CorrelatedMechanism() = default;

const NoisePlan& CorrelatedMechanism::plan() const { return plan_->options; }
double CorrelatedMechanism::factor_sensitivity() const { return plan_->factor_sensitivity; }
std::int64_t CorrelatedMechanism::steps_made() const { return plan_->steps_made(); }
bool CorrelatedMechanism::secure() const { return plan_->random.secure(); }

Event CorrelatedMechanism::event(Event batch) const {
  const bool planned = plan().sampling == Sampling::planned;
  const std::int64_t batches = planned ? plan().strategy.steps() : plan().min_separation;
  check(batch.sampling == plan().sampling && batch.batches == batches,
        "correlated noise: epochs of {} {} batches, the plan is for {} {}", batch.batches,
        sotto::name(batch.sampling), batches, sotto::name(plan().sampling));
  batch.noise_multiplier = plan().noise_multiplier;
  return batch;
}

std::string CorrelatedMechanism::description() const {
  return fmt::format(
      "Gaussian, correlated by a {} over {} steps, noise multiplier {} of the whole "
      "{} with a separation of {} (exact sampler on a grid, keyed by {})",
      std::visit([](const auto& factor) { return name(factor); }, plan().strategy.factor()),
      plan().strategy.steps(), noise_text(plan().noise_multiplier),
      plan().sampling == Sampling::planned ? "plan" : "cycle", plan().min_separation,
      plan_->random.secure() ? "the operating system" : "a SEED: NOT PRIVATE");
}

void CorrelatedMechanism::set_noise_multiplier(double noise_multiplier) {
  check(noise_multiplier == plan().noise_multiplier,
        "correlated noise: a noise multiplier of {} in a plan with {}", noise_multiplier,
        plan().noise_multiplier);
}

Started CorrelatedMechanism::Plan::start(std::vector<std::int64_t> sizes, std::int64_t own_elements,
                                         double sensitivity, std::uint64_t draw) const {
  const std::int64_t elements = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
  const NoiseGrid grid = noise_grid(options, sensitivity, elements);
  CorrelatedNoiseStream stream(options.strategy, own_elements);
  // 2^7 standard deviations of every number in the stream fit into 62 bits.
  check(grid.stddev * stream.spread() < RoundedGaussian::stddev_limit,
        "correlated noise: a noise multiplier of {} is too large for {} elements and {} steps",
        options.noise_multiplier, elements, options.strategy.steps());
  return {std::move(sizes),  sensitivity, grid, RoundedGaussian(grid.stddev),
          std::move(stream), draw};
}

void CorrelatedMechanism::Plan::check_goes_on(const std::vector<std::int64_t>& sizes,
                                              double sensitivity, std::uint64_t draw,
                                              std::uint64_t next_in_ledger) const {
  check(sizes == started->sizes,
        "correlated noise: the parameters are not those the plan began with");
  check(sensitivity == started->sensitivity,
        "correlated noise: a sensitivity of {}, the plan began with {}", sensitivity,
        started->sensitivity);
  check(draw == started->next_draw && next_in_ledger == draw,
        "correlated noise: step {} of the plan is for draw {}, not for draw {} with {} next in the "
        "ledger: a new plan must begin",
        steps_made(), started->next_draw, draw, next_in_ledger);
}

void CorrelatedMechanism::prepare(const SampledBatch& draw, const NoisyUpdate& update,
                                  double sensitivity, const Ledger& ledger) {
  const Event now = event(draw.event());
  check(!plan_->started || plan_->started->whole,
        "correlated noise: a release broke off: a new plan must begin");
  const std::int64_t step = steps_made();
  check(step < plan().strategy.steps(), "correlated noise: all {} steps of the plan were made",
        step);
  check(now.paid == (step % now.batches != 0),
        "correlated noise: draw {} is {} batch of an epoch at step {} of the plan", draw.number(),
        now.paid ? "a later" : "the first", step);
  check(draw.index_in_epoch() == step % now.batches,
        "correlated noise: batch {} of an epoch at step {} of the plan", draw.index_in_epoch(),
        step);
  check(draw.min_separation() >= plan().min_separation,
        "correlated noise: draws with a separation of {}, the plan needs {}", draw.min_separation(),
        plan().min_separation);
  std::int64_t own_elements = 0;
  for (const auto& [parameter, total] : update.sums()) {
    own_elements += total.numel();
    check(total.dtype() == Dtype::f64 ? all_numbers<double>(total) : all_numbers<float>(total),
          "correlated noise: a sum is not a number");
  }
  if (step == 0) {
    plan_->started = std::make_unique<Started>(
        plan_->start(sizes_of(update), own_elements, sensitivity, draw.number()));
  } else {
    const std::uint64_t next = ledger.here() ? ledger.next_draw() : draw.number();
    check(own_elements == plan_->started->stream.elements(),
          "correlated noise: {} elements here, the plan began with {}", own_elements,
          plan_->started->stream.elements());
    plan_->check_goes_on(sizes_of(update), sensitivity, draw.number(), next);
  }
}

void CorrelatedMechanism::add_noise(NoisyUpdate& update, const NoiseScale& /*scale*/) {
  Started& plan = *plan_->started;
  plan.whole = false;
  const ChaChaStream stream = plan_->random.reserve(update.noise_blocks());
  update.on_cpu(plan.grid, [&](NoisePlace place, std::span<std::int64_t> noise) {
    ChaChaStream here = stream;
    here.block += place.block;
    plan.sampler.fill(here, noise);
    plan.stream.correlate(place.first, noise);
    return noise;
  });
  plan.stream.advance();
  ++plan.next_draw;
  plan.whole = true;
}

double CorrelatedMechanism::noise_stddev(const NoiseScale& scale) const {
  return scale.multiplier * plan_->factor_sensitivity * scale.sensitivity *
         std::sqrt(plan().strategy.noise_variance(steps_made()));
}

Tensor CorrelatedMechanism::Plan::signature() const {
  std::vector<double> values{static_cast<double>(options.strategy.factor().index()),
                             static_cast<double>(options.strategy.steps()),
                             options.noise_multiplier, static_cast<double>(options.sampling),
                             static_cast<double>(options.min_separation)};
  const std::vector<double> factor =
      std::visit([](const auto& kind) { return numbers(kind); }, options.strategy.factor());
  values.insert(values.end(), factor.begin(), factor.end());
  return Tensor::from(values, {std::ssize(values)});
}

std::map<std::string, Tensor> CorrelatedMechanism::state() const {
  check(!plan_->started || plan_->started->whole,
        "correlated noise: a release broke off: a new plan must begin");
  std::map<std::string, Tensor> state{{"plan", plan_->signature()}, {"step", scalar(steps_made())}};
  if (steps_made() == 0) return state;
  state["next_draw"] = scalar(static_cast<std::int64_t>(plan_->started->next_draw));
  state["sensitivity"] = scalar(plan_->started->sensitivity);
  state["sizes"] = Tensor::from(plan_->started->sizes, {std::ssize(plan_->started->sizes)});
  state[memory_entry] = clone(plan_->started->stream.memory());
  return state;
}

void CorrelatedMechanism::load_state(const std::map<std::string, Tensor>& state) {
  check(entry(state, "plan", Dtype::f64, 1).to_vector<double>() ==
            plan_->signature().to_vector<double>(),
        "correlated noise: the state is of another plan");
  const std::int64_t step = entry(state, "step", Dtype::i64, 0).to_vector<std::int64_t>()[0];
  std::unique_ptr<Started> loaded;
  if (step != 0) {
    const std::int64_t draw = entry(state, "next_draw", Dtype::i64, 0).to_vector<std::int64_t>()[0];
    const auto sizes = entry(state, "sizes", Dtype::i64, 1).to_vector<std::int64_t>();
    const std::int64_t own_elements =
        state.contains(own_elements_entry)
            ? entry(state, own_elements_entry, Dtype::i64, 0).to_vector<std::int64_t>()[0]
            : std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    loaded = std::make_unique<Started>(plan_->start(
        sizes, own_elements, entry(state, "sensitivity", Dtype::f64, 0).to_vector<double>()[0],
        static_cast<std::uint64_t>(draw)));
    loaded->stream.resume(step, entry(state, memory_entry, Dtype::i64, 2));
  }
  plan_->started = std::move(loaded);
}

}  // namespace sotto
