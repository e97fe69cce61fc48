// Random models, run privately in a batch and each sample alone: equal gradients, norms by every
// method, and clipped sums. SOTTO_MODELS sets their number, SOTTO_MODEL_SEED the first seed.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <sstream>

#include "autograd/check/op_run.h"
#include "autograd/per_sample/per_sample_grad.h"
#include "autograd/sink.h"
#include "dp/clipping/clipper.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "tests/support/catch.h"
#include "tests/support/random_model.h"

using namespace sotto;
using namespace sotto::testing;

namespace {

constexpr std::uint64_t tape_seed = 9;
constexpr double tolerance = 1e-9;

using Rows = std::vector<std::vector<double>>;

std::vector<double> doubles(const Tensor& x) { return to_dtype(x, Dtype::f64).to_vector<double>(); }

double norm_of(const std::vector<double>& x) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  return std::sqrt(sum);
}

// The gradients of all parameters, sample by sample, by running each sample alone.
Rows alone(RandomModel& model) {
  Rows rows;
  for (std::int64_t n = 0; n < model.inputs().size(0); ++n) {
    Tape tape({.seed = tape_seed, .first_row = n});
    SumSink sink;
    tape.backward(model.loss(tape, model.inputs().slice(0, n, n + 1)), sink);
    std::vector<double> row;
    for (Parameter& parameter : model.parameters()) {
      Tensor total = zeros(parameter.value.shape(), Dtype::f64);
      for (const auto& [known, gradient] : sink.gradients()) {
        if (known == &parameter) total = gradient;
      }
      for (const double v : doubles(total)) row.push_back(v);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

struct Together {
  Rows rows;
  std::vector<std::vector<double>> squared_norms;  // by norm method
};

Together together(RandomModel& model, bool cut) {
  Tape tape({.private_data = true, .seed = tape_seed});
  CollectSink sink;
  tape.backward(model.loss(tape, model.inputs(), cut), sink);
  const auto samples = static_cast<std::size_t>(model.inputs().size(0));
  Together result{Rows(samples), std::vector(3, std::vector<double>(samples))};
  for (Parameter& parameter : model.parameters()) {
    const std::vector<PerSampleGrad> uses = sink.uses(parameter);
    const auto width = static_cast<std::size_t>(parameter.value.numel());
    const std::vector<double> all =
        uses.empty() ? std::vector<double>(samples * width) : doubles(rows_of_uses(uses));
    for (std::size_t n = 0; n < samples; ++n) {
      const auto first = all.begin() + static_cast<std::ptrdiff_t>(n * width);
      result.rows[n].insert(result.rows[n].end(), first,
                            first + static_cast<std::ptrdiff_t>(width));
    }
    for (const NormMethod norm_method :
         {NormMethod::automatic, NormMethod::ghost, NormMethod::materialize}) {
      if (uses.empty()) continue;
      const std::vector<double> norms = doubles(squared_norm(uses, norm_method));
      for (std::size_t n = 0; n < samples; ++n)
        result.squared_norms[static_cast<std::size_t>(norm_method)][n] += norms[n];
    }
  }
  return result;
}

// The clipped sum of all parameters, by the engine's clipper.
std::vector<double> clipped(RandomModel& model, double bound, ClipPasses passes, bool cut) {
  std::vector<Parameter*> trainable;
  for (Parameter& parameter : model.parameters()) {
    if (parameter.trainable) trainable.push_back(&parameter);
  }
  Clipper clipper(flat_group(trainable, bound), {}, passes);
  Tape tape({.private_data = true, .seed = tape_seed});
  clipper.add(tape, model.loss(tape, model.inputs(), cut));
  std::vector<double> sums;
  for (Parameter& parameter : model.parameters()) {
    Tensor total = zeros(parameter.value.shape(), Dtype::f64);
    for (const auto& [known, sum] : clipper.clipped_sums()) {
      if (known == &parameter) total = sum;
    }
    for (const double v : doubles(total)) sums.push_back(v);
  }
  return sums;
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<double> difference(a);
  for (std::size_t i = 0; i < a.size(); ++i) difference[i] -= b[i];
  return norm_of(difference);
}

// Describes the fault of a model; empty if there is none.
std::string fault(RandomModel& model, bool cut) {
  const Rows expected = alone(model);
  const Together got = together(model, cut);
  std::vector<double> norms;
  for (std::size_t n = 0; n < expected.size(); ++n) {
    const double norm = norm_of(expected[n]);
    norms.push_back(norm);
    if (!(distance(expected[n], got.rows[n]) <= tolerance * (1 + norm))) {
      return fmt::format("sample {}: gradient differs from the sample alone", n);
    }
    for (std::size_t norm_method = 0; norm_method < got.squared_norms.size(); ++norm_method) {
      if (!(std::abs(std::sqrt(got.squared_norms[norm_method][n]) - norm) <= 1e-7 * (1 + norm))) {
        return fmt::format("sample {}: norm {} by route {}, {} alone", n,
                           std::sqrt(got.squared_norms[norm_method][n]), norm_method, norm);
      }
    }
  }
  std::vector<double> sorted = norms;
  std::sort(sorted.begin(), sorted.end());
  const double bound = std::max(sorted[sorted.size() / 2], 1e-3);
  std::vector<double> sum(expected[0].size());
  for (std::size_t n = 0; n < expected.size(); ++n) {
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] += std::min(1.0, bound / std::max(norms[n], 1e-300)) * expected[n][i];
  }
  for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
    const bool any = std::any_of(model.parameters().begin(), model.parameters().end(),
                                 [](const Parameter& p) { return p.trainable; });
    if (any && !(distance(sum, clipped(model, bound, passes, cut)) <=
                 tolerance * (1 + bound) * static_cast<double>(norms.size()))) {
      return fmt::format("clipped sum, {} passes", passes == ClipPasses::one ? 1 : 2);
    }
  }
  return "";
}

std::string fault(const ModelPlan& plan, bool cut) {
  try {
    RandomModel model(plan);
    return fault(model, cut);
  } catch (const std::exception& error) {
    return error.what();
  }
}

// The plan without the steps that the failure does not need.
ModelPlan shrunk(ModelPlan plan, bool cut) {
  for (std::size_t i = plan.steps.size(); i-- > 0;) {
    ModelPlan smaller = plan;
    smaller.steps.erase(smaller.steps.begin() + static_cast<std::ptrdiff_t>(i));
    if (!fault(smaller, cut).empty()) plan = smaller;
  }
  while (plan.samples > 1) {
    ModelPlan smaller = plan;
    --smaller.samples;
    if (fault(smaller, cut).empty()) break;
    plan = smaller;
  }
  return plan;
}

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

void check_models(std::uint64_t first, std::uint64_t count, bool cut) {
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    const ModelPlan plan = random_plan(seed);
    const std::string what = fault(plan, cut);
    if (what.empty()) continue;
    const ModelPlan small = shrunk(plan, cut);
    RandomModel model(small);
    FAIL_CHECK("seed " << seed << ": " << what << "; shrunk: " << fault(small, cut) << "\n"
                       << small.samples << " samples, " << model.description());
  }
  CHECK(count > 0);
}

}  // namespace

