// Training with a captured loss, on every GPU present, equals training without, bit by bit, and
// padding rows count for nothing.
// File tags: [gpu]
#include "memory/captured_loss.h"

#include "core/random/philox.h"
#include "core/random/secret_random.h"
#include "dp/engine/engine.h"
#include "dp/noise/gaussian_mechanism.h"
#include "dp/sampling/sampler.h"
#include "kernels/tensor_ops/tensor_ops.h"
#include "memory/accumulation.h"
#include "nn/optim/optimizer.h"
#include "tests/support/captured_setup.h"
#include "tests/support/kernel_cases.h"
#include "tests/support/throws.h"

using namespace sotto;

namespace {

std::vector<double> parameters(nn::Module& model) {
  std::vector<double> all;
  for (const Parameter* parameter : model.parameters()) {
    for (const double v : values(parameter->value)) all.push_back(v);
  }
  return all;
}

struct Private {
  ClipPasses passes = ClipPasses::one;
  ClipOptions clipping;
  Dtype precision = Dtype::f32;
  bool by_layer = false;
};

// The releases and reports of three private steps with seeded noise; clip bounds and the loss scale
// change on the way.
std::vector<double> trained(Device device, bool capture, const Private& how) {
  Setup s(device, 7);
  nn::Adam optimizer(s.model, {.learning_rate = 0.05});
  Ledger ledger;
  FullBatchSampler sampler(7);
  std::vector<ClipGroup> groups = flat_group(s.model.parameters(), 0.5);
  if (how.by_layer) {
    groups.clear();
    for (Parameter* parameter : s.model.parameters()) groups.push_back({{parameter}, 0.2});
  }
  Clipper clipper(groups, how.clipping, how.passes);
  GaussianMechanism mechanism(0.7, SecretRandom::insecure_seeded(4));
  PublicRandom random(9);
  std::vector<double> all;
  for (int step = 0; step < 3; ++step) {
    const std::vector<Tensor> batch = tensors(random_batch(7, random));
    Tape tape({.private_data = true, .precision = how.precision});
    clipper.add(tape, capture ? s.captured(tape, batch) : s.plain(tape, on_device(device, batch)));
    const ClipStatistics& statistics = clipper.statistics();
    all.push_back(statistics.loss_sum);
    all.insert(all.end(), statistics.norms[0].begin(), statistics.norms[0].end());
    mechanism.update(clipper.finish(sampler.draw()), ledger, optimizer);
    clipper.set_bounds(std::vector<double>(groups.size(), 0.3 / (step + 1)));
    clipper.set_loss_scale(step + 2 == 3 ? 8 : 1);
  }
  CHECK(s.captured.reason() == "");
  CHECK(s.captured.captures() == (capture ? 1 : 0));
  CHECK(s.captured.replays() == (capture ? 3 : 0));
  CHECK(ledger.releases() == 3);
  for (const double v : parameters(s.model)) all.push_back(v);
  return all;
}

// The clipped sum of a batch, and its statistics.
struct Clipped {
  std::vector<double> sum;
  ClipStatistics statistics;
};

Clipped clipped(Setup& s, bool capture, const std::vector<Tensor>& batch) {
  Clipper clipper(flat_group(s.model.parameters(), 0.5));
  Tape tape({.private_data = true});
  const Device device = s.model.parameters()[0]->value.device();
  clipper.add(tape, capture ? s.captured(tape, batch) : s.plain(tape, on_device(device, batch)));
  return {flat(clipper.clipped_sums()), clipper.statistics()};
}

void check_same(const Clipped& got, const Clipped& expected, double tolerance) {
  CHECK(distance(got.sum, expected.sum) <= tolerance);
  CHECK(distance(got.statistics.norms[0], expected.statistics.norms[0]) <= tolerance);
  CHECK(std::abs(got.statistics.loss_sum - expected.statistics.loss_sum) <= tolerance);
  CHECK(got.statistics.units == expected.statistics.units);
  CHECK(got.statistics.not_finite == expected.statistics.not_finite);
}

std::vector<Tensor> rows_of(const std::vector<Tensor>& batch, std::int64_t begin,
                            std::int64_t end) {
  return {batch[0].slice(0, begin, end), batch[1].slice(0, begin, end)};
}

void spoil(const Tensor& images, std::int64_t row, double value) {
  copy_into(full({}, value), images.select(0, row));
}

}  // namespace

