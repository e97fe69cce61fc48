// Weights of rows in the sample reweight: made noise, and the release that a step with two parts
// is.
#include <cmath>
#include <limits>
#include <numeric>
#include <set>

#include "autograd/ops.h"
#include "autograd/sink.h"
#include "core/random/philox.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "samples/reweight/row_noise.h"
#include "samples/reweight/weighed_model.h"
#include "tests/support/catch.h"
#include "tests/support/throws.h"

using namespace sotto;
using namespace sotto::reweight;

namespace {

constexpr std::int64_t classes = 3, features = 4;
constexpr double bound = 0.3, weigher_bound = 0.1;

Dataset random_rows(std::int64_t count, std::uint64_t seed) {
  PublicRandom random(seed);
  Dataset data{.inputs = Tensor::empty({count, features}, Dtype::f64),
               .targets = Tensor::empty({count}, Dtype::i64)};
  for (std::int64_t k = 0; k < count * features; ++k)
    data.inputs.data<double>()[k] = 4 * random.uniform() - 2;
  for (std::int64_t k = 0; k < count; ++k)
    data.targets.data<std::int64_t>()[k] = random.below(classes);
  return data;
}

std::vector<std::int64_t> range(std::int64_t count) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(count));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// A weighed model in f64 at the beginning of a step.
struct Step {
  explicit Step(Method method, std::uint64_t seed, std::int64_t seen_classes = 0,
                double own_bound = weigher_bound)
      : clean(random_rows(12, seed + 100)),
        rows(random_rows(7, seed)),
        weights(method, clean, 12, 5) {
    nn::manual_seed(seed);
    std::optional<WeighedModel::Weigher> weigher;
    if (method == Method::network) weigher = {.classes = seen_classes};
    model = std::make_unique<WeighedModel>(
        std::make_unique<nn::Sequential>(
            nn::Sequential{nn::Linear(features, 5), nn::Tanh(), nn::Linear(5, classes)}),
        weigher);
    model->to(Dtype::f64);
    for (const auto& [name, parameter] : model->named_parameters())
      (name.starts_with(std::string(weigher_path) + ".") ? upper : lower).push_back(parameter);
    groups = {{lower, bound}};
    if (!upper.empty()) groups.push_back({upper, own_bound});
  }

  // The sums of the drawn rows before noise, of the classifier and of the weigher.
  std::vector<std::vector<double>> sums(const std::vector<std::int64_t>& drawn, ClipPasses passes) {
    Clipper clipper(groups, {}, passes);
    weights.begin_step(*model, 0, &clipper);
    Tape tape({.private_data = true});
    const Var losses = weights.losses(tape, *model, rows.batch(drawn));
    clipper.add(tape, losses);
    sensitivity = clipper.sensitivity();
    std::vector<std::vector<double>> both(2);
    for (const auto& [parameter, sum] : clipper.clipped_sums()) {
      const bool own = std::find(upper.begin(), upper.end(), parameter) != upper.end();
      for (const double value : to_dtype(sum, Dtype::f64).to_vector<double>())
        both[own ? 1 : 0].push_back(value);
    }
    return both;
  }

  Dataset clean, rows;
  std::unique_ptr<WeighedModel> model;
  std::vector<Parameter*> lower, upper;
  std::vector<ClipGroup> groups;
  RowWeights weights;
  double sensitivity = 0;
};

double distance(const std::vector<std::vector<double>>& a,
                const std::vector<std::vector<double>>& b) {
  double square = 0;
  for (std::size_t part = 0; part < a.size(); ++part) {
    for (std::size_t k = 0; k < a[part].size(); ++k) square += std::pow(a[part][k] - b[part][k], 2);
  }
  return std::sqrt(square);
}

// The gradient of each loss by itself, of the mean over the rows.
Gradients gradient_of(WeighedModel& model, const Dataset& rows) {
  Tape tape;
  SumSink sink;
  const Var losses = cross_entropy(model(tape.input(rows.inputs)), rows.targets);
  tape.backward(losses, sink, 1 / static_cast<double>(rows.size()));
  return sink.gradients();
}

double clean_loss(Step& step) {
  Tape tape;
  const Var losses =
      cross_entropy((*step.model)(tape.input(step.clean.inputs)), step.clean.targets);
  return sum(losses.value()).item() / static_cast<double>(step.clean.size());
}

double length(const Gradients& gradients) {
  double square = 0;
  for (const auto& [parameter, value] : gradients) square += sum(mul(value, value)).item();
  return std::sqrt(square);
}