TEST_CASE("random models have the gradients, norms and clipped sums of their samples alone",
          "[random]") {
  check_models(setting("SOTTO_MODEL_SEED", 0), setting("SOTTO_MODELS", 300), false);
}

TEST_CASE("random models cut into segments have them, too", "[random]") {
  check_models(setting("SOTTO_MODEL_SEED", 0) + 500, setting("SOTTO_MODELS", 300) / 3, true);
}

namespace {

// The gradients of rows of a batch that begin with row `first`, sample after sample.
std::vector<double> gradients(RandomModel& model, const Tensor& x, std::int64_t first,
                              Dtype precision) {
  Tape tape({.private_data = true, .precision = precision, .seed = tape_seed, .first_row = first});
  CollectSink sink;
  tape.backward(model.loss(tape, x), sink);
  std::vector<double> all;
  for (std::int64_t n = 0; n < x.size(0); ++n) {
    for (Parameter& parameter : model.parameters()) {
      const std::vector<PerSampleGrad> uses = sink.uses(parameter);
      if (uses.empty()) continue;
      for (const double v : doubles(rows_of_uses(uses).slice(0, n, n + 1))) all.push_back(v);
    }
  }
  return all;
}

// Whether each sample alone has the bits that it has beside others.
bool same_bits_alone(RandomModel& model, Dtype dtype, Dtype precision) {
  for (Parameter& parameter : model.parameters())
    parameter.value = to_dtype(parameter.value, dtype);
  const Tensor x =
      is_float(model.inputs().dtype()) ? to_dtype(model.inputs(), dtype) : model.inputs();
  const std::vector<double> together = gradients(model, x, 0, precision);
  std::vector<double> apart;
  for (std::int64_t n = 0; n < x.size(0); ++n) {
    for (const double v : gradients(model, x.slice(0, n, n + 1), n, precision)) apart.push_back(v);
  }
  return together.size() == apart.size() &&
         std::equal(together.begin(), together.end(), apart.begin(), [](double a, double b) {
           return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
         });
}

}  // namespace

TEST_CASE("random models give each sample alone the bits that it has beside others", "[random]") {
  const std::uint64_t first = setting("SOTTO_MODEL_SEED", 0) + 900,
                      count = setting("SOTTO_MODELS", 300) / 3;
  for (std::uint64_t seed = first; seed < first + count; ++seed) {
    for (const auto& [dtype, precision] : {std::pair{Dtype::f64, Dtype::f32},
                                           {Dtype::f32, Dtype::f32},
                                           {Dtype::f32, Dtype::bf16},
                                           {Dtype::f32, Dtype::f16}}) {
      RandomModel model(random_plan(seed));
      const bool same = same_bits_alone(model, dtype, precision);
      CAPTURE(seed, name(dtype), name(precision), model.description());
      CHECK(same);
    }
  }
}

// Depth, sharing and every kind of step must occur, or the test above says little.
TEST_CASE("random models vary") {
  std::map<std::string, int> words;
  std::size_t deepest = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    const ModelPlan plan = random_plan(seed);
    deepest = std::max(deepest, plan.steps.size());
    RandomModel model(plan);
    std::istringstream lines(model.description());
    for (std::string line; std::getline(lines, line);) ++words[line];
  }
  CHECK(deepest == 30);
  for (const char* kind : {"embedding",
                           "activation",
                           "gain and shift",
                           "residual",
                           "layer norm",
                           "dropout",
                           "linear",
                           "samples along axis 1:",
                           "flattened",
                           "matrix over positions",
                           "attention",
                           "convolution",
                           "pooling",
                           "recurrent",
                           "upsampled",
                           "transposed convolution",
                           "sorted",
                           "group norm",
                           "joined with a branch of itself",
                           "  weight tied",
                           "  weight tied, transposed",
                           "  weight standardised",
                           "  weight of low rank",
                           "  weight with a gain",
                           "  weight bounded",
                           "scaled by the mean of an earlier parameter"}) {
    INFO(kind);
    CHECK(words[kind] >= 10);
  }
}
