#include <cmath>
#include <limits>

#include "autograd/sink.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/sampling/sampler.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/conformance/dp_case.h"

namespace sotto::conformance {

namespace {

constexpr ClipMethod methods[] = {
    {"one pass", ClipPasses::one, NormMethod::automatic},
    {"one pass, ghost", ClipPasses::one, NormMethod::ghost},
    {"one pass, materialized", ClipPasses::one, NormMethod::materialize},
    {"two passes", ClipPasses::two, NormMethod::automatic},
    {"two passes, ghost", ClipPasses::two, NormMethod::ghost},
    {"two passes, materialized", ClipPasses::two, NormMethod::materialize},
};

// Statistics [group][place] as [units, groups] in the case's order of units.
Tensor by_unit(const DpCase& dp, const std::vector<Part>& parts,
               const std::vector<std::vector<double>>& values) {
  const std::size_t groups = dp.groups.size();
  std::vector<double> table(static_cast<std::size_t>(dp.units) * groups,
                            std::numeric_limits<double>::quiet_NaN());
  std::size_t place = 0;
  for (const Part& part : parts) {
    for (const std::int64_t unit : part.units) {
      for (std::size_t group = 0; group < groups; ++group) {
        table[static_cast<std::size_t>(unit) * groups + group] = values[group].at(place);
      }
      ++place;
    }
  }
  return Tensor::from(table, {dp.units, static_cast<std::int64_t>(groups)});
}

void expect_sums(DpCase& dp, const Gradients& sums, Comparison& comparison, const char* how) {
  const auto expected_batch_size = field<double>(dp.dp, "expected_batch_size");
  for (const auto& [name, parameter] : dp.parameters) {
    for (const auto& [owner, total] : sums) {
      if (owner != &parameter) continue;
      comparison.expect("grad_sum." + name, total, how);
      comparison.expect("grad_mean." + name, scale(total, 1 / expected_batch_size), how);
    }
  }
}

// Releases through a mechanism without noise, where the expected size is the number of units.
void expect_released(DpCase& dp, Clipper& clipper, Comparison& comparison, const char* how) {
  if (dp.units == 0 || field<double>(dp.dp, "expected_batch_size") != static_cast<double>(dp.units))
    return;
  Ledger ledger;
  FullBatchSampler sampler(dp.units);
  const NoisyGradient released =
      GaussianMechanism(0).release(clipper.finish(sampler.draw()), ledger);
  for (const auto& [name, parameter] : dp.parameters) {
    for (const auto& [owner, mean] : released.gradients()) {
      if (owner == &parameter) {
        comparison.expect("grad_mean." + name, mean, how + std::string(", released"));
      }
    }
  }
}

void run_method(DpCase& dp, const ClipMethod& method, Comparison& comparison) {
  Clipper clipper(dp.groups, {.rule = dp.rule, .norm_method = method.norm_method}, method.passes);
  const std::vector<Part> parts = dp.parts();
  std::vector<Tensor> losses;
  for (const Part& part : parts) {
    Tape tape(tape_options(dp.dtype, true));
    const Var loss = dp.loss(tape, part.begin, part.end);
    losses.push_back(loss.value());
    clipper.add(tape, loss, dp.plain ? nullptr : &part.grouping);
  }
  if (!losses.empty()) comparison.expect("loss", concat(losses, 0), method.name);
  comparison.expect("norm", by_unit(dp, parts, clipper.statistics().norms), method.name);
  comparison.expect("clip_factor", by_unit(dp, parts, clipper.statistics().factors), method.name);
  const auto sensitivity = field<double>(dp.dp, "sensitivity");
  const double exact = sensitivity_of(clipper.groups());
  if (std::abs(exact - sensitivity) > 1e-12 * sensitivity || clipper.sensitivity() < exact ||
      clipper.sensitivity() > exact * (1 + 0x1p-7)) {
    comparison.fail(
        fmt::format("sensitivity: got {}, expected {}", clipper.sensitivity(), sensitivity));
  }
  expect_sums(dp, clipper.clipped_sums(), comparison, method.name);
  expect_released(dp, clipper, comparison, method.name);
}

// Units' gradients from the rows of an ordinary tape, added up here.
void check_units(DpCase& dp, Comparison& comparison) {
  PerSampleGradSink sink;
  Tape tape(tape_options(dp.dtype));
  const Var loss = dp.loss(tape, 0, dp.rows);
  tape.backward(loss, sink);
  std::vector<double> members(static_cast<std::size_t>(dp.units), 0.0);
  for (const std::int64_t unit : dp.unit_of_row) {
    if (unit >= 0) ++members[static_cast<std::size_t>(unit)];
  }
  for (auto& [name, parameter] : dp.parameters) {
    if (!parameter.trainable) continue;
    Shape shape = parameter.value.shape();
    const auto width = static_cast<std::size_t>(shape.numel());
    shape.insert(0, dp.units);
    std::vector<double> units(static_cast<std::size_t>(shape.numel()), 0.0);
    std::vector<double> rows(static_cast<std::size_t>(dp.rows) * width, 0.0);
    for (const auto& [owner, value] : sink.all()) {
      if (owner == &parameter) rows = to_dtype(value, Dtype::f64).to_vector<double>();
    }
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const std::int64_t unit = dp.unit_of_row[i / width];
      if (unit < 0) continue;
      const double share = dp.mean ? 1 / members[static_cast<std::size_t>(unit)] : 1;
      units[static_cast<std::size_t>(unit) * width + i % width] += share * rows[i];
    }
    comparison.expect("grad_unit." + name, Tensor::from(units, shape));
  }
}

}  // namespace

std::span<const ClipMethod> clip_methods() { return methods; }

void run_dp_step(const Case& c, Dtype dtype, Comparison& comparison) {
  DpCase dp(c, dtype);
  for (const ClipMethod& method : methods) run_method(dp, method, comparison);
  check_units(dp, comparison);
}

}  // namespace sotto::conformance