// The clean rows' mean loss after a step along the rows' clipped gradients, each of one row alone,
// with the weigher's present weights. The parameters are put back.
double clean_loss_after(Step& step, double rate) {
  std::vector<Tensor> before;
  for (const Parameter* parameter : step.lower) before.push_back(clone(parameter->value));
  Gradients total;
  for (const std::int64_t row : range(step.rows.size())) {
    const Dataset alone = step.rows.batch(std::vector{row});
    const Gradients own = gradient_of(*step.model, alone);
    Tape tape;
    const Var losses = cross_entropy((*step.model)(tape.input(alone.inputs)), alone.targets);
    const double weight = step.model->weights(losses, alone.targets).value().item();
    const double factor = std::min(1.0, bound / length(own));
    for (const auto& [parameter, value] : own)
      accumulate(total, *parameter, scale(value, weight * factor));
  }
  for (const auto& [parameter, value] : total) axpby(-rate, value, 1, parameter->value);
  const double loss = clean_loss(step);
  for (std::size_t k = 0; k < before.size(); ++k) copy_into(before[k], step.lower[k]->value);
  return loss;
}

}  // namespace

TEST_CASE("the weigher's sum is the derivative of the clean loss after one step, up to a factor") {
  for (const std::int64_t seen : {std::int64_t{0}, classes}) {
    Step step(Method::network, 3, seen, /*own_bound=*/1e3);
    const auto sums = step.sums(range(step.rows.size()), ClipPasses::one);
    constexpr double rate = 1e-5, h = 1e-3;
    std::vector<double> expected;
    for (Parameter* parameter : step.upper) {
      for (std::int64_t k = 0; k < parameter->value.numel(); ++k) {
        double& value = parameter->value.data<double>()[k];
        const double there = value;
        value = there + h;
        const double above = clean_loss_after(step, rate);
        value = there - h;
        const double below = clean_loss_after(step, rate);
        value = there;
        expected.push_back((above - below) / (2 * h) / rate);
      }
    }
    double products = 0, squares = 0, own_squares = 0;
    for (std::size_t k = 0; k < expected.size(); ++k) {
      products += expected[k] * sums[1][k];
      squares += expected[k] * expected[k];
      own_squares += sums[1][k] * sums[1][k];
    }
    CHECK(squares > 0);
    CHECK(products / std::sqrt(squares * own_squares) == Approx(1).epsilon(1e-6));
    // The factor is a constant over the norm of the clean gradient.
    const double factor = std::sqrt(own_squares / squares);
    CHECK(factor * length(gradient_of(*step.model, step.clean)) == Approx(8).epsilon(1e-3));
  }
}

TEST_CASE("a row moves the release of both parts by at most its sensitivity") {
  for (const Method method : {Method::none, Method::gate, Method::network}) {
    for (const std::uint64_t seed : {4, 5, 6}) {
      Step step(method, seed, method == Method::network && seed == 5 ? classes : 0);
      step.rows.inputs.data<double>()[0] = std::numeric_limits<double>::quiet_NaN();  // row 0
      for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
        const auto all = step.sums(range(step.rows.size()), passes);
        for (std::int64_t out = 0; out < step.rows.size(); ++out) {
          auto others = range(step.rows.size());
          others.erase(others.begin() + out);
          const double moved = distance(all, step.sums(others, passes));
          CHECK(moved <= step.sensitivity);
          if (out == 0) CHECK(moved <= 1e-12);  // its loss is not a number: it adds nothing
        }
      }
    }
  }
}

// <a, b> over the parameters of both.
double product(const Gradients& a, const Gradients& b) {
  double total = 0;
  for (const auto& [parameter, value] : a) {
    for (const auto& [other, direction] : b) {
      if (other == parameter) total += sum(mul(value, direction)).item();
    }
  }
  return total;
}

// The weight of a row alone, by the definition of its method.
double weight_alone(Step& step, Method method, const Dataset& row) {
  if (method == Method::none) return 1;
  if (method == Method::gate)
    return product(gradient_of(*step.model, row), gradient_of(*step.model, step.clean)) > 0 ? 1 : 0;
  Tape tape;
  const Var losses = cross_entropy((*step.model)(tape.input(row.inputs)), row.targets);
  return step.model->weights(losses, row.targets).value().item();
}

TEST_CASE("a gate lets through the rows whose gradients point along that of the clean rows") {
  Step step(Method::gate, 8);
  step.weights.begin_step(*step.model, 0, nullptr);
  const auto weights = step.weights.weights_of(*step.model, step.rows).to_vector<double>();
  std::set<double> seen;
  for (const std::int64_t row : range(step.rows.size())) {
    const double weight = weights[static_cast<std::size_t>(row)];
    CHECK(weight == weight_alone(step, Method::gate, step.rows.batch(std::vector{row})));
    seen.insert(weight);
  }
  CHECK(seen.size() == 2);
}

// The sum over the rows of each one's own gradient, clipped or not, times its weight.
std::vector<double> weighed_sum(Step& step, Method method, bool clipped) {
  Gradients total;
  for (const std::int64_t row : range(step.rows.size())) {
    const Dataset alone = step.rows.batch(std::vector{row});
    const Gradients own = gradient_of(*step.model, alone);
    const double factor = clipped ? std::min(1.0, bound / length(own)) : 1;
    for (const auto& [parameter, value] : own)
      accumulate(total, *parameter, scale(value, factor * weight_alone(step, method, alone)));
  }
  std::vector<double> values;
  for (const Parameter* parameter : step.lower) {
    for (const auto& [other, value] : total) {
      if (other != parameter) continue;
      for (const double x : value.to_vector<double>()) values.push_back(x);
    }
  }
  return values;
}

