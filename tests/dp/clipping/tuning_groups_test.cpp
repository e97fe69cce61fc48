// Private fine-tuning: bounds of its own for the head, one ledger for phases that follow one
// another, and models that clip elsewhere only in part (tied weights, an unused pooler).
#include <cmath>
#include <map>
#include <set>

#include "autograd/sink.h"
#include "core/random/philox.h"
#include "dp/clipping/clipper.h"
#include "dp/clipping/tuning_groups.h"
#include "dp/engine/engine.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "nn/init.h"
#include "nn/models/gpt2.h"
#include "nn/models/tuning.h"
#include "nn/optim/optimizer.h"
#include "tests/support/catch.h"
#include "tests/support/encoder.h"
#include "tests/support/throws.h"

using namespace sotto;
using nn::next_token_loss;
using nn::parse_tuning;

namespace {

constexpr std::int64_t rows = 4, length = 6, vocabulary = 11;

Tensor words(std::int64_t n = rows) {
  PublicRandom random(3);
  std::vector<std::int64_t> ids;
  for (std::int64_t i = 0; i < n * length; ++i)
    ids.push_back(static_cast<std::int64_t>(random.uniform() * (vocabulary - 0.01)));
  return Tensor::from(ids, {n, length});
}

Tensor labels(std::int64_t n = rows) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < n; ++i) all.push_back(i % 3);
  return Tensor::from(all, {n});
}

void perturb(nn::Module& model) {
  PublicRandom random(6);
  for (const auto& [name, parameter] : model.named_parameters()) {
    std::vector<double> values = to_dtype(parameter->value, Dtype::f64).to_vector<double>();
    for (double& value : values) value += 0.3 * random.normal();
    parameter->value = Tensor::from(values, parameter->value.shape());
  }
}

using Loss = std::function<Var(Tape& tape, std::int64_t begin, std::int64_t end)>;

// Each sample's gradient norm over all trained parameters, by running it alone in f64.
std::vector<double> norms_alone(nn::Module& model, const Loss& loss) {
  std::vector<double> norms;
  for (std::int64_t n = 0; n < rows; ++n) {
    Tape tape({.training = false});
    SumSink sink;
    tape.backward(loss(tape, n, n + 1), sink);
    double sum = 0;
    for (const auto& [parameter, gradient] : sink.gradients()) {
      CHECK(parameter->trainable);
      for (const double g : gradient.to_vector<double>()) sum += g * g;
    }
    norms.push_back(std::sqrt(sum));
  }
  CHECK(model.parameter_count() > 0);
  return norms;
}

void check_norms(nn::Module& model, const Loss& loss) {
  const std::vector<double> expected = norms_alone(model, loss);
  for (const NormMethod method :
       {NormMethod::automatic, NormMethod::ghost, NormMethod::materialize}) {
    for (const ClipPasses passes : {ClipPasses::one, ClipPasses::two}) {
      Clipper clipper(flat_group(model.parameters(), 1), {.norm_method = method}, passes);
      Tape tape({.private_data = true, .training = false});
      clipper.add(tape, loss(tape, 0, rows));
      for (std::size_t n = 0; n < expected.size(); ++n)
        CHECK(clipper.statistics().norms[0][n] == Approx(expected[n]).epsilon(1e-7));
    }
  }
}

}  // namespace

TEST_CASE("the head and the body have clip bounds of their own") {
  Encoder model;
  apply_tuning(model, parse_tuning("lora:2"));
  const std::vector<ClipGroup> groups = tuning_groups(model, {.body = 0.5, .head = 2});
  REQUIRE(groups.size() == 2);
  CHECK(groups[0].bound == 0.5);
  CHECK(groups[0].parameters.size() == 8);  // two factors beside each query and value of two blocks
  CHECK(groups[1].bound == 2);
  CHECK(groups[1].parameters.size() == 4);
  CHECK(sensitivity_of(groups) == Approx(std::hypot(0.5, 2)));
  Clipper clipper(groups);
  Tape tape({.private_data = true});
  clipper.add(tape, cross_entropy(model(tape.input(words())), labels()));
  CHECK(clipper.statistics().norms.size() == 2);
  apply_tuning(model, parse_tuning("head"));
  CHECK(tuning_groups(model, {}).size() == 1);
  model.freeze();
  CHECK(throws([&] { tuning_groups(model, {}); }, "nothing is trained"));
}