TEST_CASE("private training with a captured loss is that without, bit by bit") {
  for_each_gpu([](Device device) {
    const auto same = [&](const Private& how) {
      const bool equal = trained(device, true, how) == trained(device, false, how);
      CHECK(equal);
    };
    same({});
    same({.clipping = {.norm_method = NormMethod::ghost}});
    same({.clipping = {.norm_method = NormMethod::materialize}});
    same({.passes = ClipPasses::two});
    same({.precision = Dtype::bf16});
    same({.by_layer = true});
  });
}

TEST_CASE("a batch smaller than the captured one is clipped as each of its samples alone") {
  for_each_gpu([](Device device) {
    Setup s(device, 8);
    PublicRandom random(3);
    const std::vector<Tensor> all = tensors(random_batch(8, random));
    for (const std::int64_t rows : {8, 3, 1, 7}) {
      const std::vector<Tensor> batch = rows_of(all, 0, rows);
      const Clipped got = clipped(s, true, batch);
      CHECK(s.captured.reason() == "");
      check_same(got, clipped(s, false, batch), 1e-5);
      std::vector<double> sum(got.sum.size());
      for (std::int64_t row = 0; row < rows; ++row) {
        const Clipped alone = clipped(s, false, rows_of(all, row, row + 1));
        for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += alone.sum[k];
        const auto n = static_cast<std::size_t>(row);
        CHECK(got.statistics.norms[0][n] == Approx(alone.statistics.norms[0][0]).epsilon(1e-4));
      }
      CHECK(distance(got.sum, sum) < 1e-5);
    }
    CHECK(s.captured.captures() == 1);
  });
}

TEST_CASE("the contents of padding rows change no bit, not even NaN and infinity") {
  for_each_gpu([](Device device) {
    Setup clean(device, 6), spoilt(device, 6);
    PublicRandom random(4);
    const std::vector<Tensor> all = tensors(random_batch(6, random)), three = rows_of(all, 0, 3);
    Clipped expected = clipped(clean, true, three);
    Batch hostile = random_batch(6, random);
    for (std::int64_t row = 0; row < 6; ++row)
      spoil(hostile.images, row, row % 2 == 0 ? std::nan("") : HUGE_VAL);
    CHECK(clipped(spoilt, true, tensors(hostile)).statistics.not_finite == 6);
    check_same(clipped(spoilt, true, three), expected, 0);
    CHECK(spoilt.captured.replays() == 2);
  });
}

TEST_CASE("a sample that is not finite is left out of a captured batch, and counted") {
  for_each_gpu([](Device device) {
    Setup s(device, 5);
    PublicRandom random(6);
    for (const double bad : {std::nan(""), HUGE_VAL}) {
      const Batch batch = random_batch(5, random);
      spoil(batch.images, 2, bad);
      const Clipped got = clipped(s, true, tensors(batch));
      CHECK(s.captured.reason() == "");
      CHECK(got.statistics.not_finite == 1);
      const Clipped others = clipped(s, true, tensors(without(batch, 2)));
      CHECK(distance(got.sum, others.sum) < 1e-5);
    }
  });
}

namespace {

// The parameters after some ordinary steps on batches of 6, 6 and 4 rows.
std::vector<double> ordinarily_trained(Device device, bool capture) {
  Setup s(device, 6);
  nn::Adam optimizer(s.model, {.learning_rate = 0.05});
  PublicRandom random(2);
  memory::Accumulation accumulation({.precision = Dtype::f32});
  for (const std::int64_t rows : {6, 6, 4, 6}) {
    const std::vector<Tensor> batch = tensors(random_batch(rows, random));
    const std::vector<std::int64_t> all(static_cast<std::size_t>(rows));
    const auto result = accumulation.mean_gradient(
        [&](Tape& tape, std::span<const std::int64_t>) {
          return capture ? s.captured(tape, batch) : s.plain(tape, on_device(device, batch));
        },
        all, optimizer);
    optimizer.step(result.gradients);
    if (!capture) continue;
    CHECK(s.captured.reason() == (rows == 6 ? "" : "4 rows where 6 were captured, with their sum"));
  }
  CHECK(s.captured.replays() == (capture ? 3 : 0));
  return parameters(s.model);
}

}  // namespace