TEST_CASE("the classifier's sum is that of each row's clipped gradient, times the row's weight") {
  for (const Method method : {Method::none, Method::gate, Method::network}) {
    Step step(method, 8);
    for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
      const std::vector<double> sums = step.sums(range(step.rows.size()), passes)[0];
      CHECK(distance({sums}, {weighed_sum(step, method, /*clipped=*/true)}) <= 1e-6);
    }
  }
}

TEST_CASE("without privacy each row's gradient has its weight, and its loss has none") {
  for (const Method method : {Method::none, Method::gate, Method::network}) {
    Step step(method, 8);
    step.weights.begin_step(*step.model, 0, nullptr);
    Tape tape;
    SumSink sink;
    const Var losses = step.weights.losses(tape, *step.model, step.rows);
    const Var plain = cross_entropy((*step.model)(tape.input(step.rows.inputs)), step.rows.targets);
    const auto values = losses.value().to_vector<double>(),
               same = plain.value().to_vector<double>();
    CHECK(distance({values}, {same}) <= 1e-12);
    tape.backward(losses, sink);
    std::vector<double> gradient;
    for (const Parameter* parameter : step.lower) {
      for (const auto& [other, value] : sink.gradients()) {
        if (other != parameter) continue;
        for (const double x : value.to_vector<double>()) gradient.push_back(x);
      }
    }
    CHECK(distance({gradient}, {weighed_sum(step, method, /*clipped=*/false)}) <= 1e-9);
  }
}

TEST_CASE("clean rows are as many of each class, and none is left among the others") {
  const Dataset data = random_rows(60, 1);
  const auto [clean, rest] = hold_out_clean(data, classes, 8, 2);
  CHECK(clean.size() == 8);
  CHECK(rest.size() == 52);
  CHECK(rows_in_both(clean, rest) == 0);
  CHECK(rows_in_both(clean, data) == 8);
  std::vector<std::int64_t> counts(classes);
  for (const std::int64_t label : clean.targets.to_vector<std::int64_t>())
    ++counts[static_cast<std::size_t>(label)];
  CHECK(counts == std::vector<std::int64_t>{3, 3, 2});
  CHECK(rows_in_both(clean, hold_out_clean(data, classes, 8, 3).first) < 8);
  CHECK(throws([&] { hold_out_clean(data, classes, 60, 2); }, "--clean: 60"));
}

TEST_CASE("a long tail has the counts of the literature, in an order that the seed decides") {
  CHECK(long_tailed_counts(4900, 10, 100) ==
        std::vector<std::int64_t>{4900, 2937, 1760, 1055, 632, 379, 227, 136, 81, 49});
  CHECK(long_tailed_counts(4900, 10, 1) == std::vector<std::int64_t>(10, 4900));
  const Dataset data = random_rows(600, 1);
  const Dataset tail = make_long_tailed(data, classes, 10, 2);
  std::vector<std::int64_t> counts(classes);
  for (const std::int64_t label : tail.targets.to_vector<std::int64_t>())
    ++counts[static_cast<std::size_t>(label)];
  std::sort(counts.rbegin(), counts.rend());
  CHECK(counts == long_tailed_counts(counts.front(), classes, 10));
  CHECK(rows_in_both(tail, data) == tail.size());
  CHECK(throws([&] { make_long_tailed(data, classes, 1e5, 2); }, "--imbalance: 100000 of"));
}

TEST_CASE("labels are made wrong by the numbers of rows alone, and the field says which") {
  const Dataset data = random_rows(1000, 1), other = random_rows(1000, 2);
  for (const char* wrong : {wrong_next, wrong_random}) {
    const Dataset noisy = make_wrong_labels(data, classes, 0.45, wrong, 7);
    const auto changed = noisy.field(changed_field).to_vector<std::int64_t>();
    CHECK(std::accumulate(changed.begin(), changed.end(), std::int64_t{0}) == 450);
    std::vector<std::int64_t> steps(classes);
    for (std::int64_t row = 0; row < 1000; ++row) {
      const std::int64_t before = data.targets.data<std::int64_t>()[row];
      const std::int64_t step =
          (noisy.targets.data<std::int64_t>()[row] + classes - before) % classes;
      CHECK((step != 0) == (changed[static_cast<std::size_t>(row)] == 1));
      ++steps[static_cast<std::size_t>(step)];
    }
    CHECK((steps[2] == 0) == (std::string(wrong) == wrong_next));
    const Dataset also = make_wrong_labels(other, classes, 0.45, wrong, 7);
    CHECK(also.field(changed_field).to_vector<std::int64_t>() == changed);
  }
  CHECK(throws([&] { make_wrong_labels(data, classes, 0.1, "odd", 7); }, "--wrong"));
}
