// Audits of whole training loops: a correct loop stays under its claim, and every broken one is
// caught, with a proven epsilon above the claimed one. The types prevent these faults with a
// Clipper, a Sampler and a GaussianMechanism, so they are written as other mechanisms and samplers.
#include <cmath>

#include "core/random/gaussian.h"
#include "core/random/philox.h"
#include "core/random/secret_random.h"
#include "dp/accounting/pld/pld_accountant.h"
#include "dp/audit/audit.h"
#include "dp/audit/canaries.h"
#include "dp/audit/clopper_pearson_audit.h"
#include "dp/clipping/clipper.h"
#include "dp/engine/engine.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/noise/noisy_update_pass.h"
#include "dp/sampling/poisson_samplers.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/layers.h"
#include "tests/support/catch.h"

namespace sotto {
namespace {

constexpr double delta = 1e-5;
constexpr std::int64_t records = 5;
constexpr std::int64_t features = 20;
constexpr double learning_rate = 0.1;

// A few random records, a network of 1,090 parameters, and canaries with a norm of ten times the
// clip bound of 1.
struct Lab {
  enum class On { all_parameters, last_layer };
  explicit Lab(On on = On::all_parameters, SecretRandom coins = SecretRandom::insecure_seeded(1))
      : canaries(on == On::last_layer ? model[2].parameters() : model.parameters(),
                 {.count = on == On::last_layer ? 300 : 1000,
                  .population = records,
                  .magnitude = 10,
                  .seed = 3},
                 std::move(coins)) {
    PublicRandom random(4);
    for (float& value : inputs) value = static_cast<float>(random.normal());
  }

  // One loss for each row, for records and canaries alike.
  Var loss(Tape& tape, std::span<const std::int64_t> rows) {
    std::vector<std::int64_t> targets;
    std::vector<float> batch;
    for (const std::int64_t row : canaries.data_rows(rows)) {
      targets.push_back(row);
      const auto first = inputs.begin() + static_cast<std::ptrdiff_t>(row * features);
      batch.insert(batch.end(), first, first + features);
    }
    const auto n = static_cast<std::int64_t>(rows.size());
    const Var logits = model(tape.input(Tensor::from(batch, {n, features})));
    return canaries.losses(cross_entropy(logits, Tensor::from(targets, {n})), rows);
  }

  nn::Sequential model = make_model();
  std::vector<float> inputs = std::vector<float>(records * features);
  DiracCanaries canaries;

 private:
  static nn::Sequential make_model() {
    nn::manual_seed(2);
    return nn::Sequential{nn::Linear(features, 34), nn::Tanh(),
                          nn::Linear(34, 10, {.bias = false})};
  }
};

// The Gaussian mechanism with faults.
class FaultyMechanism final : public Mechanism {
 public:
  struct Faults {
    double stddev = 1;                  // standard deviation over the correct one
    double claimed_sensitivity = 0;     // instead of the sum's, unless 0
    const Parameter* spared = nullptr;  // gets no noise
    bool same_noise_each_time = false;
  };
  FaultyMechanism(double noise_multiplier, const Faults& faults)
      : noise_multiplier_(noise_multiplier), faults_(faults) {}
  Event event(Event batch) const override {
    batch.noise_multiplier = noise_multiplier_;
    return batch;
  }
  std::string description() const override { return "Gaussian, broken"; }
  void set_noise_multiplier(double noise_multiplier) override {
    noise_multiplier_ = noise_multiplier;
  }

 protected:
  void add_noise(NoisyUpdate& update, const NoiseScale& scale) override {
    if (faults_.same_noise_each_time) random_ = SecretRandom::insecure_seeded(5);
    for (std::size_t k = 0; k < update.sums().size(); ++k) {
      const auto& [parameter, sum] = update.released()[k];
      copy_into(update.sums()[k].second, sum);
      axpby(1 / scale.divisor, sum, 0, sum);
      if (parameter == faults_.spared) continue;
      std::vector<double> draws(static_cast<std::size_t>(sum.numel()));
      fill_gaussian(random_, draws);
      const Tensor noise = to_dtype(Tensor::from(draws, sum.shape()), Dtype::f32);
      axpby(noise_stddev(scale) / scale.divisor, noise, 1, sum);
    }
  }
  double noise_stddev(const NoiseScale& scale) const override {
    const double claimed = faults_.claimed_sensitivity;
    return faults_.stddev * scale.multiplier * (claimed > 0 ? claimed : scale.sensitivity);
  }
  bool secure() const override { return false; }