TEST_CASE("ordinary training with a captured loss is that without, bit by bit") {
  for_each_gpu([](Device device) {
    const bool equal = ordinarily_trained(device, true) == ordinarily_trained(device, false);
    CHECK(equal);
  });
}

namespace {

// Words, of which 0 is padding; each position predicts from those before it.
struct Words {
  nn::Sequential model{
      nn::Embedding(7, 4, {.padding = 0}), nn::PositionalEmbedding(5, 4),
      nn::TransformerEncoderLayer(4, 2, {.dim_feedforward = 6, .dropout = 0, .batch_first = true}),
      nn::LSTM(4, 4, {.batch_first = true}), nn::Linear(4, 7)};
  memory::CapturedLoss::Loss plain = [this](Tape& tape, const std::vector<Tensor>& batch) {
    return cross_entropy(model(tape.input(batch[0])), batch[1],
                         {.class_axis = 2, .label_smoothing = 0.1, .ignore_index = 0});
  };
};

}  // namespace

TEST_CASE("sequences of words are captured, with attention, recurrence and recomputation") {
  for_each_gpu([](Device device) {
    for (const bool recompute : {false, true}) {
      nn::manual_seed(6);
      Words words;
      words.model.to(device);
      words.model[2].set_recomputing(recompute);
      memory::CapturedLoss captured(words.model, 3, words.plain);
      PublicRandom random(5);
      for (int step = 0; step < 2; ++step) {
        std::vector<std::int64_t> ids(15);
        for (std::int64_t& id : ids) id = random.below(7);
        const std::vector<Tensor> batch(2, Tensor::from(ids, {3, 5}));
        const auto run = [&](const memory::CapturedLoss::Loss& f,
                             const std::vector<Tensor>& given) {
          Clipper clipper(flat_group(words.model.parameters(), 0.5));
          Tape tape({.private_data = true});
          clipper.add(tape, f(tape, given));
          return flat(clipper.clipped_sums());
        };
        const bool same =
            run(std::ref(captured), batch) == run(words.plain, on_device(device, batch));
        CHECK(same);
        CHECK(captured.reason() == "");
      }
    }
  });
}

namespace {

std::vector<Parameter*> trainable(nn::Module& model) {
  std::vector<Parameter*> all;
  for (Parameter* parameter : model.parameters()) {
    if (parameter->trainable) all.push_back(parameter);
  }
  return all;
}

}  // namespace

TEST_CASE("a change of anything that a capture depends on makes a new capture") {
  for_each_gpu([](Device device) {
    Setup s(device, 4);
    PublicRandom random(8);
    std::vector<Tensor> batch = tensors(random_batch(4, random));
    TapeOptions options{.private_data = true};
    std::int64_t captures = 0;
    const auto check_now = [&](bool anew, const char* what) {
      INFO(what);
      const auto run = [&](bool capture) {
        Clipper clipper(flat_group(trainable(s.model), 0.5));
        Tape tape(options);
        clipper.add(tape,
                    capture ? s.captured(tape, batch) : s.plain(tape, on_device(device, batch)));
        return flat(clipper.clipped_sums());
      };
      const bool same = run(true) == run(false);
      CHECK(same);
      CHECK(s.captured.reason() == "");
      captures += anew ? 1 : 0;
      CHECK(s.captured.captures() == captures);
    };
    const auto first = s.model.parameters()[0];
    check_now(true, "first");
    check_now(false, "nothing");
    copy_into(scale(first->value, 0.9), first->value);
    check_now(false, "values of a parameter");
    options.step = 7;
    options.seed = 3;
    check_now(false, "numbers of random draws that nobody makes");
    first->value = clone(first->value);
    check_now(true, "a parameter's address");
    first->value = first->value.transpose(2, 3);
    check_now(true, "a parameter's layout");
    first->trainable = false;
    check_now(true, "a parameter that is frozen");
    first->trainable = true;
    check_now(true, "a parameter that is not");
    options.training = false;
    check_now(true, "no training");
    options.precision = Dtype::bf16;
    check_now(true, "the precision");
    s.model[5].set_precision(Dtype::f32);
    check_now(true, "a module's precision");
    batch[0] = to_dtype(batch[0], Dtype::bf16);
    check_now(true, "the type of a batch");
    batch = tensors(random_batch(4, random));
    check_now(true, "the type again");
    s.captured.forget();
    check_now(true, "what only the loss knows");
    Tape ordinary(TapeOptions{.training = false, .precision = Dtype::bf16});
    s.captured(ordinary, batch);
    CHECK(s.captured.captures() == captures + 1);  // no private data
  });
}