// Opacus refuses tied parameters under ghost clipping.
TEST_CASE("a tied output layer is clipped exactly whatever is tuned") {
  for (const char* tuning :
       {"all", "bitfit", "norms", "last:1", "lora:2", "lora:2,targets=c_attn|c_fc"}) {
    INFO(tuning);
    nn::manual_seed(4);
    nn::Gpt2 model({.vocabulary = vocabulary, .positions = 8, .width = 8, .layers = 2, .heads = 2});
    model.to(Dtype::f64);
    apply_tuning(model, parse_tuning(tuning));
    perturb(model);
    check_norms(model, [&](Tape& tape, std::int64_t begin, std::int64_t end) {
      const Tensor ids = words().slice(0, begin, end);
      return next_token_loss(model(tape.input(ids)), ids);
    });
  }
}

// In Opacus it has no per-sample gradient, which is an error.
TEST_CASE("a trained pooler that nothing reads is no obstacle") {
  for (const char* tuning : {"all", "head", "lora:2"}) {
    INFO(tuning);
    nn::manual_seed(4);
    Encoder model({.pooled = false});
    model.to(Dtype::f64);
    apply_tuning(model, parse_tuning(tuning));
    perturb(model);
    check_norms(model, [&](Tape& tape, std::int64_t begin, std::int64_t end) {
      return cross_entropy(model(tape.input(words().slice(0, begin, end))),
                           labels().slice(0, begin, end));
    });
  }
}

TEST_CASE("a head that is fitted first, and LoRA after it, share one ledger and its epsilon") {
  constexpr std::int64_t people = 64;
  nn::manual_seed(4);
  Encoder model;
  const Tensor ids = words(people), targets = labels(people);
  std::map<std::string, std::vector<float>> start;
  for (const auto& [name, parameter] : model.named_parameters())
    start[name] = parameter->value.to_vector<float>();
  const Ledger ledger;
  const auto train = [&](const char* tuning, double epsilon) {
    apply_tuning(model, parse_tuning(tuning));
    nn::Sgd optimizer(model, {.learning_rate = 0.1});
    Engine engine(model, optimizer, people, ledger.new_run(),
                  {.target_epsilon = epsilon,
                   .steps = 3,
                   .logical_batch = 32,
                   .groups = tuning_groups(model, {.body = 0.5, .head = 1})});
    while (engine.next_step([&](Tape& tape, std::span<const std::int64_t> chosen) {
      const Tensor some = Tensor::from(std::vector<std::int64_t>(chosen.begin(), chosen.end()),
                                       {std::ssize(chosen)});
      return cross_entropy(model(tape.input(gather(ids, some, 0))), gather(targets, some, 0));
    })) {
    }
    CHECK(engine.steps_made() == 3);
    CHECK(engine.epsilon() <= epsilon);
    CHECK(engine.epsilon() > 0.9 * epsilon);
  };
  train("head", 1);
  train("lora:2", 3);
  // Only the head and the products have moved.
  for (const auto& [name, parameter] : model.named_parameters()) {
    INFO(name);
    if (name.ends_with("lora_b") || model.parts().in_head(name)) continue;
    std::string plain = name;
    if (const std::size_t base = plain.find(".base."); base != std::string::npos)
      plain.erase(base, 5);
    if (!name.ends_with("lora_a")) CHECK(parameter->value.to_vector<float>() == start.at(plain));
  }
  for (const auto& [path, layer] : lora_layers(model)) {
    const std::vector<float> factor = layer->lora_b->value.to_vector<float>();
    CHECK(factor != std::vector<float>(factor.size(), 0.0f));
  }
}