 private:
  double noise_multiplier_;
  Faults faults_;
  SecretRandom random_ = SecretRandom::insecure_seeded(5);
};

// Claims to be a Poisson sampler, and never drops the units from `kept` on.
class FaultySampler final : public Sampler {
 public:
  FaultySampler(std::int64_t population, double rate, std::int64_t kept)
      : Sampler(population, {.sampling = Sampling::poisson, .sampling_rate = rate}), kept_(kept) {}

 protected:
  std::vector<std::int64_t> sample(std::int64_t /*index_in_epoch*/) override {
    std::vector<std::int64_t> chosen;
    for (std::int64_t unit = 0; unit < population(); ++unit) {
      if (unit >= kept_ || random_.uniform() < rate()) chosen.push_back(unit);
    }
    return chosen;
  }
  bool secure() const override { return false; }

 private:
  std::int64_t kept_;
  SecretRandom random_ = SecretRandom::insecure_seeded(6);
};

PoissonSampler poisson(const Lab& lab, double rate) {
  return {lab.canaries.units(), rate, SecretRandom::insecure_seeded(8)};
}

GaussianMechanism gaussian(double noise_multiplier) {
  return GaussianMechanism(noise_multiplier, SecretRandom::insecure_seeded(9));
}

struct Run {
  double claimed = 0;  // epsilon, by the accountant
  CanaryTrace trace;
};

// Trains by plain steps, and records the canaries' traces.
Run train(Lab& lab, Sampler&& sampler, Mechanism&& mechanism, int steps,
          const std::vector<ClipGroup>& groups) {
  Clipper clipper(groups);
  nn::Sgd optimizer(lab.model, {.learning_rate = learning_rate});
  Ledger ledger;
  PldAccountant accountant;
  Run run;
  for (int step = 0; step < steps; ++step) {
    SampledBatch draw = sampler.draw();
    accountant.compose(mechanism.event(draw.event()));
    clipper.begin(draw);
    std::vector<std::int64_t> rows;
    for (const std::int64_t unit : draw.units()) {
      const std::vector<std::int64_t> own = lab.canaries.rows_of_unit(unit);
      if (own.empty()) clipper.add_zeros(1);
      rows.insert(rows.end(), own.begin(), own.end());
    }
    Tape tape({.private_data = true});
    clipper.add(tape, lab.loss(tape, rows));
    const NoisyGradient released = mechanism.release(clipper.finish(std::move(draw)), ledger);
    run.trace.push_back(lab.canaries.elements(released.gradients()));
    for (double& x : run.trace.back()) x *= sampler.expected_batch_size();
    optimizer.step(released.gradients());
  }
  run.claimed = accountant.epsilon(delta);
  return run;
}

Run train(Lab& lab, Sampler&& sampler, Mechanism&& mechanism, int steps) {
  return train(lab, std::move(sampler), std::move(mechanism), steps,
               flat_group(lab.model.parameters(), 1));
}

double one_run(const Lab& lab, const std::vector<double>& scores) {
  return one_run_audit(scores, lab.canaries.included(), {.confidence = 0.99, .delta = delta})
      .epsilon;
}

ClopperPearsonAudit trade_off(const Lab& lab, const std::vector<double>& scores) {
  std::vector<double> without, with;
  for (std::size_t k = 0; k < scores.size(); ++k)
    (lab.canaries.included()[k] ? with : without).push_back(scores[k]);
  return clopper_pearson_audit(without, with, {.confidence = 0.99, .delta = delta});
}

TEST_CASE("the bounds of a correct run with sampling are below its epsilon, and above 0") {
  Lab lab;
  const Run run = train(lab, poisson(lab, 0.1), gaussian(1), 30);
  const auto scores = likelihood_ratios(run.trace, 1, 0.1);
  CHECK(one_run(lab, scores) > 0.4);
  CHECK(one_run(lab, scores) < run.claimed);
  CHECK(trade_off(lab, scores).epsilon < run.claimed);
  CHECK(one_run(lab, spreads(run.trace)) < run.claimed);
}

TEST_CASE("the bounds of a correct run on full batches are below its epsilon, and near it") {
  Lab lab;
  const Run run = train(lab, FullBatchSampler(lab.canaries.units()), gaussian(1), 1);
  const auto scores = likelihood_ratios(run.trace, 1, 1);
  CHECK(one_run(lab, scores) < run.claimed);
  const ClopperPearsonAudit found = trade_off(lab, scores);
  CHECK(found.gaussian_epsilon < run.claimed);
  CHECK(found.gaussian_epsilon > run.claimed / 3);
}

TEST_CASE("half of the noise is caught") {
  Lab lab;
  const Run run =
      train(lab, FullBatchSampler(lab.canaries.units()), FaultyMechanism(1, {.stddev = 0.5}), 1);
  CHECK(trade_off(lab, likelihood_ratios(run.trace, 1, 1)).gaussian_epsilon > run.claimed);
}

// Its bound is a hundred, and the noise is made for the other layer.
TEST_CASE("a layer that is not clipped is caught") {
  Lab lab;
  std::vector<ClipGroup> groups = flat_group(lab.model.parameters(), 1);
  groups.push_back({{groups[0].parameters.back()}, 100});
  groups[0].parameters.pop_back();
  const Run run =
      train(lab, poisson(lab, 0.1), FaultyMechanism(2, {.claimed_sensitivity = 1}), 10, groups);
  CHECK(one_run(lab, likelihood_ratios(run.trace, 2, 0.1)) > run.claimed);
}

TEST_CASE("a parameter without noise is caught by canaries on it only") {
  Lab lab(Lab::On::last_layer);
  FaultyMechanism mechanism(2, {.spared = lab.model.parameters().back()});
  const Run run = train(lab, poisson(lab, 0.1), std::move(mechanism), 10);
  CHECK(one_run(lab, likelihood_ratios(run.trace, 2, 0.1)) > run.claimed);
}

TEST_CASE("a sampler that always takes a record is caught") {
  Lab lab;
  const Run run =
      train(lab, FaultySampler(lab.canaries.units(), 0.1, records), FaultyMechanism(2, {}), 10);
  CHECK(one_run(lab, likelihood_ratios(run.trace, 2, 0.1)) > run.claimed);
}

TEST_CASE("noise repeated at each step is caught by the spread of the releases") {
  Lab lab;
  const Run run =
      train(lab, poisson(lab, 0.1), FaultyMechanism(2, {.same_noise_each_time = true}), 10);
  CHECK(one_run(lab, spreads(run.trace)) > run.claimed);
}

// So the audits catch the faults, and not the mechanism and sampler in which they are written.
TEST_CASE("the mechanism and the sampler of these tests are right without their faults") {
  Lab lab;
  const Run run = train(lab, FaultySampler(lab.canaries.units(), 0.1, lab.canaries.units()),
                        FaultyMechanism(2, {}), 10);
  CHECK(one_run(lab, likelihood_ratios(run.trace, 2, 0.1)) < run.claimed);
  CHECK(one_run(lab, spreads(run.trace)) < run.claimed);
}

// With the operating system's randomness: fails by chance at most once in 10^6 runs. No audit can
// be surer than 1 - delta, because everything may leak with probability delta.
TEST_CASE("the engine's bound is below its epsilon, computed from the models only") {
  constexpr double small_delta = 1e-9;
  Lab lab(Lab::On::all_parameters, SecretRandom());
  const auto units = static_cast<double>(lab.canaries.units());
  nn::Sgd optimizer(lab.model, {.learning_rate = learning_rate});
  Ledger ledger;
  Engine engine(
      lab.model, optimizer, lab.canaries.units(), ledger,
      {.noise_multiplier = 0.6,
       .delta = delta,
       .logical_batch = 0.5 * units,
       .rows_of_unit = [&](std::int64_t unit) { return lab.canaries.rows_of_unit(unit); }});
  CanaryTrace trace;
  for (int step = 0; step < 10; ++step) {
    const std::vector<double> before = lab.canaries.values();
    engine.step(
        [&](Tape& tape, std::span<const std::int64_t> rows) { return lab.loss(tape, rows); });
    std::vector<double> shown = lab.canaries.values();
    for (std::size_t k = 0; k < shown.size(); ++k)
      shown[k] = (before[k] - shown[k]) / learning_rate * engine.sampler().expected_batch_size();
    trace.push_back(std::move(shown));
  }
  const OneRunAudit found =
      one_run_audit(likelihood_ratios(trace, 0.6, 0.5), lab.canaries.included(),
                    {.confidence = 1 - 1e-6, .delta = small_delta});
  CHECK(found.epsilon < engine.epsilon());
  CHECK(found.epsilon > 1);
}

}  // namespace
}  // namespace sotto