TEST_CASE("on the CPU a captured loss is the loss") {
  Setup s(cpu, 6);
  PublicRandom random(8);
  const std::vector<Tensor> batch = tensors(random_batch(6, random));
  check_same(clipped(s, true, batch), clipped(s, false, batch), 0);
  CHECK(s.captured.reason() == "the CPU has no launches to save");
  CHECK(s.captured.replays() == 0);
  CHECK_THROWS_AS(memory::CapturedLoss(s.model, 0, s.plain), std::invalid_argument);
}

namespace {

struct EngineRun {
  std::vector<std::vector<double>> steps;  // the parameters after each
  std::vector<double> losses;
  double epsilon = 0;
};

// An engine's steps on random batches in physical batches of 8, with negligible noise.
EngineRun engine_run(Device device, bool capture, double learning_rate) {
  Setup s(device, 8);
  nn::Sgd optimizer(s.model, {.learning_rate = learning_rate});
  Ledger ledger;
  PublicRandom random(1);
  const Batch data = random_batch(20, random);
  Engine engine(s.model, optimizer, 20, ledger,
                {.noise_multiplier = 1,
                 .sampling = Sampling::full_batch,
                 .logical_batch = 20,
                 .memory = {.physical_batch = 8}});
  EngineRun run;
  for (int step = 0; step < 3; ++step) {
    const StepReport report = engine.step([&](Tape& tape, std::span<const std::int64_t> rows) {
      const Tensor ids =
          Tensor::from(std::vector<std::int64_t>(rows.begin(), rows.end()), {std::ssize(rows)});
      const std::vector<Tensor> batch{gather(data.images, ids, 0), gather(data.targets, ids, 0)};
      return capture ? s.captured(tape, batch) : s.plain(tape, on_device(device, batch));
    });
    run.losses.push_back(report.statistics->loss_sum);
    run.steps.push_back(parameters(s.model));
  }
  CHECK(s.captured.reason() == "");
  CHECK(s.captured.replays() == (capture ? 9 : 0));
  CHECK(s.captured.captures() == (capture ? 1 : 0));
  CHECK(ledger.releases() == 3);
  run.epsilon = engine.epsilon();
  return run;
}

}  // namespace

TEST_CASE("an engine's steps with a captured loss are charged as others, each with its own noise") {
  for_each_gpu([](Device device) {
    const EngineRun still = engine_run(device, true, 1e-9), plain = engine_run(device, false, 1e-9);
    CHECK(still.epsilon == plain.epsilon);
    for (std::size_t step = 0; step < 3; ++step)
      CHECK(still.losses[step] == Approx(plain.losses[step]).epsilon(1e-5));
    const EngineRun moved = engine_run(device, true, 1);
    std::vector<std::vector<double>> moves(2, moved.steps[0]);
    for (std::size_t k = 0; k < moves[0].size(); ++k) {
      for (std::size_t step = 0; step < 2; ++step)
        moves[step][k] = moved.steps[step + 1][k] - moved.steps[step][k];
    }
    // Moves of independent noise; repeated noise would make them equal up to the gradients.
    double products = 0, squares[2] = {};
    for (std::size_t k = 0; k < moves[0].size(); ++k) {
      products += moves[0][k] * moves[1][k];
      for (int step = 0; step < 2; ++step) squares[step] += moves[step][k] * moves[step][k];
    }
    CHECK(std::abs(products) < 0.5 * std::sqrt(squares[0] * squares[1]));
  });
}
