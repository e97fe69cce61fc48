// The bound holds for every policy x groups x units x masks x types x passes x accumulation: one
// unit more or less moves the clipped sum by at most the sensitivity.
#include <cmath>

#include "autograd/per_sample/grouping.h"
#include "core/random/philox.h"
#include "dp/clipping/clip_groups.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "tests/support/catch.h"
#include "tests/support/dp_models.h"

namespace sotto {
namespace {

constexpr double bound = 0.3;

enum class Groups { flat, layers, named };

std::vector<ClipGroup> make_groups(nn::Sequential& model, Groups kind) {
  if (kind == Groups::flat) return flat_group(model.parameters(), bound);
  if (kind == Groups::layers) return layer_groups(model.named_parameters(), bound);
  return named_groups(model.named_parameters(), {"0.", "7.weight"}, bound);
}

// Units of one to three rows; masked rows count for nothing.
struct Units {
  bool several_rows = false, mean = false, masks = false;
  std::vector<std::int64_t> rows(std::int64_t unit) const {
    std::vector<std::int64_t> all = {unit};
    if (several_rows) all.resize(static_cast<std::size_t>(1 + unit % 3), (unit + 1) % 6);
    return all;
  }
};

struct Policy {
  ClipRule rule;
  Groups groups;
  Units units;
  Dtype dtype;
  ClipPasses passes;
  std::int64_t units_at_once;
  Dtype precision = Dtype::f32;
};

// One physical batch.
void add(Clipper& clipper, nn::Sequential& model, const Policy& policy, const Batch& batch,
         std::span<const std::int64_t> units) {
  Grouping grouping{.unit_of_row = {}, .units = 0, .mean = policy.units.mean};
  std::vector<std::int64_t> rows;
  for (const std::int64_t unit : units) {
    for (const std::int64_t row : policy.units.rows(unit)) {
      rows.push_back(row);
      grouping.unit_of_row.push_back(grouping.units);
    }
    ++grouping.units;
    if (!policy.units.masks) continue;
    rows.push_back(5 - unit);
    grouping.unit_of_row.push_back(-1);
  }
  const Tensor index = Tensor::from(rows, {std::ssize(rows)});
  Tape tape({.private_data = true, .precision = policy.precision});
  const Tensor images = to_dtype(gather(batch.images, index, 0), policy.dtype);
  clipper.add(tape, cross_entropy(model(tape.input(images)), gather(batch.targets, index, 0)),
              &grouping);
}

std::vector<double> sum_over(Clipper& clipper, nn::Sequential& model, const Policy& policy,
                             const Batch& batch, const std::vector<std::int64_t>& units) {
  clipper.discard();
  const std::span<const std::int64_t> all(units);
  for (std::size_t at = 0; at < all.size(); at += static_cast<std::size_t>(policy.units_at_once)) {
    const std::size_t max =
        std::min(static_cast<std::size_t>(policy.units_at_once), all.size() - at);
    add(clipper, model, policy, batch, all.subspan(at, max));
  }
  std::vector<double> values;
  for (const auto& [parameter, sum] : clipper.clipped_sums()) {
    for (const double value : to_dtype(sum, Dtype::f64).to_vector<double>())
      values.push_back(value);
  }
  return values;
}

void check_policy(nn::Sequential& model, const Policy& policy, const Batch& batch) {
  Clipper clipper(make_groups(model, policy.groups), {.rule = policy.rule}, policy.passes);
  CHECK(clipper.sensitivity() <= bound * (1 + 0x1p-19));
  const std::vector<std::int64_t> units = {0, 1, 2, 3, 4};
  const std::vector<double> all = sum_over(clipper, model, policy, batch, units);
  for (const std::int64_t left : {0, 2, 4}) {
    std::vector<std::int64_t> rest = units;
    std::erase(rest, left);
    const double moved = distance(all, sum_over(clipper, model, policy, batch, rest));
    CHECK(moved <= clipper.sensitivity());
    // The first gradient is out of range for f16, and adds nothing there.
    CHECK((moved > 0 || (policy.precision == Dtype::f16 && left == 0)));
  }
}

constexpr Units kinds_of_units[] = {{},
                                    {.masks = true},
                                    {.several_rows = true},
                                    {.several_rows = true, .mean = true, .masks = true}};

void check_all(const ClipRule& rule, Dtype dtype, Dtype precision = Dtype::f32) {
  nn::manual_seed(3);
  nn::Sequential model = small_network();
  model.to(dtype);
  PublicRandom random(11);
  Batch batch = random_batch(6, random);
  for (int k = 0; k < 36; ++k) batch.images.data<float>()[k] *= 1e4F;  // far above the bound
  for (const Groups groups : {Groups::flat, Groups::layers, Groups::named}) {
    for (const Units& units : kinds_of_units) {
      for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
        for (const std::int64_t at_once : {5, 2}) {
          CAPTURE(groups, units.several_rows, units.mean, units.masks, passes, at_once);
          check_policy(model, {rule, groups, units, dtype, passes, at_once, precision}, batch);
        }
      }
    }
  }
}

using Kind = ClipRule::Kind;
constexpr Kind kinds[] = {Kind::minimum, Kind::opacus, Kind::auto_s, Kind::normalize, Kind::psac};

TEST_CASE("one unit moves the clipped sum by at most the sensitivity, whatever the policy") {
  for (const Kind kind : kinds) {
    CAPTURE(kind);
    check_all({.kind = kind}, Dtype::f32);
    check_all({.kind = kind}, Dtype::f64);
  }
}

TEST_CASE("one unit moves the clipped sum by at most the sensitivity in 16 bits, too", "[gate]") {
  for (const Dtype precision : {Dtype::bf16, Dtype::f16}) {
    for (const Kind kind : kinds) {
      CAPTURE(name(precision), kind);
      check_all({.kind = kind}, Dtype::f32, precision);
    }
  }
}

TEST_CASE("layers share a bound equally, and a shared parameter is clipped once") {
  nn::Sequential model = small_network();
  const std::vector<ClipGroup> groups = layer_groups(model.named_parameters(), 2);
  REQUIRE(groups.size() == 4);
  for (const ClipGroup& group : groups) {
    CHECK(group.bound == Approx(1));
    CHECK(group.parameters.size() == 2);
  }
  CHECK(sensitivity_of(groups) == Approx(2));
  model[0].freeze();
  CHECK(layer_groups(model.named_parameters(), 2).size() == 3);
}

TEST_CASE(
    "groups by names take the parameters of the first fitting prefix, and the rest together") {
  nn::Sequential model = small_network();
  const auto parameters = model.named_parameters();
  const std::vector<ClipGroup> groups = named_groups(parameters, {"5.weight", "5"}, 1);
  REQUIRE(groups.size() == 3);
  CHECK(groups[0].parameters.size() == 1);
  CHECK(groups[1].parameters.size() == 1);
  CHECK(groups[2].parameters.size() == parameters.size() - 2);
  CHECK(sensitivity_of(groups) == Approx(1));
  CHECK(named_groups(parameters, {"0", "1", "5", "7"}, 1).size() == 4);  //  none is left
  CHECK_THROWS_AS(named_groups(parameters, {"5", "5.weight"}, 1), std::invalid_argument);
  CHECK_THROWS_AS(named_groups(parameters, {"conv"}, 1), std::invalid_argument);
}

}  // namespace
}  // namespace sotto
